/* collect: records a window of steps with the best source that this machine has, and makes a trace of it. */
#pragma once

#include "kernels/record.h"
#include "report/trace.h"

typedef struct Collector Collector;

typedef struct {
    bool timers;    // no source: steps are timed from outside, and a trace has no events
    bool graphs;    // also record the kernels of steps launched as CUDA graphs; only with CUPTI
    bool isolate;   // run each primitive alone, on a device that has rested; not with graphs
    bool host_only; // on a GPU: record how long the host takes for operations, and nothing of the GPU
    bool latency;   // record how long launches wait on the host; with CUPTI, after collector_prepare
} CollectorOptions;

/* Call before the device is opened, for settings that CUPTI must know by then. If it fails, latencies are
 * unknown. */
void collector_prepare(bool latency);

/* Selects the source: CUPTI, else CUDA events; on the CPU its clock. */
Collector *collector_open(Device *device, const CollectorOptions *options);
void collector_close(Collector *collector);

/* Whether the steps may be launched as graphs. */
bool collector_graphs(const Collector *collector);

/* Steps that run between begin and end with ctx->recorder = the recorder are recorded. begin discards earlier
 * records, also without an end; both wait for the device. Unless the steps only `warm` tracing up, they are
 * enclosed in cudaProfilerStart and Stop. */
CHECKED Status collector_begin(Collector *collector, bool warm);
Recorder *collector_recorder(const Collector *collector);
CHECKED Status collector_end(Collector *collector);

/* A finished trace of the records. The caller fills `run` with facts that the collector cannot know (model,
 * program, sizes, limits, window, ...), with texts of its own; times are set later by trace_set_times.
 * `arenas` are the run's, for the tensors at their peak. */
CHECKED Status collector_trace(const Collector *collector, const TraceRun *run,
                               const Arena arenas[ARENA_COUNT], Trace **trace);

/* The number of this kernel's warps that fit a multiprocessor, as a share of the maximum; 0 if the limits are
 * unknown. Registers are allocated to warps in units of 256, in four equal register files. */
double kernel_occupancy(const MultiprocessorLimits *limits, const KernelShape *shape);
