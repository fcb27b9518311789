/* Products of fp32 on AMX tiles (kernels/gemm/cpu_amx.h) against sums in double precision: both
 * transpositions, sizes that fill no tile, every finish. A sum of n terms in fp32 errs by n 2^-24 of their
 * magnitudes at worst; of random terms by a root of that. */
#include "base/memory.h"
#include "base/random.h"
#include "kernels/device/amx.h"
#include "kernels/gemm/cpu_amx.h"
#include "tests/support/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MOST = 150, CASES = 60, LARGE_CASES = 8, GAP = 3 };
static const double ERROR_MOST = 4e-7;

typedef struct {
    Gemm g;
    GemmFinish finish;
    float *a, *b, *c, *before, *added, *bias;
} Product;

/* Between -1 and 1, and of A over several powers of two. */
static float *numbers(int64_t count, uint64_t stream, bool wide) {
    float *x = memory_array((size_t)count, sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        double u = 2 * random_uniform(1, stream, (uint64_t)i) - 1;
        x[i] = (float)(wide ? u * exp(6 * random_uniform(2, stream, (uint64_t)i) - 3) : u);
    }
    return x;
}

/* A product with random sides, at least (m, n, k). */
static Product make_product(uint64_t number, int64_t m, int64_t n, int64_t k) {
    uint64_t draws[8];
    for (uint64_t i = 0; i < 8; i++) draws[i] = random_below(3, i, number, SIDE_MOST);
    m += (int64_t)draws[0], n += (int64_t)draws[1], k += (int64_t)draws[2];
    const bool turned_a = draws[3] % 2, turned_b = draws[4] % 2, accumulates = draws[5] % 3 == 0;
    const int64_t lda = (turned_a ? m : k) + GAP, ldb = (turned_b ? k : n) + GAP, ldc = n + GAP;
    Product p = {.a = numbers(lda * (turned_a ? k : m), 8 * number, true),
                 .b = numbers(ldb * (turned_b ? n : k), 8 * number + 1, false),
                 .c = numbers(ldc * m, 8 * number + 2, false),
                 .before = numbers(ldc * m, 8 * number + 2, false),
                 .added = numbers(ldc * m, 8 * number + 3, false),
                 .bias = numbers(n, 8 * number + 4, false)};
    p.g = (Gemm){.a = p.a,
                 .b = p.b,
                 .c = p.c,
                 .a_dtype = F32,
                 .b_dtype = F32,
                 .c_dtype = F32,
                 .m = m,
                 .n = n,
                 .k = k,
                 .lda = lda,
                 .ldb = ldb,
                 .ldc = ldc,
                 .transpose_a = turned_a,
                 .transpose_b = turned_b,
                 .batch = 1,
                 .alpha = 1,
                 .beta = accumulates};
    if (!accumulates)
        p.finish =
            (GemmFinish){draws[6] % 2 ? p.bias : NULL, draws[7] % 2 ? p.added : NULL, (Finish)(draws[5] % 5)};
    return p;
}

static double finished(Finish finish, double x) {
    switch (finish) {
    case FINISH_PLAIN: return x;
    case FINISH_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case FINISH_GELU: return x / 2 * erfc(-x / sqrt(2));
    case FINISH_RELU: return x > 0 ? x : 0;
    case FINISH_TANH: return tanh(x);
    }
    return NAN;
}

static void compare_element(const Product *p, int64_t i, int64_t j) {
    const Gemm *g = &p->g;
    const int64_t at = i * g->ldc + j;
    double sum = 0, magnitude = 1;
    for (int64_t d = 0; d < g->k; d++) {
        double x = p->a[g->transpose_a ? d * g->lda + i : i * g->lda + d];
        double term = x * p->b[g->transpose_b ? j * g->ldb + d : d * g->ldb + j];
        sum += term;
        magnitude += fabs(term);
    }
    if (p->finish.bias) sum += p->bias[j];
    if (p->finish.added) sum += p->added[at];
    if (g->beta != 0) sum += p->before[at];
    const double expected = finished(p->finish.finish, sum);
    if (!(fabs(p->c[at] - expected) <= ERROR_MOST * magnitude))
        fail_msg("(%d, %d) of %d x %d x %d is %.9g, not %.9g; magnitude %g", (int)i, (int)j, (int)g->m,
                 (int)g->n, (int)g->k, p->c[at], expected, magnitude);
}

static void compare_product(const Product *p) {
    for (int64_t i = 0; i < p->g.m; i++) {
        for (int64_t j = 0; j < p->g.n; j++) compare_element(p, i, j);
        for (int64_t j = p->g.n; j < p->g.ldc; j++)
            assert_true(p->c[i * p->g.ldc + j] == p->before[i * p->g.ldc + j]);
    }
}

static void free_product(Product *p) {
    float *all[] = {p->a, p->b, p->c, p->before, p->added, p->bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) memory_free(all[i]);
}

static void run_product(const Product *p, int threads, AmxPacked *packed) {
    Device device = {.threads = threads};
    Ctx ctx = {.device = &device};
    gemm_amx_run(&ctx, &p->g, &p->finish, packed);
}

static void products_have_the_error_of_fp32(void **state) {
    (void)state;
    if (!gemm_amx_run || !amx_ready()) skip();
    AmxPacked packed = {0};
    for (uint64_t number = 0; number < CASES; number++) {
        Product p = make_product(number, 1, 1, 1);
        run_product(&p, 2, &packed);
        compare_product(&p);
        free_product(&p);
    }
    memory_free(packed.values);
}

/* Sides that do not fit into a cache, on either side, and any number of threads. */
static void large_products_are_made_in_parts(void **state) {
    static const int64_t sides[][3] = {{300, 400, 900}, {400, 300, 900}, {40, 600, 1700}, {500, 40, 30}};
    (void)state;
    if (!gemm_amx_run || !amx_ready()) skip();
    AmxPacked packed = {0};
    for (uint64_t number = 0; number < LARGE_CASES; number++) {
        const int64_t *side = sides[number % (sizeof sides / sizeof *sides)];
        Product p = make_product(CASES + number, side[0], side[1], side[2]);
        const size_t bytes = (size_t)(p.g.m * p.g.ldc) * sizeof *p.c;
        float *first = memory_array((size_t)(p.g.m * p.g.ldc), sizeof *first);
        memcpy(first, p.c, bytes);
        run_product(&p, 2, &packed);
        compare_product(&p);
        float *swap = p.c;
        p.c = first, first = swap, p.g.c = p.c;
        run_product(&p, number % 2 ? 1 : 7, &packed);
        assert_memory_equal(p.c, first, bytes);
        memory_free(first);
        free_product(&p);
    }
    memory_free(packed.values);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_have_the_error_of_fp32),
                                       cmocka_unit_test(large_products_are_made_in_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
