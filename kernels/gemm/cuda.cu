/* Products on CUDA, by cuBLASLt or our own kernel. */
#include "kernels/gemm/cuda.cuh"

#include "kernels/gemm/cuda_plan.cuh"

/* cuBLASLt is column-major: our row-major C (m, n) is its column-major matrix of n rows and m columns, the
 * transpose. So we ask for C^T = op(B)^T op(A)^T, with our B as its A and our A as its B. */

/* C = beta * C, which is all that remains if k = 0. */
/* Anatomy. Parallel: over elements of C, one per thread and iteration. Launch: grid stride, at most 32 blocks
 * of 256 per multiprocessor. Holds: 30 to 34 registers, no shared memory. Occupancy: registers; 75 to 100% of
 * the warps. Reads: one scalar per thread, coalesced. Syncs: none. Fusion: nothing: it runs in the place of a
 * product with k = 0. */
template <class T>
static __global__ void scale_output(T *c, int64_t rows, int64_t width, int64_t ld, int64_t batch,
                                    int64_t step, float beta) {
    int64_t count = rows * width * batch;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        int64_t row = i / width;
        T *at = &c[row / rows * step + row % rows * ld + i % width];
        *at = from_float<T>(beta == 0.0f ? 0.0f : beta * to_float(*at));
    }
}

template <class T>
static Status empty_product(Ctx *ctx, const Gemm *g, int64_t batch) {
    unsigned blocks = grid_stride_blocks(ctx, g->m * g->n * batch, 256);
    return LAUNCH(ctx, scale_output<T>, blocks, 256, 0, static_cast<T *>(g->c), g->m, g->n, g->ldc, batch,
                  g->c_step, g->beta);
}

static bool dtypes_allowed(const Gemm *g) {
    if (g->a_dtype != g->b_dtype) return false;
    if (g->a_dtype == E4M3 && (g->transpose_a || !g->transpose_b)) return false;
    if (g->a_dtype == F32) return g->c_dtype == F32;
    return (g->a_dtype == BF16 || g->a_dtype == E4M3) && (g->c_dtype == BF16 || g->c_dtype == F32);
}

bool gemm_cuda_supports(Ctx *ctx, const Gemm *g, const GemmEpilogue *e) {
    if (!dtypes_allowed(g)) return false;
    if (e->kind == EPILOGUE_NONE) return true;
    if (g->m == 0 || g->n == 0 || g->k == 0) return false;
    if (g->batch > 1 && e->kind != EPILOGUE_BIAS) return false;
    bool aux = epilogue_writes_aux(e->kind) || epilogue_reads_aux(e->kind) || e->aux; // SWIGLU: may be NULL
    if (aux && (e->aux_ld % 8 != 0 || e->aux_ld < g->n || (uintptr_t)e->aux % 16 != 0)) return false;
    Plan *plan;
    Status status = plan_find(ctx, g, e, &plan);
    bool found = !status && plan->found;
    status_free(status);
    return found;
}

Status gemm_cuda_epilogue(Ctx *ctx, const Gemm *g, const GemmEpilogue *e) {
    if (!dtypes_allowed(g)) {
        return fail(ERROR_INTERNAL, "a product of %s and %s into %s has no CUDA form", dtype_name(g->a_dtype),
                    dtype_name(g->b_dtype), dtype_name(g->c_dtype));
    }
    if (g->m == 0 || g->n == 0) return OK;
    int64_t batch = g->batch > 1 ? g->batch : 1;
    if (g->k == 0 && e->kind == EPILOGUE_NONE) {
        DISPATCH_FLOAT(g->c_dtype, T, return empty_product<T>(ctx, g, batch));
    }
    Plan *plan;
    TRY(plan_find(ctx, g, e, &plan));
    if (!plan->found) {
        return fail(ERROR_DEVICE, "cuBLASLt has no kernel for a product of %lld x %lld x %lld in %s",
                    (long long)g->m, (long long)g->n, (long long)g->k, dtype_name(g->a_dtype));
    }
    if (e->kind != EPILOGUE_NONE || g->a_dtype == E4M3)
        TRY(plan_bind(&cuda_device(ctx)->cublaslt, plan, g, e));
    if (!plan->settled) TRY(plan_tune(ctx, plan, g, e));
    return plan_run(ctx, plan, &plan->algorithm, g, e, g->c);
}

Status gemm_cuda(Ctx *ctx, const Gemm *g) {
    const GemmEpilogue none = {};
    return gemm_cuda_epilogue(ctx, g, &none);
}
