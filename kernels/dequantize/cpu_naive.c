#include "base/groups.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/real.h"

static void dequantize(const Ctx *ctx, const Dequantize *d) {
    const int64_t groups = tensor_width(d->x) / GROUP;
    EACH (ctx, g, tensor_count(d->x) / GROUP, GROUP) {
        stored *y = (stored *)d->y.data + g * GROUP;
        int8_t codes[GROUP];
        const real scale = groups_codes(d->x, g / groups, g % groups, codes);
#pragma omp simd
        for (int i = 0; i < GROUP; i++) y[i] = store(scale * (real)codes[i]);
    }
}

static Status dequantize_forward_cpu_naive(Ctx *ctx, const void *contract) {
    PRIMITIVE (ctx, "dequantize", ELEMENTWISE) dequantize(ctx, contract);
    return OK;
}
SLOT(DEQUANTIZE, FORWARD, CPU, NAIVE, STORED_DTYPE, dequantize_forward_cpu_naive);
