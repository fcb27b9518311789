#include "kernels/decode/decode.h"

Status decode_forward_cuda_naive(Ctx *ctx, const void *contract) {
    return decode_compose(ctx, static_cast<const Decode *>(contract), FORM_NAIVE);
}
