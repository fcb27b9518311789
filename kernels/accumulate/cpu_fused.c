/* accumulate: all threads. */
#include "kernels/accumulate/accumulate.h"
#include "kernels/real.h"
#include "kernels/simd.h"

static Status accumulate_cpu_fused(Ctx *ctx, const void *contract) {
    const Accumulate *a = contract;
    const float *x = a->x.data;
    float *sum = a->sum.data;
    int64_t count = tensor_count(a->x);
    PRIMITIVE (ctx, "gradient sum", ELEMENTWISE, torch_call("aten::add_")) {
#pragma omp parallel for simd num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t i = 0; i < count; i++) sum[i] += x[i];
    }
    return OK;
}
SLOT(ACCUMULATE, BACKWARD, CPU, FUSED, STORED_DTYPE, accumulate_cpu_fused);
