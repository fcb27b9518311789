#include "kernels/gemm/cpu.h"

#include "base/bfloat16.h"
#include "base/checked.h"
#include "base/memory.h"

#include <cblas.h>
#include <inttypes.h>
#include <limits.h>

/* ---- fp32 and fp64 ---- */

static bool fits(int64_t value) {
    return value <= INT_MAX;
}

static Status multiply(const Gemm *g) {
    if (!fits(g->m) || !fits(g->n) || !fits(g->k) || !fits(g->lda) || !fits(g->ldb) || !fits(g->ldc))
        return fail(ERROR_INTERNAL,
                    "gemm: a product of (%" PRId64 ", %" PRId64 ") by (%" PRId64 ", %" PRId64
                    ") has more rows or columns than BLAS can count",
                    g->m, g->k, g->k, g->n);
    const CBLAS_TRANSPOSE ta = g->transpose_a ? CblasTrans : CblasNoTrans;
    const CBLAS_TRANSPOSE tb = g->transpose_b ? CblasTrans : CblasNoTrans;
    const int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    /* BLAS rejects a leading dimension of 0, which an empty k has. */
    const int lda = g->lda ? (int)g->lda : 1, ldb = g->ldb ? (int)g->ldb : 1, ldc = (int)g->ldc;
    for (int64_t b = 0; b < (g->batch ? g->batch : 1); b++) {
        if (g->c_dtype == F32)
            cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, (float)g->alpha, (const float *)g->a + b * g->a_step,
                        lda, (const float *)g->b + b * g->b_step, ldb, (float)g->beta,
                        (float *)g->c + b * g->c_step, ldc);
        else
            cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, g->alpha, (const double *)g->a + b * g->a_step, lda,
                        (const double *)g->b + b * g->b_step, ldb, g->beta, (double *)g->c + b * g->c_step,
                        ldc);
    }
    return OK;
}

/* ---- bf16 ---- */

/* Matrices are multiplied block by block: a block of A and a block of B are widened to fp32, and their
 * product is added to a block of fp32 sums. If C is bf16, the sums are rounded once at the end. */
enum { ROWS = 512, COLUMNS = 1024, DEPTH = 512 }; // sizes of a block: 1, 2 and 2 MiB of fp32

typedef struct {
    float *a, *b, *c;
} Blocks;

/* Widens rows that are `stride` apart to dense rows. */
static void widen(const Ctx *ctx, const bf16 *from, int64_t rows, int64_t width, int64_t stride, float *to) {
#pragma omp parallel for num_threads(ctx->device->threads) schedule(static) if (rows * width > 1 << 14)
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t c = 0; c < width; c++) to[i * width + c] = bfloat16_to_float(from[i * stride + c].bits);
}

static void narrow(const Ctx *ctx, const float *from, int64_t rows, int64_t width, bf16 *to, int64_t stride) {
#pragma omp parallel for num_threads(ctx->device->threads) schedule(static) if (rows * width > 1 << 14)
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            to[i * stride + c].bits = bfloat16_from_float(from[i * width + c]);
}

/* sums (rows, columns), ldc apart, = beta * sums + alpha * the product's block at (row, column). */
static Status add_products(Ctx *ctx, const Gemm *g, const bf16 *a, const bf16 *b, int64_t row, int64_t column,
                           const Blocks *blocks, const Gemm *sums) {
    Gemm part = *sums;
    for (int64_t first = 0; first < g->k || first == 0; first += DEPTH) {
        part.k = least(g->k - first, DEPTH);
        if (g->transpose_a)
            widen(ctx, a + first * g->lda + row, part.k, part.m, g->lda, blocks->a);
        else
            widen(ctx, a + row * g->lda + first, part.m, part.k, g->lda, blocks->a);
        if (g->transpose_b)
            widen(ctx, b + column * g->ldb + first, part.n, part.k, g->ldb, blocks->b);
        else
            widen(ctx, b + first * g->ldb + column, part.k, part.n, g->ldb, blocks->b);
        part.lda = g->transpose_a ? part.m : part.k;
        part.ldb = g->transpose_b ? part.k : part.n;
        TRY(multiply(&part));
        part.beta = 1;
    }
    return OK;
}

static Status block(Ctx *ctx, const Gemm *g, int64_t matrix, int64_t row, int64_t column,
                    const Blocks *blocks) {
    const bf16 *a = (const bf16 *)g->a + matrix * g->a_step, *b = (const bf16 *)g->b + matrix * g->b_step;
    int64_t to = matrix * g->c_step + row * g->ldc + column;
    bool rounds = g->c_dtype == BF16;
    bf16 *c = (bf16 *)g->c + to;
    Gemm sums = *g;
    sums.a_dtype = sums.b_dtype = sums.c_dtype = F32;
    sums.a = blocks->a;
    sums.b = blocks->b;
    sums.c = rounds ? blocks->c : (float *)g->c + to;
    sums.m = least(g->m - row, ROWS);
    sums.n = least(g->n - column, COLUMNS);
    sums.batch = 1;
    if (!rounds) return add_products(ctx, g, a, b, row, column, blocks, &sums);
    sums.ldc = sums.n;
    if (g->beta != 0) widen(ctx, c, sums.m, sums.n, g->ldc, blocks->c);
    TRY(add_products(ctx, g, a, b, row, column, blocks, &sums));
    narrow(ctx, blocks->c, sums.m, sums.n, c, g->ldc);
    return OK;
}

/* The device keeps the blocks, so that a product allocates only if it is larger than those before it. */
static Status take_blocks(Ctx *ctx, int64_t m, int64_t n, int64_t k, Blocks *blocks) {
    CpuDevice *device = (CpuDevice *)ctx->device;
    const size_t bytes = (size_t)(m * k + k * n + m * n) * sizeof(float);
    if (device->blocks_bytes < bytes) {
        void *memory = memory_reserve(bytes);
        if (!memory) return fail(ERROR_MEMORY, "gemm: cannot allocate %.1f MiB", (double)bytes / 1048576);
        memory_free(device->blocks);
        device->blocks = memory;
        device->blocks_bytes = bytes;
    }
    float *first = device->blocks;
    *blocks = (Blocks){first, first + m * k, first + m * k + k * n};
    return OK;
}

static Status converted(Ctx *ctx, const Gemm *g) {
    Blocks blocks;
    TRY(take_blocks(ctx, least(g->m, ROWS), least(g->n, COLUMNS), least(g->k, DEPTH), &blocks));
    for (int64_t matrix = 0; matrix < (g->batch ? g->batch : 1); matrix++)
        for (int64_t row = 0; row < g->m; row += ROWS)
            for (int64_t column = 0; column < g->n; column += COLUMNS)
                TRY(block(ctx, g, matrix, row, column, &blocks));
    return OK;
}

/* ---- products ---- */

static bool multiplies(Dtype factors, Dtype product) {
    if (factors == BF16) return product == BF16 || product == F32;
    return factors == product && (factors == F32 || factors == F64);
}

Status gemm_cpu_openblas(Ctx *ctx, const Gemm *g) {
    static const char *const names[3][2][2] = {
        {{"cblas_sgemm NN", "cblas_sgemm NT"}, {"cblas_sgemm TN", "cblas_sgemm TT"}},
        {{"cblas_dgemm NN", "cblas_dgemm NT"}, {"cblas_dgemm TN", "cblas_dgemm TT"}},
        {{"cblas_sgemm NN, bf16 widened", "cblas_sgemm NT, bf16 widened"},
         {"cblas_sgemm TN, bf16 widened", "cblas_sgemm TT, bf16 widened"}}};
    const bool widens = g->a_dtype == BF16;
    if (g->a_dtype != g->b_dtype || !multiplies(g->a_dtype, g->c_dtype))
        return fail(ERROR_INTERNAL,
                    "gemm: the CPU multiplies fp32, fp64 or bf16 of one kind, not %s by %s into %s",
                    dtype_name(g->a_dtype), dtype_name(g->b_dtype), dtype_name(g->c_dtype));
    library_begin(ctx, names[widens ? 2 : g->c_dtype == F64][g->transpose_a][g->transpose_b]);
    Status status = widens ? converted(ctx, g) : multiply(g);
    library_end(ctx);
    return status;
}
