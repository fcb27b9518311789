#include "kernels/decode/decode.h"

/* Products of one row read the weights once already (kernels/linear/cpu_fused.c), and a call costs nothing.
 */
static Status decode_forward_cpu_fused(Ctx *ctx, const void *contract) {
    return decode_compose(ctx, contract, FORM_FUSED);
}
SLOT(DECODE, FORWARD, CPU, FUSED, F32, decode_forward_cpu_fused);
