/* collect: records a window of steps with the best source that this machine has, and makes a trace of it. */
#pragma once

#include "kernels/record.h"
#include "report/trace.h"

typedef struct Collector Collector;

typedef struct {
    bool timers;  // no source: steps are timed from outside, and a trace has no events
    bool graphs;  // steps that are launched as CUDA graphs are told apart, too: with CUPTI alone
    bool apart;   // each primitive alone, on a device that has rested; not with graphs
    bool latency; // how long launches wait on the host: with CUPTI, after collector_prepare
} CollectorOptions;

/* Before the device is opened: what CUPTI must know by then. Where that fails the latencies are not known. */
void collector_prepare(const CollectorOptions *options);

/* Chooses the source: CUPTI, else CUDA events; on the CPU its clock. */
Collector *collector_open(Device *device, const CollectorOptions *options);
void collector_close(Collector *collector);

/* Whether the steps may be launched as graphs. */
bool collector_graphs(const Collector *collector);

/* Between begin and end, steps that run with ctx->recorder = the recorder are recorded. begin forgets what
 * was recorded before, also without an end before it; both wait for the device. Unless the steps only `warm`
 * tracing up, cudaProfilerStart and Stop stand around them. */
CHECKED Status collector_begin(Collector *collector, bool warm);
Recorder *collector_recorder(const Collector *collector);
CHECKED Status collector_end(Collector *collector);

/* A finished trace of what was recorded. Of `run`, the caller gives what the collector cannot know (model,
 * program, sizes, limits, window, ...), as texts of its own; times are set later by trace_set_times. `arenas`
 * are the run's, for the tensors at their peak. */
CHECKED Status collector_trace(const Collector *collector, const TraceRun *run,
                               const Arena arenas[ARENA_COUNT], Trace **trace);
