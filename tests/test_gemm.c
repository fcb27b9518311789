/* The matrix product, for each dtype that a backend multiplies. */
#include "tests/support/compare.h"

#include "kernels/gemm/gemm.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t m, n, k, batch;
    bool transpose_a, transpose_b;
    int64_t gap; // elements between rows, and between batches
    double alpha, beta;
} Case;

static const Case cases[] = {
    {1, 1, 1, 1, false, false, 0, 1, 0},      {1, 7, 5, 1, false, true, 0, 1, 0},
    {3, 1, 9, 1, true, false, 0, 1, 1},       {8, 8, 8, 2, true, true, 0, 1, 0},
    {5, 3, 2, 3, false, false, 1, 0.5, 0},    {17, 13, 11, 1, false, true, 0, 1, 0},
    {16, 16, 16, 1, false, true, 8, 1, 0},    {31, 33, 29, 2, true, false, 3, 1, 1},
    {64, 48, 40, 1, false, true, 0, 1, 1},    {64, 64, 1, 4, false, false, 0, 0.125, 0},
    {65, 63, 64, 1, true, false, 0, 1, 1},    {127, 5, 65, 1, false, false, 0, 1, 0.5},
    {1, 257, 128, 1, false, true, 0, 1, 0},   {130, 128, 24, 3, true, true, 8, 2, 0},
    {96, 192, 300, 1, false, true, 0, 1, 0},  {200, 56, 257, 1, true, false, 0, 1, 1},
    {7, 11, 1000, 1, false, true, 16, 1, 0},  {33, 257, 65, 2, false, false, 0, 1, 0},
    {128, 128, 128, 1, false, true, 0, 1, 0}, {13, 64, 17, 6, false, true, 0, 0.25, 0},
    {13, 17, 64, 6, true, false, 0, 1, 0},    {255, 1, 31, 1, false, false, 5, 1, 1},
    {6, 10, 0, 1, false, true, 2, 1, 0.5},    {4, 9, 0, 2, false, false, 0, 1, 0},
    {0, 8, 8, 1, false, true, 0, 1, 0},       {8, 0, 8, 1, false, true, 0, 1, 0},
    {270, 208, 72, 1, false, true, 8, 1, 0},  {40, 203, 115, 1, false, true, 5, 1, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct {
    Case size;
    Dtype output;
} Problem;

static int64_t rows_a(const Case *c) {
    return c->transpose_a ? c->k : c->m;
}
static int64_t rows_b(const Case *c) {
    return c->transpose_b ? c->n : c->k;
}
static int64_t stride_a(const Case *c) {
    return (c->transpose_a ? c->m : c->k) + c->gap;
}
static int64_t stride_b(const Case *c) {
    return (c->transpose_b ? c->k : c->n) + c->gap;
}
static int64_t stride_c(const Case *c) {
    return c->n + c->gap;
}

/* Batches of rows with their gaps, as one dense tensor. */
static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Problem *problem = what;
    const Case *c = &problem->size;
    const Dtype dtype = rig->ctx.dtype;
    rig->ctx.form = rig->variant->form;
    const Shape a_shape = shape3(c->batch, rows_a(c), stride_a(c));
    const Shape b_shape = shape3(c->batch, rows_b(c), stride_b(c));
    const Shape c_shape = shape3(c->batch, c->m, stride_c(c));
    Tensor a = rig_put(rig, "a", dtype, a_shape, in[0]), b = rig_put(rig, "b", dtype, b_shape, in[1]);
    /* With beta = 0 c is poisoned, and must not be read. */
    Tensor product = c->beta != 0 || c->gap ? rig_put(rig, "c", problem->output, c_shape, in[2])
                                            : rig_blank(rig, "c", problem->output, c_shape);
    Gemm g = {.a = a.data,
              .b = b.data,
              .c = product.data,
              .a_dtype = dtype,
              .b_dtype = dtype,
              .c_dtype = problem->output,
              .m = c->m,
              .n = c->n,
              .k = c->k,
              .lda = stride_a(c),
              .ldb = stride_b(c),
              .ldc = stride_c(c),
              .transpose_a = c->transpose_a,
              .transpose_b = c->transpose_b,
              .batch = c->batch,
              .a_step = rows_a(c) * stride_a(c),
              .b_step = rows_b(c) * stride_b(c),
              .c_step = c->m * stride_c(c),
              .alpha = c->alpha,
              .beta = c->beta};
    expect_ok(gemm(&rig->ctx, &g));
    rig_get(rig, product, out[0]);
}

/* Checks one element against the definition; gaps must be unchanged. */
static double element(const Case *c, double *const *in, int64_t batch, int64_t i, int64_t j, double *size) {
    double sum = 0;
    *size = 0;
    for (int64_t l = 0; l < c->k; l++) {
        double x = in[0][batch * rows_a(c) * stride_a(c) +
                         (c->transpose_a ? l * stride_a(c) + i : i * stride_a(c) + l)];
        double y = in[1][batch * rows_b(c) * stride_b(c) +
                         (c->transpose_b ? j * stride_b(c) + l : l * stride_b(c) + j)];
        sum += x * y;
        *size += fabs(x * y);
    }
    return sum;
}

static void check(const Variant *variant, const Case *c, Dtype output) {
    Units u = units_of(variant);
    Problem problem = {*c, output};
    int64_t count = c->batch * c->m * stride_c(c);
    double *in[3] = {normals(c->batch * rows_a(c) * stride_a(c), 1, variant->dtype),
                     normals(c->batch * rows_b(c) * stride_b(c), 1, variant->dtype),
                     normals(count, 1, output)};
    double *got[1] = {zeros(count)}, *want = zeros(count), *bound = zeros(count);
    const double store = output == BF16 ? u.storage : u.wide;
    for (int64_t at = 0; at < count; at++) {
        int64_t j = at % stride_c(c), i = at / stride_c(c) % c->m, batch = at / stride_c(c) / c->m;
        want[at] = in[2][at];
        if (j >= c->n) continue;
        double size, before = c->beta * in[2][at];
        want[at] = c->alpha * element(c, in, batch, i, j, &size) + before;
        bound[at] = fabs(c->alpha) * size *
                        (variant->dtype == BF16 ? sum_error(u.wide, c->k) : product_error(u, c->k)) +
                    store * (fabs(want[at]) + 2 * fabs(before) + 2 * fabs(want[at] - before));
    }
    rig_run(variant, run, &problem, in, got);
    expect_close(got[0], want, bound, count,
                 "%s: product m=%lld n=%lld k=%lld batch=%lld%s%s gap=%lld beta=%g, %s", variant->name,
                 (long long)c->m, (long long)c->n, (long long)c->k, (long long)c->batch,
                 c->transpose_a ? " A^T" : "", c->transpose_b ? " B^T" : "", (long long)c->gap, c->beta,
                 dtype_name(output));
}

static void product_follows_the_definition(void **state) {
    const Variant *variant = test_variant(state, OP_LINEAR);
    for (int i = 0; i < CASES; i++) {
        check(variant, &cases[i], variant->dtype);
        if (variant->dtype == BF16) check(variant, &cases[i], F32);
    }
}

static void double_product_follows_the_definition(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) check(&specification, &cases[i], F64);
}

static void helpers_describe_the_linear_layer(void **state) {
    (void)state;
    Tensor x = tensor_columns(tensor_view((void *)256, F32, shape3(2, 3, 9)), 1, 5); // 6 rows of 5, 9 apart
    Tensor w = tensor_view((void *)512, F32, shape2(7, 5)), y = tensor_view((void *)1024, F32, shape2(6, 7));
    Gemm forward = gemm_forward(x, w, y, 0), input = gemm_dinput(y, w, x, 0),
         weight = gemm_dweight(y, x, w, 1);
    assert_true(forward.m == 6 && forward.n == 7 && forward.k == 5 && forward.lda == 9 &&
                forward.transpose_b);
    assert_true(input.m == 6 && input.n == 5 && input.k == 7 && input.ldc == 9 && !input.transpose_b);
    assert_true(weight.m == 7 && weight.n == 5 && weight.k == 6 && weight.transpose_a && weight.beta == 1);
    assert_ptr_equal(forward.a, (char *)256 + 4);
}

static void wrong_products_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const Gemm right = {.m = 2, .n = 3, .k = 4, .lda = 4, .ldb = 3, .ldc = 3, .batch = 1};
    Gemm wrong[4] = {right, right, right, right};
    wrong[0].m = -1;
    wrong[1].lda = 3;
    wrong[2].transpose_b = true;
    wrong[3].ldc = 2;
    for (int i = 0; i < 4; i++) {
        Status status = gemm(&ctx, &wrong[i]);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
    expect_ok(gemm(&ctx, &right));
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(double_product_follows_the_definition),
                                       ONCE(helpers_describe_the_linear_layer),
                                       ONCE(wrong_products_are_refused),
                                       ON_VARIANT(product_follows_the_definition, 0, "cpu fp32"),
                                       ON_VARIANT(product_follows_the_definition, 8, "cpu bf16"),
                                       ON_VARIANT(product_follows_the_definition, 2, "cuda fp32"),
                                       ON_VARIANT(product_follows_the_definition, 3, "cuda tf32"),
                                       ON_VARIANT(product_follows_the_definition, 4, "cuda bf16")};
    const struct CMUnitTest onednn[] = {
        ON_VARIANT(product_follows_the_definition, 1, "oneDNN where it is, cpu fp32"),
        ON_VARIANT(product_follows_the_definition, 9, "oneDNN where it is, cpu bf16")};
    const struct CMUnitTest own[] = {ON_VARIANT(product_follows_the_definition, 4, "our own, cuda bf16")};
    int failed = cmocka_run_group_tests(tests, NULL, devices_end);
    setenv("FUSEBOX_TUNE", "0", 1); // kernels/gemm/cpu.h
    failed += cmocka_run_group_tests(onednn, NULL, devices_end);
    setenv("FUSEBOX_TUNE", "own", 1); // kernels/gemm/cuda_hopper.cuh
    failed += cmocka_run_group_tests(own, NULL, devices_end);
    return failed;
}
