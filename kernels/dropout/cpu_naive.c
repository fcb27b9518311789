#include "kernels/dropout/mask.h"
#include "kernels/real.h"

void TYPED(dropout_apply)(const Ctx *ctx, const Dropout *dropout, const stored *x, int64_t rows,
                          int64_t width, stored *y) {
    const DropoutMask mask = dropout_mask(dropout);
    EACH (ctx, i, rows, width)
        for (int64_t c = 0; c < width; c++) {
            bool kept = dropout_words(&mask, i, c / 4).word[c % 4] >= mask.least;
            y[i * width + c] = store(kept ? load(x[i * width + c]) * (real)mask.factor : 0);
        }
}

static Status dropout_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const DropoutForward *d = contract;
    PRIMITIVE (ctx, "dropout", ELEMENTWISE, torch_call("aten::native_dropout"))
        TYPED(dropout_apply)(ctx, &d->dropout, d->x.data, tensor_rows(d->x), tensor_width(d->x), d->y.data);
    return OK;
}
SLOT(DROPOUT, FORWARD, CPU, NAIVE, STORED_DTYPE, dropout_forward_cpu_naive);

static Status dropout_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const DropoutBackward *d = contract;
    PRIMITIVE (ctx, "dropout gradient", ELEMENTWISE, torch_call("aten::native_dropout_backward"))
        TYPED(dropout_apply)
    (ctx, &d->forward->dropout, d->dy.data, tensor_rows(d->dy), tensor_width(d->dy), d->dx.data);
    return OK;
}
SLOT(DROPOUT, BACKWARD, CPU, NAIVE, STORED_DTYPE, dropout_backward_cpu_naive);
