#include "kernels/accumulate/accumulate.h"
#include "kernels/real.h"

static void add(const Ctx *ctx, const real *x, int64_t count, real *sum) {
    EACH_ELEMENT (ctx, i, count) sum[i] = sum[i] + x[i];
}

static Status accumulate_cpu_naive(Ctx *ctx, const void *contract) {
    const Accumulate *a = contract;
    PRIMITIVE (ctx, "gradient sum", ELEMENTWISE, torch_call("aten::add_"))
        add(ctx, a->x.data, tensor_count(a->x), a->sum.data);
    return OK;
}
SLOT(ACCUMULATE, BACKWARD, CPU, NAIVE, STORED_DTYPE, accumulate_cpu_naive);
