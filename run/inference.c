#include "run/inference.h"

#include "base/memory.h"
#include "base/random.h"
#include "kernels/linear/linear.h"

#include <assert.h>

Status inference_open(Inference *in, const Session *session, bool cached) {
    *in = (Inference){0};
    TRY(runner_open(session, &in->ctx, &in->model));
    return generator_open(session->device, &in->model, cached, &in->generator);
}

void inference_close(Inference *in) {
    replay_close(in->ctx.device, &in->replay);
    generator_close(&in->generator);
    transformer_close(&in->model);
    if (in->ctx.device) ctx_close(&in->ctx);
}

/* A pass of one size. */
typedef struct {
    Inference *inference;
    Shape shape; // (batch, seq)
} PassSize;

/* The device's part of a pass, which can be captured. */
static Status pass_work(Ctx *ctx, void *program) {
    const PassSize *p = program;
    Inference *in = p->inference;
    ctx->work = (Work){0};
    scope_begin_phase(ctx, PHASE_FORWARD);
    DeviceBatch inputs = {.pictures = in->pictures};
    if (!tensor_empty(in->tokens)) inputs.tokens = tensor_view(in->tokens.data, I32, p->shape);
    if (!tensor_empty(in->pictures)) inputs.pictures.shape.d[0] = p->shape.d[0];
    if (in->model.config.encoder_layers) inputs.source = inputs.tokens;
    const Targets targets = {.targets = tensor_view(in->targets.data, I32, p->shape), .scale = 1};
    in->model.all_rows = in->use == INFERENCE_HIDDEN;
    TRY(transformer_forward(ctx, &in->model, &inputs, NULL));
    if (in->use == INFERENCE_LOSS) TRY(transformer_loss(ctx, &in->model, &targets));
    if (in->use == INFERENCE_LOGITS) TRY(transformer_logits(ctx, &in->model, in->model.hidden, in->logits));
    scope_end(ctx);
    in->work = ctx->work;
    return OK;
}

/* A pass within an arena mark: only the logits stay valid. */
static Status pass(Inference *in, int64_t batch, int64_t seq) {
    Ctx *ctx = &in->ctx;
    const Config *c = &in->model.config;
    if (c->head_transform || c->class_head) in->logits_dtype = ctx->dtype; // required by the head's bias
    PassSize p = {in, shape2(batch, seq)};
    const double terms[REPLAY_TERMS] = {(double)in->use, (double)batch, (double)seq, in->logits_dtype};
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    if (in->use == INFERENCE_LOGITS) {
        Shape shape = shape3(batch, seq, config_padded_vocab(c));
        TRY(take(ctx, ARENA_SAVED, "logits", in->logits_dtype, shape, &in->logits));
    }
    TRY(replay_run(ctx, &in->replay, terms, pass_work, &p));
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return OK;
}

static Status take_lasting(Ctx *ctx, Inference *in) {
    TRY(transformer_take(ctx, &in->model, false));
    if (in->use == INFERENCE_GENERATE) return generator_take(ctx, &in->generator);
    const Config *c = &in->model.config;
    if (in->mapped)
        TRY(take(ctx, ARENA_SAVED, "attention map", ctx->dtype, shape3(in->batch, c->heads, c->context),
                 &in->model.map));
    if (c->architecture->patches)
        TRY(take(ctx, ARENA_SAVED, "pictures", U8, shape4(in->batch, c->image, c->image, c->channels),
                 &in->pictures));
    else
        TRY(take(ctx, ARENA_SAVED, "tokens", I32, shape2(in->batch, in->seq), &in->tokens));
    in->input_bytes = (int64_t)(tensor_bytes(in->tokens) + tensor_bytes(in->pictures));
    return take(ctx, ARENA_SAVED, "targets", I32, shape2(in->batch, in->seq), &in->targets);
}

static Status rehearse(Ctx *ctx, void *program) {
    Inference *in = program;
    TRY(take_lasting(ctx, in));
    return ctx->measuring && in->use != INFERENCE_GENERATE ? pass(in, in->batch, in->seq) : OK;
}

/* ---- importance of the columns of matrices ----
 *
 * How much an error in a column counts, which I4 (base/groups.h) considers: the mean square of the column's
 * inputs. A few columns count a thousand times as much as others, whatever the text is (Sun et al. 2024,
 * "Massive activations in large language models"), so a pass over random tokens finds them. */

enum { TOKENS = 256, PICTURES = 4 };

typedef struct {
    const Parameters *from; // parameters of the running pass
    float **sums;           // (count) sums of squares, by column
} Squares;

/* The parameter whose rows `weight` views, or -1. */
static int find_parameter(const Parameters *p, Tensor weight) {
    for (int i = 0; i < p->count; i++) {
        const Tensor whole = p->info[i].parameter->weight;
        const uintptr_t apart = (uintptr_t)weight.data - (uintptr_t)whole.data;
        if (p->info[i].shape.rank == 2 && apart < tensor_bytes(whole)) return i;
    }
    return -1;
}

/* Adds the squares of a linear layer's inputs. */
static Status add_squares(Ctx *ctx, const Call *call) {
    const Squares *s = ctx->observer;
    if (call->operation != OP_LINEAR) return OK;
    const LinearForward *l = call->contract;
    const int i = find_parameter(s->from, l->weight);
    if (i < 0) return OK;
    const int64_t width = tensor_width(l->x), count = tensor_count(l->x);
    if (!s->sums[i]) s->sums[i] = memory_array((size_t)width, sizeof **s->sums);
    OWNED float *x = memory_array((size_t)count, sizeof *x);
    TRY(values_read(ctx, l->x, 0, count, x));
    for (int64_t k = 0; k < count; k++) s->sums[i][k % width] += x[k] * x[k];
    return OK;
}

static Status run_random(Inference *in, const Session *session, int64_t seed) {
    const Config *c = &session->config;
    const bool pictures = c->architecture->patches;
    in->use = INFERENCE_HIDDEN;
    in->batch = pictures ? PICTURES : 1;
    in->seq = pictures ? 1 : c->context < TOKENS ? c->context : TOKENS;
    TRY(inference_start(in, session, false, seed));
    const int64_t words = in->input_bytes / (int64_t)sizeof(int32_t) + 1;
    OWNED int32_t *input = memory_array((size_t)words, sizeof *input);
    for (int64_t i = 0; i < words; i++)
        input[i] = (int32_t)random_below(1, 0, (uint64_t)i, pictures ? INT32_MAX : (uint64_t)c->vocab);
    in->ctx.observe = add_squares;
    return inference_logits(in, input, in->batch, in->seq);
}

/* Loads the model without quantization, runs it once and sets the importance in `parameters`, which are of
 * the same model. */
static Status measure_importance(const Session *session, Parameters *parameters, int64_t seed) {
    CLOSED_BY(inference_close) Inference in = {0};
    Session plain = *session;
    plain.packed = F32;
    plain.shows_progress = false;
    plain.graphs = false;
    parameters->importance = memory_array((size_t)parameters->count, sizeof *parameters->importance);
    TRY(inference_open(&in, &plain, true));
    Squares squares = {&in.model.parameters, parameters->importance};
    in.ctx.observer = &squares;
    return run_random(&in, &plain, seed);
}

Status inference_start(Inference *in, const Session *session, bool compare, int64_t seed) {
    if (session->packed == I4 && session->stored == F32)
        TRY(measure_importance(session, &in->model.parameters, seed));
    return runner_start(&(Runner){session, &in->ctx, &in->model, rehearse, in, compare, seed, in->bytes});
}

static Status upload(Inference *in, Tensor t, const int32_t *values, int64_t batch, int64_t seq) {
    assert(batch * seq <= tensor_count(t));
    scope_begin_phase(&in->ctx, PHASE_READER);
    TRY(in->ctx.device->upload(in->ctx.device, t.data, values, (size_t)(batch * seq) * sizeof *values));
    scope_end(&in->ctx);
    return OK;
}

static Status upload_input(Inference *in, const void *input, int64_t batch, int64_t seq) {
    const Tensor pictures = in->pictures;
    if (tensor_empty(pictures)) return upload(in, in->tokens, input, batch, seq);
    assert(batch <= pictures.shape.d[0]);
    scope_begin_phase(&in->ctx, PHASE_READER);
    TRY(in->ctx.device->upload(in->ctx.device, pictures.data, input,
                               tensor_bytes(pictures) / (size_t)pictures.shape.d[0] * (size_t)batch));
    scope_end(&in->ctx);
    return OK;
}

Status inference_logits(Inference *in, const void *input, int64_t batch, int64_t seq) {
    if (input) TRY(upload_input(in, input, batch, seq));
    return pass(in, batch, seq);
}

Status inference_loss(Inference *in, const int32_t *tokens, const int32_t *targets, int64_t batch,
                      int64_t seq, double *sum) {
    float loss;
    TRY(transformer_zero(&in->ctx, &in->model));
    TRY(upload(in, in->tokens, tokens, batch, seq));
    TRY(upload(in, in->targets, targets, batch, seq));
    TRY(pass(in, batch, seq));
    TRY(values_read(&in->ctx, in->model.loss_sum, 0, 1, &loss));
    *sum = loss;
    return OK;
}
