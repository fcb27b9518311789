#include "run/replay.h"

#include <string.h>

enum { RUNS_BEFORE_CAPTURE = 2 };

bool replay_allowed(const Ctx *ctx) {
    if (!ctx->graphs || !ctx->device->graph_launch) return false;
    if (ctx->measuring || ctx->check || ctx->observe) return false;
    if (ctx->recorder && !recorder_captures(ctx->recorder)) return false;
    return op_all_fused(ctx);
}

static ReplayKey key_of(const Ctx *ctx, const double terms[REPLAY_TERMS]) {
    ReplayKey key = {.fuses = ctx->fuses,
                     .scaled = ctx->scaled,
                     .saved = ctx->arenas[ARENA_SAVED].used,
                     .scratch = ctx->arenas[ARENA_SCRATCH].used};
    memcpy(key.terms, terms, sizeof key.terms);
    return key;
}

static bool same(const ReplayKey *a, const ReplayKey *b) {
    bool equal =
        a->fuses == b->fuses && a->scaled == b->scaled && a->saved == b->saved && a->scratch == b->scratch;
    for (int i = 0; i < REPLAY_TERMS; i++) equal = equal && a->terms[i] == b->terms[i];
    return equal;
}

/* Drops only the graph, so that the work can be captured again at once. */
static void drop(Device *device, Replay *replay) {
    if (replay->graph) device->graph_free(device, replay->graph);
    recorded_graph_free(replay->recorded);
    replay->graph = NULL;
    replay->recorded = NULL;
}

static Status capture(Ctx *ctx, Replay *replay, ReplayWork work, void *program) {
    TRY(ctx->device->capture_begin(ctx->device));
    if (ctx->recorder) record_capture_begin(ctx->recorder);
    Status status = work(ctx, program);
    if (ctx->recorder && !status) replay->recorded = record_capture_end(ctx->recorder);
    Status ended = ctx->device->capture_end(ctx->device, &replay->graph);
    if (status) {
        status_free(ended);
        replay_close(ctx->device, replay);
    }
    return fail_at(status ? status : ended, "capturing a graph (--graphs=0 runs without graphs)");
}

static Status run_after(int runs, Ctx *ctx, Replay *replay, const double terms[REPLAY_TERMS], ReplayWork work,
                        void *program) {
    if (!replay_allowed(ctx)) return work(ctx, program);
    ReplayKey key = key_of(ctx, terms);
    if (!same(&key, &replay->key)) {
        replay_close(ctx->device, replay);
        replay->key = key;
    }
    if (ctx->recorder && !recorder_knows(ctx->recorder, replay->recorded)) drop(ctx->device, replay);
    if (!replay->graph && replay->runs++ < runs) return work(ctx, program);
    if (!replay->graph) TRY(capture(ctx, replay, work, program));
    bool recorded = ctx->recorder && replay->recorded;
    if (recorded)
        record_replay(ctx->recorder, replay->recorded, ctx->device->graph_kernels(replay->graph), ctx->step);
    TRY(ctx->device->graph_launch(ctx->device, replay->graph));
    if (recorded) record_end(ctx->recorder);
    return OK;
}

Status replay_run(Ctx *ctx, Replay *replay, const double terms[REPLAY_TERMS], ReplayWork work,
                  void *program) {
    return run_after(RUNS_BEFORE_CAPTURE, ctx, replay, terms, work, program);
}

Status replay_run_captured(Ctx *ctx, Replay *replay, const double terms[REPLAY_TERMS], ReplayWork work,
                           void *program) {
    return run_after(0, ctx, replay, terms, work, program);
}

bool replay_captured(const Ctx *ctx, const Replay *replay, const double terms[REPLAY_TERMS]) {
    const ReplayKey key = key_of(ctx, terms);
    return replay_allowed(ctx) && replay->graph && same(&key, &replay->key);
}

void replay_close(Device *device, Replay *replay) {
    drop(device, replay);
    *replay = (Replay){0};
}
