#include "kernels/gemm/cpu_blas.h"

#include "base/bfloat16.h"
#include "base/memory.h"

/* A matrix of `rows` rows of `width` bf16 elements, `stride` apart, as fp32 without gaps. */
static void widen(const uint16_t *from, int64_t rows, int64_t width, int64_t stride, float *to) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < width; c++) to[i * width + c] = bfloat16_to_float(from[i * stride + c]);
}

static Status matrix_product(Ctx *ctx, const Gemm *g, int64_t b) {
    int64_t rows_a = g->transpose_a ? g->k : g->m, width_a = g->transpose_a ? g->m : g->k;
    int64_t rows_b = g->transpose_b ? g->n : g->k, width_b = g->transpose_b ? g->k : g->n;
    bool narrow = g->c_dtype == BF16;
    float *wide_a = memory_array((size_t)(rows_a * width_a), sizeof *wide_a);
    float *wide_b = memory_array((size_t)(rows_b * width_b), sizeof *wide_b);
    float *wide_c = narrow ? memory_array((size_t)(g->m * g->n), sizeof *wide_c) : NULL;
    uint16_t *c = narrow ? (uint16_t *)g->c + b * g->c_step : NULL;
    widen((const uint16_t *)g->a + b * g->a_step, rows_a, width_a, g->lda, wide_a);
    widen((const uint16_t *)g->b + b * g->b_step, rows_b, width_b, g->ldb, wide_b);
    if (narrow && g->beta != 0) widen(c, g->m, g->n, g->ldc, wide_c);
    Gemm wide = *g;
    wide.a_dtype = wide.b_dtype = wide.c_dtype = F32;
    wide.a = wide_a;
    wide.b = wide_b;
    wide.c = narrow ? wide_c : (float *)g->c + b * g->c_step;
    wide.lda = width_a;
    wide.ldb = width_b;
    wide.ldc = narrow ? g->n : g->ldc;
    wide.batch = 1;
    Status status = gemm_cpu_openblas(ctx, &wide);
    for (int64_t i = 0; narrow && i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) c[i * g->ldc + j] = bfloat16_from_float(wide_c[i * g->n + j]);
    memory_free(wide_a);
    memory_free(wide_b);
    memory_free(wide_c);
    return status;
}

Status gemm_cpu_converted(Ctx *ctx, const Gemm *g) {
    for (int64_t b = 0; b < (g->batch ? g->batch : 1); b++) TRY(matrix_product(ctx, g, b));
    return OK;
}
