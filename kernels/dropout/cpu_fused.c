/* dropout: all threads, four columns per random draw. */
#include "kernels/dropout/mask.h"
#include "kernels/real.h"
#include "kernels/simd.h"

void TYPED(dropout_row)(const DropoutMask *mask, int64_t row, const stored *x, int64_t width, stored *y) {
    float factor = (float)mask->factor;
    for (int64_t c = 0; c < width; c += 4) {
        const RandomBlock words = dropout_words(mask, row, c / 4);
        for (int64_t e = 0; e < 4 && c + e < width; e++)
            y[c + e] = store(words.word[e] >= mask->least ? load(x[c + e]) * factor : 0);
    }
}

static void drop(Ctx *ctx, const Dropout *dropout, Tensor x, Tensor y) {
    const DropoutMask mask = dropout_mask(dropout);
    int64_t rows = tensor_rows(x), width = tensor_width(x);
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        TYPED(dropout_row)(&mask, i, stored_row(x, i), width, stored_row(y, i));
}

static Status dropout_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const DropoutForward *d = contract;
    PRIMITIVE (ctx, "dropout", ELEMENTWISE, torch_call("aten::native_dropout"))
        drop(ctx, &d->dropout, d->x, d->y);
    return OK;
}
SLOT(DROPOUT, FORWARD, CPU, FUSED, STORED_DTYPE, dropout_forward_cpu_fused);

static Status dropout_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const DropoutBackward *d = contract;
    PRIMITIVE (ctx, "dropout gradient", ELEMENTWISE, torch_call("aten::native_dropout_backward"))
        drop(ctx, &d->forward->dropout, d->dy, d->dx);
    return OK;
}
SLOT(DROPOUT, BACKWARD, CPU, FUSED, STORED_DTYPE, dropout_backward_cpu_fused);
