#include "kernels/embed/embed.h"

#include "kernels/check.h"

static const char *const OPERATION_NAME = "embed";

static Status take_outputs(Ctx *ctx, EmbedForward *e, ArenaKind saved) {
    TRY(check_present(OPERATION_NAME, "tokens", e->tokens));
    TRY(check_present(OPERATION_NAME, "token", e->token));
    Shape shape = shape3(tensor_rows(e->tokens), tensor_width(e->tokens), tensor_width(e->token));
    return take_missing(ctx, saved, ctx->call, e->token.dtype, shape, &e->y);
}

static Status check_forward(const EmbedForward *e) {
    TRY(check_present(OPERATION_NAME, "tokens", e->tokens));
    TRY(check_present(OPERATION_NAME, "token", e->token));
    Dtype type = e->token.dtype;
    int64_t batch = tensor_rows(e->tokens), columns = tensor_width(e->tokens);
    int64_t width = tensor_width(e->token);
    TRY(check_dense(OPERATION_NAME, "tokens", e->tokens, I32, batch, columns));
    TRY(check_dense(OPERATION_NAME, "token", e->token, type, tensor_rows(e->token), width));
    TRY(check_dense(OPERATION_NAME, "y", e->y, type, batch * columns, width));
    if (!tensor_empty(e->past_on_device))
        TRY(check_dense(OPERATION_NAME, "past_on_device", e->past_on_device, I32, 1, 1));
    if (!tensor_empty(e->pasts)) TRY(check_dense(OPERATION_NAME, "pasts", e->pasts, I32, 1, batch));
    TRY(check_that(OPERATION_NAME, e->scale != 0, "scale is not 0: 1 leaves the token's row as it is"));
    if (!tensor_empty(e->segments))
        TRY(check_dense(OPERATION_NAME, "segments", e->segments, I32, batch, columns));
    if (!tensor_empty(e->segment))
        TRY(check_dense(OPERATION_NAME, "segment", e->segment, type, tensor_rows(e->segment), width));
    TRY(check_that(OPERATION_NAME, tensor_empty(e->segments) || !tensor_empty(e->segment),
                   "segments come with a table"));
    if (tensor_empty(e->position)) return OK;
    int64_t positions = tensor_rows(e->position);
    TRY(check_dense(OPERATION_NAME, "position", e->position, type, positions, width));
    return check_that(OPERATION_NAME, e->past >= 0 && e->past + columns <= positions,
                      "past + T is at most the number of positions");
}

/* Upper bound on the rows of the token table that the batch touches. */
static double touched_rows(const EmbedForward *e) {
    int64_t tokens = tensor_count(e->tokens), vocabulary = tensor_rows(e->token);
    return (double)(tokens < vocabulary ? tokens : vocabulary);
}

Status embed_forward(Ctx *ctx, EmbedForward *e, ArenaKind saved) {
    TRY(take_outputs(ctx, e, saved));
    TRY(check_forward(e));
    TRY(check_that(OPERATION_NAME, tensor_empty(e->pasts) || !ctx->training, "pasts are for inference"));
    if (tensor_count(e->tokens) == 0) return OK;
    double size = (double)dtype_size(e->y.dtype), width = (double)tensor_width(e->y);
    double elements = (double)tensor_count(e->y);
    bool positioned = !tensor_empty(e->position), segmented = !tensor_empty(e->segment);
    double rows = touched_rows(e) + (positioned ? (double)tensor_width(e->tokens) : 0) +
                  (segmented ? (double)tensor_rows(e->segment) : 0);
    Call call = {.operation = OP_EMBED,
                 .pass = PASS_FORWARD,
                 .dtype = e->token.dtype,
                 .contract = e,
                 .inputs = {e->token, e->tokens, e->position, e->segment},
                 .work = {.flops = elements * (positioned + segmented + (e->scale != 1)),
                          .bytes = (double)tensor_bytes(e->tokens) + (double)tensor_bytes(e->segments) +
                                   size * (width * rows + elements)},
                 .outputs = {{"y", e->y}}};
    return op_run(ctx, &call);
}

Status embed_backward(Ctx *ctx, const EmbedBackward *e) {
    const EmbedForward *f = e->forward;
    TRY(check_forward(f));
    Dtype type = f->token.dtype, sums = dtype_wide(type);
    bool learned = !tensor_empty(e->dposition), segmented = !tensor_empty(f->segment);
    int64_t width = tensor_width(f->y);
    TRY(check_dense(OPERATION_NAME, "dy", e->dy, type, tensor_rows(f->y), width));
    TRY(check_dense(OPERATION_NAME, "dtoken", e->dtoken, sums, tensor_rows(f->token), width));
    TRY(check_that(OPERATION_NAME, !learned || !tensor_empty(f->position),
                   "dposition is there only where position is"));
    TRY(check_that(OPERATION_NAME, segmented == !tensor_empty(e->dsegment),
                   "dsegment is there exactly where segment is"));
    if (segmented)
        TRY(check_dense(OPERATION_NAME, "dsegment", e->dsegment, sums, tensor_rows(f->segment), width));
    if (learned)
        TRY(check_dense(OPERATION_NAME, "dposition", e->dposition, sums, tensor_rows(f->position), width));
    if (tensor_count(f->tokens) == 0) return OK;
    double size = (double)dtype_size(type), wide = (double)dtype_size(sums);
    double elements = (double)tensor_count(e->dy);
    double rows = touched_rows(f) + (learned ? (double)tensor_width(f->tokens) : 0) +
                  (segmented ? (double)tensor_rows(f->segment) : 0);
    double accumulated = (double)width * rows;
    Call call = {.operation = OP_EMBED,
                 .pass = PASS_BACKWARD,
                 .dtype = f->token.dtype,
                 .contract = e,
                 .inputs = {e->dy, f->token, f->tokens, f->position, f->segment},
                 .work = {.flops = elements * (1 + learned + segmented + (f->scale != 1)),
                          .bytes = (double)tensor_bytes(f->tokens) + (double)tensor_bytes(f->segments) +
                                   size * elements + 2 * wide * accumulated},
                 .outputs = {{"dtoken", e->dtoken}}};
    int outputs = 1;
    if (learned) call.outputs[outputs++] = (Output){"dposition", e->dposition};
    if (segmented) call.outputs[outputs] = (Output){"dsegment", e->dsegment};
    return op_run(ctx, &call);
}
