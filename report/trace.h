/* trace: one profiled run as a flat list of events on one clock. Every table, file and answer is computed
 * from it alone, whatever the source of the events (CUPTI, CUDA events, the CPU's clock). The runtime fills
 * it (profile/collect.c), or a test. */
#pragma once

#include "base/limits.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum {
    TRACE_STEP,      // a whole recorded training step, or one forward pass
    TRACE_PHASE,     // a part of a step: see Phase
    TRACE_SCOPE,     // a named range of the program: a layer, PROFILE_SCOPE("name")
    TRACE_OPERATION, // an operation, dispatched by op_run
    TRACE_PRIMITIVE, // a part of an operation
    TRACE_RUNTIME,   // a call of the CUDA runtime or driver
    TRACE_KERNEL,    // on a device; without CUPTI a library's call, or a primitive that makes none
    TRACE_COPY,
    TRACE_FILL,
    TRACE_KIND_COUNT
} TraceKind;

typedef enum {
    COPY_HOST_TO_DEVICE,
    COPY_DEVICE_TO_HOST,
    COPY_DEVICE_TO_DEVICE,
    COPY_PEER,
    COPY_OTHER,
    COPY_COUNT
} CopyDirection;

/* Launch parameters of a kernel. All zero if the source does not have them (CUDA events, the CPU). */
typedef struct {
    int32_t grid[3], block[3];
    int32_t registers;                            // per thread
    int32_t shared_static, shared_dynamic, local; // bytes: per block, per block, per thread
    double occupancy; // theoretical occupancy: resident warps over the maximum, 0 to 1
} KernelShape;

typedef enum {
    HOST_MEMORY_UNKNOWN, // no side of the copy is host memory, or the source does not say
    HOST_MEMORY_PINNED,
    HOST_MEMORY_PAGEABLE,
    HOST_MEMORY_COUNT
} HostMemory;

/* Parameters of a copy or a fill. */
typedef struct {
    CopyDirection direction;
    HostMemory host;
    int64_t bytes;
} CopyShape;

/* The number of the first prefetching thread; lower numbers are the program's own threads. */
enum { TRACE_READERS = 64 };

/* One event. Host events (up to TRACE_RUNTIME) have a thread, device events (from TRACE_KERNEL) a stream. On
 * the CPU a "kernel" has stream 0 and is inside its primitive. */
typedef struct {
    TraceKind kind;
    const char *name;   // from trace_name(): a kernel's as the source reports it (demangled), others as
                        // written
    int64_t begin, end; // ns since the trace's origin
    int32_t thread;     // thread of the host, 0-based; -1 for device events
    int32_t stream;     // stream of the device, 0-based; -1 for host events
    /* Index of the enclosing event, which comes before this event in the list; -1: none. For a device event,
     * the innermost host event (except TRACE_RUNTIME) that was open at its launch. */
    int64_t parent;
    int64_t launch;   // device events: index of the TRACE_RUNTIME that launched it; -1 if unknown
    int64_t instance; // for operations and primitives: number of the call, which CUPTI's correlation carries

    /* The step and the model's part that the event belongs to; device events inherit these from the
     * parent. */
    int64_t step; // number of the step; -1 outside
    Phase phase;
    bool host;             // TRACE_SCOPE: the host executes in it, or launches a graph
    bool own;              // TRACE_SCOPE: opened by the program's user, not by fusebox
    int32_t layer;         // -1 outside the blocks
    const char *operation; // of the event or, for a primitive, of its operation; NULL: the next three are
                           // unset
    Pass pass;
    Form form;
    const char *call; // the model's call: "attention.projection"
    Category category;
    Arithmetic arithmetic;        // for primitives and their device events
    Traffic traffic;              // for operations
    const char *source;           // "kernels/norm/cuda_fused.cu:120", its implementation; NULL if unknown
    const char *torch;            // for primitives: PyTorch's operator, "aten::addmm"; NULL if there is none
    bool torch_part;              // the primitive is only a part of that operator's call
    const char *shapes, *strides; // of the inputs, "[[4, 64, 64], [192, 64]]"; NULL if unknown

    Work work;          // for operations: the minimum that the contract requires
    KernelShape kernel; // for TRACE_KERNEL
    int64_t launches;   // for TRACE_KERNEL: the number of kernels that the event represents; more than 1 only
                        // in records_trace()
    int64_t queued;     // for TRACE_KERNEL: when it entered the command buffer; ns, 0 if unknown
    int64_t submitted;  // when the command buffer was submitted to the device
    CopyShape copy;     // for TRACE_COPY and TRACE_FILL

    /* Computed by trace_finish. */
    int64_t self;         // host events: ns outside children of kind step, phase, scope, operation or
                          // primitive
    int64_t device_self;  // ns of the event's device events; for a device event, its own length
    int64_t device_total; // the same, including the time of everything below the event
    int64_t device_count; // number of device events below the event
} TraceEvent;

typedef enum {
    MEMORY_PARAMETERS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,
    MEMORY_SAVED,
    MEMORY_SCRATCH,
    MEMORY_CACHE,     // keys and values of generation
    MEMORY_WORKSPACE, // memory that libraries use
    MEMORY_CLASS_COUNT
} MemoryClass;

/* From `at` on, the class holds `bytes`. */
typedef struct {
    int64_t at; // ns
    MemoryClass class_;
    int64_t bytes;
    int64_t event; // the host event that fills the memory allocated at this time, or else the open event; -1:
                   // none
} TraceMemory;

/* A tensor in memory when its class was at its peak. */
typedef struct {
    const char *name; // "block.3.attention.lse"
    MemoryClass class_;
    int64_t bytes;
} TraceTensor;

/* The checks whose values a bundle contains as well. */
#define CHECK_PHASES   "phases sum to the step within 1%"
#define CHECK_COVERED  "at least 98% of the step is attributed"
#define CHECK_LIMITS   "no operation above the machine's limit"
#define CHECK_OVERHEAD "tracing costs under 10% of the step"

/* A self-check of the report: it passes if `found` is at most `allowed`. */
typedef struct {
    const char *name; // "records = launches"
    bool passed;
    double found, allowed;
    const char *detail; // one line with the figures
} TraceFinding;

typedef enum { SOURCE_CUPTI, SOURCE_EVENTS, SOURCE_CLOCK } TraceSource;

/* The model's quality after a step. */
typedef struct {
    int64_t step;
    double loss, top1, top5; // shares, for classification; else NAN
} TraceValidation;

typedef struct {
    TraceSource source;
    const char *source_note; // why no better source is used, or how the source is used: "nsys holds CUPTI";
                             // or ""
    bool graphs;             // steps are launched as graphs
    bool isolate;            // the device rested before each primitive: a step's length is meaningless
    bool host_only; // nothing of the device was recorded: an operation's time is what the host takes for it
    const char *device, *library, *host;
    const char *command, *version, *date; // the command line, fusebox's version, and the report's date in UTC
    const char *commit, *build;           // see base/version.h
    const char *driver, *device_clocks, *host_clocks; // read right after the recorded steps
                                                      // (profile/clocks.h); ""
    char **settings; // (settings_count) all options that may change a figure: "dtype=auto"; a trace's own
    int64_t settings_count;
    int32_t device_count;
    int64_t threads;                          // threads of the CPU
    Peaks measured, sheet;                    // limits; sheet is all 0 for an unknown device
    const char *model, *dtype, *program;      // "train" or "infer"
    const char *step;                         // name of a step: "decoding step"; "": a training step, or a
                                              // pass
    const char *unit;                         // unit of a step's work: "tokens", "images"
    bool bf16_fast;                           // bf16 products are faster on this machine than fp32 ones
    int64_t batch, seq, accum;                // sizes of a step; seq is the longest length if lengths vary
    int64_t layers, heads, width, parameters; // sizes of the model
    int64_t first_step, steps;                // the recorded steps
    const char *window;                       // "skip 3, ready 2, record 5, segment 1 of 2"
    const TraceValidation *validations;       // (validation_count) validations so far
    int64_t validation_count;
    /* Times of these steps with tracing off; ms, in order. Then with tracing on, for the overhead. */
    double *step_ms, *traced_ms;
    int64_t step_count, traced_count;
    double *reader_ms;                   // (step_count) part of it spent waiting for the reader
    double *step_tokens, *traced_tokens; // (step_count), (traced_count); NULL: each batch * seq * accum
    /* In the untraced pass: this process's time on all processors over elapsed time, at most their number;
     * the load of all processors, and of the GPU, 0 to 1. -1: unknown. */
    double process_cpu, system_cpu, gpu_busy;
    double cores_waited; // see base/cores.h; over the steps with tracing on and off
    int64_t launches;    // kernels launched in the window, counted independently of the records; -1: not
                         // counted
    int64_t dropped;     // dropped records
    int64_t left_out;    // for a trace from a bundle: events of later steps that were not kept
    double counters[4];  // cycles, instructions, cache misses, branch misses of the recorded steps; -1:
                         // unknown
    const char *counters_note; // why a counter is unknown; ""
    int64_t rank, ranks;       // the trace's rank, and their number: 0 of 1
    const char *engine;        // the communication library: "NCCL 2.28.9"; "": one rank
    int64_t origin;            // ns of the host's clock at time 0 of the events
    double clock_ahead;        // for a trace of another rank: ns subtracted to convert to rank 0's clock
    double clock_within;       // the error bound of that conversion
} TraceRun;

typedef struct Trace {
    TraceRun run;
    TraceEvent *events; // a parent before its children; host events of one thread in the order of `begin`
    int64_t count;
    TraceMemory *memory; // in the order of `at`
    int64_t memory_count;
    TraceTensor *tensors; // tensors of all classes, largest first
    int64_t tensor_count;
    TraceFinding *findings;
    int64_t finding_count;
    struct Trace **others; // (other_count) traces of the other ranks in order, on this one's clock; only in
                           // rank 0's
    int32_t other_count;
    struct TraceStore *store; // names and capacities; owned by the trace
} Trace;

/* An empty trace: nothing known, source CPU clock. */
Trace *trace_open(void);
void trace_close(Trace *trace);

/* A copy of `text` that lives as long as the trace; equal texts give the same pointer. NULL stays NULL. */
const char *trace_name(Trace *trace, const char *text);

/* Names by number: the number of a name of this trace, -1 for NULL; and back, NULL if there is none. */
int64_t trace_name_number(const Trace *trace, const char *name);
int64_t trace_name_room(const Trace *trace); // an upper bound of the numbers of names
const char *trace_name_numbered(const Trace *trace, int64_t number);

/* An event with only a kind and a name: parent, launch, thread, stream, step, layer are -1. */
TraceEvent trace_event(Trace *trace, TraceKind kind, const char *name);

int64_t trace_add(Trace *trace, const TraceEvent *event); // returns the event's index
void trace_add_memory(Trace *trace, TraceMemory memory);
void trace_add_tensor(Trace *trace, TraceTensor tensor);
void trace_add_finding(Trace *trace, const char *name, double found, double allowed, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void trace_set_times(Trace *trace, const double *step_ms, const double *reader_ms, int64_t steps,
                     const double *traced_ms, int64_t traced); // the values are copied; reader_ms may be NULL
/* The tokens of each of those steps, `steps` and `traced` values, which are copied. */
void trace_set_tokens(Trace *trace, const double *step_tokens, const double *traced_tokens);

/* Keeps copies of the texts. */
void trace_set_settings(Trace *trace, char *const *settings, int64_t count);

/* trace_limits: the limits for shares, measured or else from the data sheet. The second function: hard limits
 * that nothing can exceed, from the data sheet, because measured limits are below what the machine can do, or
 * else measured. Unknown if there are neither. */
const Peaks *trace_limits(const TraceRun *run);
const Peaks *trace_utmost(const TraceRun *run);

/* Tokens of the i-th untraced step, or recorded step. */
double trace_step_tokens(const TraceRun *run, int64_t i);
const char *trace_unit(const TraceRun *run); // "tokens" by default
double trace_traced_tokens(const TraceRun *run, int64_t i);

/* Lets device events inherit from their parents, and computes self and device times; sorts memory and
 * tensors. ERROR_INTERNAL for inconsistent events: a parent after its child, an end before its begin. */
CHECKED Status trace_finish(Trace *trace);

/* The nearest event of `kind` from this event upwards, including itself; -1: none. */
int64_t trace_above(const Trace *trace, int64_t event, TraceKind kind);

/* Wall time of the recorded steps, and device time in them; ns. */
double trace_steps_ns(const Trace *trace);
double trace_device_ns(const Trace *trace);

/* What tables show: NAMES_FULL includes kernels' parameters and namespaces, OPERATORS_ALONE leaves out the
 * kernels below the operators, THREADS_SEPARATE gives operators and ranges a row per thread, readers
 * included, DEVICE_ALONE leaves out operators and ranges, which are the host's. */
enum { NAMES_PLAIN = 0, NAMES_FULL = 1, OPERATORS_ALONE = 2, THREADS_SEPARATE = 4, DEVICE_ALONE = 8 };

/* Texts used in reports. */
/* NULL after the last. */
const char *trace_kind_name(int kind);
const char *copy_name(int direction);   // "host to device"
const char *host_memory_name(int host); // "pinned"; "-" if unknown
const char *memory_class_name(int class_);
const char *source_name(TraceSource source); // "CUPTI activity records", "CUDA events", "CPU clock"

/* "attention forward"; "-" outside operations. */
enum { LABEL_BYTES = 160 };
void operation_label(const TraceEvent *event, char text[LABEL_BYTES]);

/* Whether the event is in a recorded step; others are in no table. */
static inline bool trace_in_step(const TraceEvent *event) {
    return event->step >= 0;
}
static inline const Trace *trace_of_rank(const Trace *trace, int32_t rank) {
    return rank == 0 ? trace : trace->others[rank - 1];
}
static inline bool trace_on_device(const TraceEvent *event) {
    return event->kind >= TRACE_KERNEL;
}
static inline int64_t trace_length(const TraceEvent *event) {
    return event->end - event->begin;
}
