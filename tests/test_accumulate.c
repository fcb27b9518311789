/* accumulate: one addition an element, in every form. */
#include "kernels/accumulate/accumulate.h"
#include "tests/support/compare.h"

static const int64_t counts[] = {64, 65, 4096, 100003};
enum { COUNTS = sizeof counts / sizeof *counts };

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Shape shape = shape1(*(const int64_t *)what);
    const Dtype wide = wide_dtype(&rig->ctx);
    const Accumulate a = {.x = rig_put(rig, "x", wide, shape, in[0]),
                          .sum = rig_put(rig, "sum", wide, shape, in[1])};
    expect_ok(accumulate(&rig->ctx, &a));
    rig_get(rig, a.sum, out[0]);
}

static void check(const Variant *variant) {
    const Dtype wide = dtype_wide(variant->dtype);
    for (int i = 0; i < COUNTS; i++) {
        const int64_t count = counts[i];
        double *in[2] = {normals(count, 1, wide), normals(count, 1, wide)};
        double *got[1] = {zeros(count)}, *sum = zeros(count);
        for (int64_t k = 0; k < count; k++)
            sum[k] = wide == F64 ? in[1][k] + in[0][k] : (double)((float)in[1][k] + (float)in[0][k]);
        rig_run(variant, run, &count, in, got);
        expect_equal(got[0], sum, count, "sum");
    }
}

static void specification_adds(void **state) {
    (void)state;
    check(&specification);
}

static void forms_add(void **state) {
    check(test_variant(state, OP_ACCUMULATE));
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const Accumulate right = {tensor_view(NULL, F32, shape1(8)), tensor_view(NULL, F32, shape1(8))};
    Accumulate wrong[3] = {right, right, right};
    wrong[0].sum = tensor_view(NULL, F32, shape1(9));
    wrong[1].sum.dtype = BF16;
    wrong[2].x = (Tensor){0};
    for (int i = 0; i < 3; i++) {
        Status status = accumulate(&ctx, &wrong[i]);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_adds), ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(forms_add)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
