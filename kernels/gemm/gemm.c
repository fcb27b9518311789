#include "kernels/gemm/gemm.h"

#include "kernels/record.h"

#include <inttypes.h>

static Status check(const Gemm *g) {
    if (g->m < 0 || g->n < 0 || g->k < 0 || g->batch < 0)
        return fail(ERROR_INTERNAL,
                    "gemm: m = %" PRId64 ", n = %" PRId64 ", k = %" PRId64 ", batch = %" PRId64
                    ": none may be negative",
                    g->m, g->n, g->k, g->batch);
    int64_t a_width = g->transpose_a ? g->m : g->k, b_width = g->transpose_b ? g->k : g->n;
    if (g->lda < a_width || g->ldb < b_width || g->ldc < g->n)
        return fail(ERROR_INTERNAL,
                    "gemm: rows of %" PRId64 ", %" PRId64 ", %" PRId64 " elements lie only %" PRId64
                    ", %" PRId64 ", %" PRId64 " apart",
                    a_width, b_width, g->n, g->lda, g->ldb, g->ldc);
    return OK;
}

/* Records op(A) and op(B) as the primitive's inputs. */
static void record_operands(Recorder *recorder, const Gemm *g) {
    int64_t batch = g->batch, m = g->m, n = g->n, k = g->k;
    RecordInput a = {shape2(m, k), {g->lda, 1}}, b = {shape2(k, n), {g->ldb, 1}};
    if (g->transpose_a) a = (RecordInput){shape2(m, k), {1, g->lda}};
    if (g->transpose_b) b = (RecordInput){shape2(k, n), {1, g->ldb}};
    if (batch > 1) {
        a = (RecordInput){shape3(batch, m, k), {g->a_step, a.stride[0], a.stride[1]}};
        b = (RecordInput){shape3(batch, k, n), {g->b_step, b.stride[0], b.stride[1]}};
    }
    record_product(recorder, (RecordInput[]){a, b}, g->beta == 0 ? g->c : NULL); // otherwise C is an input
}

Status gemm(Ctx *ctx, const Gemm *g) {
    TRY(check(g));
    if (ctx->measuring || g->m == 0 || g->n == 0) return OK;
    if (ctx->marked) record_operands(ctx->recorder, g);
    if (ctx->device->backend == BACKEND_CPU) return gemm_cpu(ctx, g);
    if (gemm_cuda) return gemm_cuda(ctx, g);
    return fail(ERROR_INTERNAL, "gemm: this build has no product for %s", ctx->device->name);
}

static Gemm product(Tensor a, Tensor b, Tensor c, double beta) {
    return (Gemm){.a = a.data,
                  .b = b.data,
                  .c = c.data,
                  .a_dtype = a.dtype,
                  .b_dtype = b.dtype,
                  .c_dtype = c.dtype,
                  .lda = a.stride,
                  .ldb = b.stride,
                  .ldc = c.stride,
                  .batch = 1,
                  .alpha = 1,
                  .beta = beta};
}

Gemm gemm_forward(Tensor x, Tensor weight, Tensor y, double beta) {
    Gemm g = product(x, weight, y, beta);
    g.m = tensor_rows(x);
    g.n = tensor_rows(weight);
    g.k = tensor_width(weight);
    g.transpose_b = true;
    return g;
}

Gemm gemm_dinput(Tensor dy, Tensor weight, Tensor dx, double beta) {
    Gemm g = product(dy, weight, dx, beta);
    g.m = tensor_rows(dy);
    g.n = tensor_width(weight);
    g.k = tensor_rows(weight);
    return g;
}

Gemm gemm_dweight(Tensor dy, Tensor x, Tensor dweight, double beta) {
    Gemm g = product(dy, x, dweight, beta);
    g.m = tensor_width(dy);
    g.n = tensor_width(x);
    g.k = tensor_rows(x);
    g.transpose_a = true;
    return g;
}
