#include "kernels/decode/decode.h"
#include "kernels/real.h"

static Status decode_forward_cpu_naive(Ctx *ctx, const void *contract) {
    return decode_compose(ctx, contract, FORM_NAIVE);
}
SLOT(DECODE, FORWARD, CPU, NAIVE, REAL_DTYPE, decode_forward_cpu_naive);
