#include "kernels/accumulate/accumulate.h"
#include "kernels/real.h"

static void add(const real *x, int64_t count, real *sum) {
    for (int64_t i = 0; i < count; i++) sum[i] = sum[i] + x[i];
}

static Status accumulate_cpu_naive(Ctx *ctx, const void *contract) {
    const Accumulate *a = contract;
    PRIMITIVE (ctx, "gradient sum") add(a->x.data, tensor_count(a->x), a->sum.data);
    return OK;
}
SLOT(ACCUMULATE, BACKWARD, CPU, NAIVE, STORED_DTYPE, accumulate_cpu_naive);
