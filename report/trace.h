/* trace: one profiled run as a flat list of events on one clock. Every table, file and answer is computed
 * from it, and from nothing else; where the events came from (CUPTI, CUDA events, the CPU's clock) no longer
 * matters here. The runtime fills it (profile/collect.c), or a test by hand. */
#pragma once

#include "base/limits.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum {
    TRACE_STEP,      // a whole recorded step of training, or one forward run
    TRACE_PHASE,     // a part of a step: see Phase
    TRACE_SCOPE,     // a named range of the program: a layer, PROFILE_SCOPE("name")
    TRACE_OPERATION, // a contract at the door
    TRACE_PRIMITIVE, // a part of an operation
    TRACE_RUNTIME,   // a call of the CUDA runtime or driver
    TRACE_KERNEL,    // on a device; without CUPTI a library's call, or a primitive that made none
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

/* Of a kernel. All zero where the source does not tell (CUDA events, the CPU). */
typedef struct {
    int32_t grid[3], block[3];
    int32_t registers;                            // per thread
    int32_t shared_static, shared_dynamic, local; // bytes: per block, per block, per thread
    double occupancy; // resident warps over the most possible, theoretical, 0 to 1
} KernelShape;

typedef enum {
    HOST_MEMORY_UNKNOWN, // no side of the copy is the host's, or the source does not tell
    HOST_MEMORY_PINNED,
    HOST_MEMORY_PAGEABLE,
    HOST_MEMORY_COUNT
} HostMemory;

/* Of a copy or a fill. */
typedef struct {
    CopyDirection direction;
    HostMemory host;
    int64_t bytes;
} CopyShape;

/* The first thread that reads batches ahead; those before it are the program's own. */
enum { TRACE_READERS = 64 };

/* One event. Host events (up to TRACE_RUNTIME) have a thread, device events (from TRACE_KERNEL) a stream. On
 * the CPU a "kernel" has stream 0 and lies inside the primitive that it is. */
typedef struct {
    TraceKind kind;
    const char *name;   // trace_name(): of a kernel as the source tells it (demangled), else as written
    int64_t begin, end; // ns since the trace's origin
    int32_t thread;     // of the host, 0-based; -1 for device events
    int32_t stream;     // of the device, 0-based; -1 for host events
    /* Index of what encloses it, before this event in the list; -1: nothing. A device event's is the
     * innermost host event (but TRACE_RUNTIME) that was open when it was launched: what it served. */
    int64_t parent;
    int64_t launch;   // device events: index of the TRACE_RUNTIME that launched it; -1 where not known
    int64_t instance; // of operations and primitives: number of the call, what CUPTI's correlation carries

    /* What it belongs to; on device events inherited from the parent. */
    int64_t step; // number of the step; -1 outside
    Phase phase;
    bool host;             // of TRACE_SCOPE: the host works in it, or launches a graph
    bool own;              // of TRACE_SCOPE: a range of the program's user, none that fusebox itself opens
    int32_t layer;         // -1 outside the blocks
    const char *operation; // also of primitives: that they are part of; NULL: the three below mean nothing
    Pass pass;
    Form form;
    const char *call; // which call of the model: "attention.projection"
    Category category;
    Arithmetic arithmetic; // of primitives, and of their device events
    Traffic traffic;       // of operations
    const char *source;    // "kernels/norm/cuda_fused.cu:120", where it is implemented; NULL where not known
    const char *torch;     // of primitives: what PyTorch calls it, "aten::addmm"; NULL where it has no name
    bool torch_part;       // and it is a part of that operator's call, not all of it
    const char *shapes, *strides; // of what it reads, "[[4, 64, 64], [192, 64]]"; NULL where not known

    Work work;          // of operations: the least that the contract demands
    KernelShape kernel; // of TRACE_KERNEL
    int64_t launches;   // of TRACE_KERNEL: how many it stands for; more than 1 only in records_trace()
    int64_t queued;     // of TRACE_KERNEL: when it entered the command buffer; ns, 0 where not known
    int64_t submitted;  // and when that was handed to the device
    CopyShape copy;     // of TRACE_COPY and TRACE_FILL

    /* Computed by trace_finish. */
    int64_t self;         // host events: ns in no child of step, phase, scope, operation or primitive kind
    int64_t device_self;  // ns of the device events whose parent it is; of a device event its own length
    int64_t device_total; // the same with all that is below it
    int64_t device_count; // device events, all that are below it
} TraceEvent;

typedef enum {
    MEMORY_PARAMETERS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,
    MEMORY_SAVED,
    MEMORY_SCRATCH,
    MEMORY_CACHE,     // keys and values of generation
    MEMORY_WORKSPACE, // of libraries
    MEMORY_CLASS_COUNT
} MemoryClass;

/* From `at` on, the class holds `bytes`. */
typedef struct {
    int64_t at; // ns
    MemoryClass class_;
    int64_t bytes;
    int64_t event; // the host event that fills what was taken then, or else was open; -1
} TraceMemory;

/* A tensor that lay in memory when its class was fullest. */
typedef struct {
    const char *name; // "block.3.attention.lse"
    MemoryClass class_;
    int64_t bytes;
} TraceTensor;

/* The checks whose figures a bundle holds as well. */
#define CHECK_PHASES   "phases sum to the step within 1%"
#define CHECK_COVERED  "at least 98% of the step is attributed"
#define CHECK_LIMITS   "no operation above the machine's limit"
#define CHECK_OVERHEAD "tracing costs under 10% of the step"

/* A check of the report by itself: it passes where `found` is at most `allowed`. */
typedef struct {
    const char *name; // "records = launches"
    bool passed;
    double found, allowed;
    const char *detail; // one line with the figures
} TraceFinding;

typedef enum { SOURCE_CUPTI, SOURCE_EVENTS, SOURCE_CLOCK } TraceSource;

/* What a run knew of itself after a step. */
typedef struct {
    int64_t step;
    double loss, top1, top5; // shares, of a class task; else NAN
} TraceValidation;

typedef struct {
    TraceSource source;
    const char *source_note; // why not a better one, or how it is used; "". "nsys holds CUPTI", ...
    bool graphs;             // steps are launched as graphs
    bool apart;              // the device rested before each primitive: a step's length means nothing
    const char *device, *library, *host;
    const char *command, *version, *date; // as it was started, of fusebox, and of the report in UTC
    const char *commit, *build;           // version.h
    const char *driver, *device_clocks, *host_clocks; // right after the recorded steps (profile/clocks.h); ""
    char **settings; // (settings_count) all options that may change a figure: "dtype=auto"; a trace's own
    int64_t settings_count;
    int32_t device_count;
    int64_t threads;                          // on the CPU
    Peaks measured, sheet;                    // limits; sheet all 0 where the device is not known
    const char *model, *dtype, *program;      // "train" or "infer"
    const char *step;                         // what a step is: "decoding step"; "": of training, or a pass
    const char *unit;                         // what a step has so many of: "tokens", "images"
    bool bf16_fast;                           // products of bf16 are faster here than those of fp32
    int64_t batch, seq, accum;                // of a step; seq is the longest where lengths differ
    int64_t layers, heads, width, parameters; // of the model
    int64_t first_step, steps;                // recorded
    const char *window;                       // "skip 3, ready 2, record 5, segment 1 of 2"
    const TraceValidation *validations;       // (validation_count) so far
    int64_t validation_count;
    /* Of the same steps, but taken with tracing off; ms, in order. Then with tracing on, for the overhead. */
    double *step_ms, *traced_ms;
    int64_t step_count, traced_count;
    double *reader_ms;                   // (step_count) of it waited for the reader
    double *step_tokens, *traced_tokens; // (step_count), (traced_count); NULL: each batch * seq * accum
    /* Of the untraced pass: this process's time on all processors over the time that passed, at most their
     * number; how busy all are, and the GPU, 0 to 1. -1: not known. */
    double process_cpu, system_cpu, gpu_busy;
    double cores_waited; // cores.h; of the steps with tracing on and off
    int64_t launches;    // kernels launched in the window, counted apart from the records; -1: not counted
    int64_t dropped;     // records
    double counters[4]; // cycles, instructions, cache misses, branch misses of the recorded steps; -1 unknown
    const char *counters_note; // why one is unknown; ""
    int64_t rank, ranks;       // whose it is, of how many: 0 of 1
    const char *engine;        // that moves what the ranks exchange: "NCCL 2.28.9"; "": one rank
    int64_t origin;            // ns of the host's clock at which the events' times are 0
    double clock_ahead;        // of another rank: what was taken off to be on rank 0's clock; ns
    double clock_within;       // and how wrong that may be
} TraceRun;

typedef struct Trace {
    TraceRun run;
    TraceEvent *events; // a parent before its children; host events of one thread in the order of `begin`
    int64_t count;
    TraceMemory *memory; // in the order of `at`
    int64_t memory_count;
    TraceTensor *tensors; // of all classes, largest first
    int64_t tensor_count;
    TraceFinding *findings;
    int64_t finding_count;
    struct Trace **others; // (other_count) of the other ranks in order, on this one's clock; rank 0's alone
    int32_t other_count;
    struct TraceStore *store; // names and room; the trace's own
} Trace;

/* An empty trace: nothing known, source CPU clock. */
Trace *trace_open(void);
void trace_close(Trace *trace);

/* A copy of `text` that lives as long as the trace, the same pointer for the same text. NULL stays NULL. */
const char *trace_name(Trace *trace, const char *text);

/* Names by number: that of a name of the trace's, -1 of NULL; and back, NULL where there is none. */
int64_t trace_name_number(const Trace *trace, const char *name);
int64_t trace_name_room(const Trace *trace); // numbers are less
const char *trace_name_numbered(const Trace *trace, int64_t number);

/* An event with nothing but a kind and a name: parent, launch, thread, stream, step, layer -1. */
TraceEvent trace_event(Trace *trace, TraceKind kind, const char *name);

int64_t trace_add(Trace *trace, const TraceEvent *event); // its index
void trace_add_memory(Trace *trace, TraceMemory memory);
void trace_add_tensor(Trace *trace, TraceTensor tensor);
void trace_add_finding(Trace *trace, const char *name, double found, double allowed, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void trace_set_times(Trace *trace, const double *step_ms, const double *reader_ms, int64_t steps,
                     const double *traced_ms, int64_t traced); // copies; reader_ms may be NULL
/* How many tokens each of those steps had, `steps` and `traced` of them; copies. */
void trace_set_tokens(Trace *trace, const double *step_tokens, const double *traced_tokens);

/* Keeps copies of the texts. */
void trace_set_settings(Trace *trace, char *const *settings, int64_t count);

/* The limits that shares are of: those that were measured, else the data sheet's; and those that nothing
 * passes: the data sheet's, since what was measured is less than the machine can do, else those that were
 * measured. Unknown where both are. */
const Peaks *trace_limits(const TraceRun *run);
const Peaks *trace_utmost(const TraceRun *run);

/* Tokens of the i-th untraced step, or recorded one. */
double trace_step_tokens(const TraceRun *run, int64_t i);
const char *trace_unit(const TraceRun *run); // "tokens" where it says nothing
double trace_traced_tokens(const TraceRun *run, int64_t i);

/* Lets device events inherit from their parents and computes self and device times; sorts memory and tensors.
 * ERROR_INTERNAL for events that cannot be: a parent that does not come before, an end before its begin. */
CHECKED Status trace_finish(Trace *trace);

/* The nearest of `kind` from the event upwards, itself included; -1: none. */
int64_t trace_above(const Trace *trace, int64_t event, TraceKind kind);

/* Wall time of the recorded steps, and time on the device in them; ns. */
double trace_steps_ns(const Trace *trace);
double trace_device_ns(const Trace *trace);

/* What things are called in reports. The naive path's primitives as PyTorch calls them, in its columns'
 * order; kernels with all that the source tells, parameters and namespaces too. */
enum { NAMES_PLAIN = 0, NAMES_TORCH = 1, NAMES_FULL = 2 };

/* The words of reports. */
const char *trace_kind_name(TraceKind kind);
const char *copy_name(CopyDirection direction); // "host to device"
const char *host_memory_name(HostMemory host);  // "pinned"; "-" where not known
const char *memory_class_name(MemoryClass class_);
const char *source_name(TraceSource source); // "CUPTI activity records", "CUDA events", "CPU clock"

/* "attention forward"; "-" outside operations. */
enum { LABEL_BYTES = 160 };
void operation_label(const TraceEvent *event, char text[LABEL_BYTES]);

/* Whether the event lies in a recorded step; what does not is in no table. */
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
