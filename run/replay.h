/* replay: captures the device work of a function as a graph once it has run twice, and then launches it as a
 * whole: a step of hundreds of kernels then costs the host one launch. */
#pragma once

#include "kernels/op.h"
#include "kernels/record.h"

/* 8 terms are enough for every caller. */
enum { REPLAY_TERMS = 9 };

/* The key of a graph: if it differs from the last run's, the graph is dropped and the work runs again. */
typedef struct {
    uint32_t fuses;
    bool scaled;                // casts are given scales
    size_t saved, scratch;      // bytes in use in the arenas, so that the work's tensors get the same
                                // addresses again
    double terms[REPLAY_TERMS]; // terms of the caller: sizes, factors
} ReplayKey;

typedef struct {
    ReplayKey key;
    int runs; // runs with this key so far, up to the capture
    Graph *graph;
    RecordedGraph *recorded; // the graph's description for a profile; NULL: captured without one
} Replay;

/* Work that can be captured: it enqueues the same kernels whenever it is called with the same terms, and
 * neither waits nor copies from or to the host. A replay does not call it, so its other effects on the host
 * must still hold from the last call. */
typedef Status (*ReplayWork)(Ctx *ctx, void *program);

/* Whether work may be captured: ctx->graphs is set, the device has graphs, everything runs fused (the naive
 * path launches kernel by kernel, as eager frameworks do; a collective is one launch in either form), and no
 * one observes single operations (a recorder without graph support, --check, --hash-trace). */
bool replay_allowed(const Ctx *ctx);

/* Runs the work: twice directly, so that first-use setup is done; then captures it; then launches the graph.
 * If replay_allowed is false it runs directly, and the graph is kept for later. */
CHECKED Status replay_run(Ctx *ctx, Replay *replay, const double terms[REPLAY_TERMS], ReplayWork work,
                          void *program);

/* The same, but captures at once: all parts of the work have run directly before. */
CHECKED Status replay_run_captured(Ctx *ctx, Replay *replay, const double terms[REPLAY_TERMS],
                                   ReplayWork work, void *program);

/* Whether replay_run with these terms would launch a graph that has been captured. */
bool replay_captured(const Ctx *ctx, const Replay *replay, const double terms[REPLAY_TERMS]);

/* Waits for the device and frees the graph. */
void replay_close(Device *device, Replay *replay);
