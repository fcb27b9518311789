/* Evaluates a model on validation data. */
#include "run/trainer_internal.h"

#include "base/memory.h"
#include "comm/rendezvous.h"
#include "run/ranking.h"

#include <math.h>
#include <string.h>

enum { LIKELIEST = 5 };

/* Counts the rows whose class is the likeliest, and those whose class is among the five likeliest. */
static Status count_hits(Trainer *t, Tensor logits, Evaluation *e) {
    int64_t classes = t->model.config.vocab, padded = tensor_width(logits);
    OWNED int32_t *targets = memory_array((size_t)t->batch, sizeof *targets);
    OWNED float *values = memory_array((size_t)tensor_count(logits), sizeof *values);
    Device *device = t->ctx.device;
    TRY(device->download(device, targets, t->micro.targets.data, (size_t)t->batch * sizeof *targets));
    TRY(values_read(&t->ctx, logits, 0, tensor_count(logits), values));
    for (int64_t row = 0; row < t->batch; row++) {
        if (targets[row] < 0) continue;
        int64_t likelier = ranking_of(values + row * padded, classes, targets[row]);
        e->first += likelier == 0;
        e->five += likelier < LIKELIEST;
    }
    return OK;
}

Status evaluate_batch(Trainer *t, double weight, Evaluation *e) {
    Ctx *ctx = &t->ctx;
    const Config *c = &t->model.config;
    Arena *saved = &ctx->arenas[ARENA_SAVED];
    ArenaMark mark = arena_mark(saved);
    ctx->training = false;
    TRY(forward_and_loss(t, weight));
    if (c->architecture->task == TASK_CLASS) {
        Tensor logits;
        TRY(take(ctx, ARENA_SAVED, "logits", ctx->dtype, shape2(t->batch, config_padded_vocab(c)), &logits));
        TRY(transformer_logits(ctx, &t->model, t->model.hidden, logits));
        if (!ctx->measuring) TRY(count_hits(t, logits, e));
    }
    arena_release(saved, mark);
    return OK;
}

int64_t trainer_share(const Trainer *t, int64_t batches, int64_t *first) {
    *first = batches * rank_of(t) / ranks_of(t);
    return batches * (rank_of(t) + 1) / ranks_of(t) - *first;
}

static Status evaluate_share(Trainer *t, FetchBatch fetch, void *source, int64_t count, double factor,
                             Evaluation *own) {
    Device *device = t->ctx.device;
    for (int64_t i = 0; i < count; i++) {
        TRY(device->fill(device, t->model.loss_sum.data, 0, tensor_bytes(t->model.loss_sum)));
        TRY(upload_batch(t, fetch, source, i, &own[i].targets));
        TRY(evaluate_batch(t, factor, &own[i]));
        TRY(values_read(&t->ctx, t->model.loss_sum, 0, 1, &own[i].loss));
    }
    return OK;
}

/* Sums are added in the order of the batches, whichever rank has evaluated them. Missing batches add 0. */
Status trainer_evaluate(Trainer *t, FetchBatch fetch, void *source, int64_t batches, Validation *v) {
    int64_t first, count = trainer_share(t, batches, &first), most = batches / ranks_of(t) + 1, targets = 0;
    double factor = counts_targets(t) ? 1 : loss_scale(t) * (double)step_batches(t) / (double)batches;
    int64_t first_hits = 0, five_hits = 0;
    float sum = 0;
    OWNED Evaluation *own = memory_array((size_t)most, sizeof *own);
    OWNED Evaluation *all = memory_array((size_t)(most * ranks_of(t)), sizeof *all);
    TRY(trainer_settle(t));
    TRY(evaluate_share(t, fetch, source, count, factor, own));
    memcpy(all, own, (size_t)most * sizeof *own);
    if (t->comm) TRY(rendezvous_gather(t->comm->rendezvous, own, (size_t)most * sizeof *own, all));
    for (int64_t i = 0; i < most * ranks_of(t); i++) {
        sum += all[i].loss;
        targets += all[i].targets;
        first_hits += all[i].first;
        five_hits += all[i].five;
    }
    double counted = targets ? (double)targets : 1;
    const bool classes = t->model.config.architecture->task == TASK_CLASS;
    *v = (Validation){.loss = counts_targets(t) ? sum / counted : sum,
                      .top1 = classes ? (double)first_hits / counted : NAN,
                      .top5 = classes ? (double)five_hits / counted : NAN};
    return OK;
}
