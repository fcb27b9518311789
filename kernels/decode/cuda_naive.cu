#include "kernels/decode/decode.h"

static Status decode_forward_cuda_naive(Ctx *ctx, const void *contract) {
    return decode_compose(ctx, static_cast<const Decode *>(contract), FORM_NAIVE);
}
SLOT(DECODE, FORWARD, CUDA, NAIVE, F32, decode_forward_cuda_naive);
SLOT(DECODE, FORWARD, CUDA, NAIVE, BF16, decode_forward_cuda_naive);
