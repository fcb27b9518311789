#include "base/groups.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/real.h"

static void dequantize(const Ctx *ctx, const Dequantize *d) {
    const uint16_t *scales = d->x.scales;
    const Dtype dtype = d->x.dtype;
    stored *y = d->y.data;
    EACH (ctx, g, tensor_count(d->x) / GROUP, GROUP) {
        const real scale = bfloat16_to_float(scales[g]);
        for (int64_t i = g * GROUP; i < (g + 1) * GROUP; i++)
            y[i] = store(scale * (real)group_code(dtype, d->x.data, i));
    }
}

static Status dequantize_forward_cpu_naive(Ctx *ctx, const void *contract) {
    PRIMITIVE (ctx, "dequantize", ELEMENTWISE) dequantize(ctx, contract);
    return OK;
}
SLOT(DEQUANTIZE, FORWARD, CPU, NAIVE, STORED_DTYPE, dequantize_forward_cpu_naive);
