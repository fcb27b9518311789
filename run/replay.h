/* replay: the device's work of one function, captured as a graph once it has run twice, and from then on
 * launched as a whole: a step of hundreds of kernels then costs the host one launch. */
#pragma once

#include "kernels/op.h"
#include "kernels/record.h"

/* 8 terms are enough for every caller. */
enum { REPLAY_TERMS = 9 };

/* What shapes the work: where it differs from the last run's, the graph is dropped and the work runs anew. */
typedef struct {
    uint32_t fuses;
    bool scaled;                // casts are given scales
    size_t saved, scratch;      // bytes taken of the arenas: the work's tensors get the same addresses again
    double terms[REPLAY_TERMS]; // the caller's: sizes, factors
} ReplayKey;

typedef struct {
    ReplayKey key;
    int runs; // with this key so far, up to the capture
    Graph *graph;
    RecordedGraph *recorded; // what a profile knows of the graph; NULL: captured without one
} Replay;

/* Work that can be captured: puts the same kernels into the stream whenever it is called with the same
 * terms, and waits for nothing, copies nothing from or to the host. A replay does not call it: what else
 * it does on the host must still hold from the last time. */
typedef Status (*ReplayWork)(Ctx *ctx, void *program);

/* Whether work is captured: ctx->graphs is set, the device has graphs, everything runs fused (the naive
 * path stays what people know: launch by launch; a collective is one launch in either form), and nobody looks
 * at single operations (a recorder that does not know graphs, --check, --hash-trace). */
bool replay_allowed(const Ctx *ctx);

/* Runs the work: twice as it is, so that what is set up at the first use is there; then captured; then as
 * a graph. Where replay_allowed says no it runs as it is, and the graph is kept for later. */
CHECKED Status replay_run(Ctx *ctx, Replay *replay, const double terms[REPLAY_TERMS], ReplayWork work,
                          void *program);

/* Waits for the device and frees the graph. */
void replay_close(Device *device, Replay *replay);
