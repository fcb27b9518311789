#include "kernels/loss/loss.h"

#include "kernels/check.h"

static Status take_outputs(Ctx *ctx, Loss *l, ArenaKind saved) {
    TRY(check_present("loss", "hidden", l->hidden));
    TRY(check_present("loss", "weight", l->weight));
    Dtype wide = dtype_wide(l->hidden.dtype);
    int64_t rows = tensor_rows(l->hidden), padded = tensor_rows(l->weight);
    l->log_probabilities = (Tensor){0};
    TRY(take_missing(ctx, saved, "losses", wide, shape1(rows), &l->losses));
    if (!ctx->training) return OK;
    TRY(take_missing(ctx, saved, "d hidden", l->hidden.dtype, l->hidden.shape, &l->dhidden));
    if (op_form(ctx, OP_LOSS, l->hidden.dtype) == FORM_FUSED) return OK;
    return take(ctx, saved, "loss.log_probabilities", wide, shape2(rows, padded), &l->log_probabilities);
}

static Status check(const Ctx *ctx, const Loss *l) {
    TRY(check_present("loss", "hidden", l->hidden));
    TRY(check_present("loss", "weight", l->weight));
    Dtype type = l->hidden.dtype, wide = dtype_wide(type);
    int64_t rows = tensor_rows(l->hidden), width = tensor_width(l->hidden), padded = tensor_rows(l->weight);
    TRY(check_dense("loss", "hidden", l->hidden, type, rows, width));
    TRY(check_dense("loss", "weight", l->weight, type, padded, width));
    TRY(check_dense("loss", "targets", l->targets, I32, 1, rows));
    TRY(check_dense("loss", "losses", l->losses, wide, 1, rows));
    TRY(check_dense("loss", "loss", l->loss, wide, 1, 1));
    TRY(check_that("loss", l->vocab > 0 && l->vocab <= padded,
                   "vocab is at least 1 and at most the rows of weight"));
    TRY(check_that("loss", l->smoothing >= 0 && l->smoothing < 1, "smoothing is at least 0 and below 1"));
    if (!tensor_empty(l->bias)) TRY(check_dense("loss", "bias", l->bias, type, 1, padded));
    if (!tensor_empty(l->count)) TRY(check_dense("loss", "count", l->count, wide, 1, 1));
    if (!ctx->training) return OK;
    TRY(check_that("loss", tensor_empty(l->dbias) == tensor_empty(l->bias),
                   "dbias is there exactly where bias is"));
    if (!tensor_empty(l->dbias)) TRY(check_dense("loss", "dbias", l->dbias, wide, 1, padded));
    TRY(check_dense("loss", "dhidden", l->dhidden, type, rows, width));
    return check_dense("loss", "dweight", l->dweight, wide, padded, width);
}

/* Bytes of the head's first `vocab` rows and of its bias. */
static double head_bytes(const Loss *l) {
    double width = (double)tensor_width(l->weight) + !tensor_empty(l->bias);
    return (double)l->vocab * width * (double)dtype_size(l->weight.dtype);
}

/* FLOPs of bias and smoothing, per logit and pass. */
static double extra_flops(const Loss *l) {
    return !tensor_empty(l->bias) + (l->smoothing > 0);
}

Status loss_forward(Ctx *ctx, Loss *l, ArenaKind saved) {
    TRY(take_outputs(ctx, l, saved));
    TRY(check(ctx, l));
    int64_t rows = tensor_rows(l->hidden);
    if (rows == 0) return OK;
    double logits = (double)rows * (double)l->vocab, width = (double)tensor_width(l->hidden);
    size_t bytes = tensor_bytes(l->hidden) + tensor_bytes(l->targets) + tensor_bytes(l->losses);
    /* Per logit: the product; then maximum, subtraction, exponential, sum. */
    Call call = {
        .operation = OP_LOSS,
        .pass = PASS_FORWARD,
        .dtype = l->hidden.dtype,
        .contract = l,
        .inputs = {l->hidden, l->weight, l->bias, l->targets},
        .work = {.flops = logits * (2 * width + 4 + extra_flops(l)), .bytes = (double)bytes + head_bytes(l)},
        .outputs = {{"losses", l->losses}, {"loss", l->loss}}};
    return op_run(ctx, &call);
}

Status loss_backward(Ctx *ctx, const Loss *l) {
    TRY(check(ctx, l));
    TRY(check_that("loss", ctx->training, "the backward pass belongs to training"));
    int64_t rows = tensor_rows(l->hidden), padded = tensor_rows(l->weight);
    if (op_form(ctx, OP_LOSS, l->hidden.dtype) == FORM_NAIVE)
        TRY(check_dense("loss", "log_probabilities", l->log_probabilities, l->losses.dtype, rows, padded));
    if (rows == 0) return OK;
    double logits = (double)rows * (double)l->vocab, width = (double)tensor_width(l->hidden);
    double wide = (double)dtype_size(l->losses.dtype);
    size_t bytes = 2 * tensor_bytes(l->hidden) + tensor_bytes(l->targets);
    /* Per logit: two products; then exponential, subtraction, scale. The head's gradient is read and
     * written. */
    Call call = {.operation = OP_LOSS,
                 .pass = PASS_BACKWARD,
                 .dtype = l->hidden.dtype,
                 .contract = l,
                 .inputs = {l->hidden, l->weight, l->bias, l->targets},
                 .work = {.flops = logits * (4 * width + 3 + extra_flops(l)),
                          .bytes = (double)bytes + head_bytes(l) + 2 * (double)l->vocab * width * wide},
                 .outputs = {{"dhidden", l->dhidden}, {"dweight", l->dweight}, {"dbias", l->dbias}}};
    return op_run(ctx, &call);
}
