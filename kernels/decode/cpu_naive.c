#include "kernels/decode/decode.h"
#include "kernels/real.h"

Status SPEC(decode_forward)(Ctx *ctx, const void *contract) {
    return decode_compose(ctx, contract, FORM_NAIVE);
}
