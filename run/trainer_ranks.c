/* Exchange with other ranks, and accumulation over a step's micro-batches. */
#include "base/memory.h"
#include "kernels/accumulate/accumulate.h"
#include "run/trainer_internal.h"

#include <math.h>

int rank_of(const Trainer *t) {
    return t->comm ? t->comm->rank : 0;
}

int ranks_of(const Trainer *t) {
    return t->comm ? t->comm->size : 1;
}

/* Micro-batches per step, over all ranks. */
int64_t step_batches(const Trainer *t) {
    return t->accum * ranks_of(t);
}

/* Selects the exchanges during the passes of micro-batch `index`. */
void ranks_begin(Trainer *t, int64_t index) {
    Shards *s = t->model.parameters.shards;
    if (!s) return;
    s->gathers = t->gathers = t->stale;
    s->entered = s->done = s->sent = 0;
    s->lane = t->ctx.check || t->serial ? LANE_MAIN : LANE_SIDE;
    s->reduces = t->reduces = index == t->accum - 1 && shards_cut(&t->ctx, &t->model.parameters);
    t->ctx.defers = shards_defer;
    t->ctx.defer_state = &t->model.parameters;
}

/* Passes that exchange nothing also wait for nothing: events of a graph can only be waited for inside it. */
void ranks_end(Trainer *t) {
    Shards *s = t->model.parameters.shards;
    if (s) s->gathers = s->reduces = false;
    t->stale = false;
}

Status trainer_settle(Trainer *t) {
    Shards *s = t->model.parameters.shards;
    Parameters *p = &t->model.parameters;
    if (!t->stale) return OK;
    s->gathers = true;
    s->entered = 0;
    if (!shards_send(p)) TRY(shards_gather(&t->ctx, p));
    TRY(shards_enter(&t->ctx, p, p->group_count - 1));
    ranks_end(t);
    return OK;
}

static Tensor part_of(Tensor sums, ParameterRange r) {
    return tensor_elements(sums, r.first, shape1(r.count));
}

Status ranks_clear(Trainer *t, int64_t index) {
    Device *device = t->ctx.device;
    Parameters *p = &t->model.parameters;
    ParameterRange parts[PARTS_OUTSIDE_BLOCKS];
    if (index == 0) return transformer_zero(&t->ctx, &t->model);
    int count = shards_outside_blocks(&t->ctx, p, (ParameterRange){0, tensor_count(p->sums)}, parts);
    for (int i = 0; i < count; i++) {
        Tensor part = part_of(p->sums, parts[i]);
        TRY(device->fill(device, part.data, 0, tensor_bytes(part)));
    }
    return OK;
}

/* The first micro-batch's gradients are copied, each later one's added; after the last one the sum is in the
 * gradients. */
static Status finish_part(Trainer *t, int64_t index, ParameterRange part) {
    Device *device = t->ctx.device;
    Tensor own = part_of(t->model.parameters.sums, part);
    Tensor finished = shards_finished(&t->model.parameters, part);
    bool last = index == t->accum - 1;
    if (index == 0) return device->copy(device, finished.data, own.data, tensor_bytes(own));
    return accumulate(&t->ctx, &(Accumulate){.x = last ? finished : own, .sum = last ? own : finished});
}

/* If this micro-batch's groups were exchanged, their gradients have been added already; only the tail
 * remains. */
Status ranks_finish(Trainer *t, int64_t index) {
    Parameters *p = &t->model.parameters;
    ParameterRange parts[PARTS_OUTSIDE_BLOCKS], all = {0, tensor_count(p->sums)};
    if (t->accum == 1) return OK;
    t->ctx.layer = -1;
    t->ctx.call = "micro-batches";
    if (t->reduces) all = (ParameterRange){p->padded, all.count - p->padded};
    int count = shards_outside_blocks(&t->ctx, p, all, parts);
    for (int i = 0; i < count; i++) TRY(finish_part(t, index, parts[i]));
    return OK;
}

/* The flags go to the tail after the gradients, which the passes do not touch. */
Status ranks_set_flags(Trainer *t) {
    const float flags[] = {t->stop, (float)t->tokens}; // for TAIL_STOP and TAIL_TOKENS
    return t->comm ? values_write(&t->ctx, transformer_tail(&t->model, TAIL_STOP, 2), 0, 2, flags) : OK;
}

/* Replaces gradients and tail by their sums over all ranks. */
static Status exchange(Ctx *ctx, void *program) {
    Trainer *t = program;
    Device *device = ctx->device;
    Tensor own = transformer_tail(&t->model, TAIL_LOSSES + rank_of(t), 1);
    scope_begin_part(ctx, "exchange");
    ctx->layer = -1;
    if (!ctx->measuring) TRY(device->copy(device, own.data, t->model.loss_sum.data, tensor_bytes(own)));
    const Parameters *p = &t->model.parameters;
    Exchange e = {.comm = t->comm, .whole = p->sums, .all = t->reduces};
    if (e.all) e.whole = parameters_tail_of(p, p->sums);
    TRY(exchange_gradients(ctx, &e));
    scope_end(ctx);
    return OK;
}

Status ranks_exchange(Trainer *t) {
    if (!t->comm) return OK;
    TRY(replay_run(&t->ctx, &t->exchanged, (const double[REPLAY_TERMS]){t->reduces}, exchange, t));
    t->stale = t->reduces && !t->ctx.measuring;
    return OK;
}

Status ranks_send(Trainer *t) {
    const bool sends = shards_cut(&t->ctx, &t->model.parameters) && shards_send(&t->model.parameters);
    if (!sends) return OK;
    scope_begin_phase(&t->ctx, PHASE_OPTIMIZER);
    TRY(shards_gather(&t->ctx, &t->model.parameters));
    scope_end(&t->ctx);
    return OK;
}

Status ranks_read(Trainer *t, StepResult *result) {
    int64_t count = t->comm ? TAIL_LOSSES + ranks_of(t) : TAIL_LOSS + 1;
    if (!t->tail) t->tail = memory_array((size_t)count, sizeof *t->tail);
    const float *tail = t->tail;
    TRY(values_read(&t->ctx, transformer_tail(&t->model, 0, count), 0, count, t->tail));
    result->loss = tail[TAIL_LOSS];
    if (t->comm) {
        result->stop = tail[TAIL_STOP] != 0;
        t->tokens = (int64_t)tail[TAIL_TOKENS];
        for (int rank = ranks_of(t) - 1; rank >= 0; rank--)
            if (!isfinite(tail[TAIL_LOSSES + rank])) result->blamed = rank;
    }
    return t->comm ? comm_check(t->comm) : OK;
}
