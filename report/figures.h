/* figures: a trace folded into operations, kernels and phases, each as a mean over the recorded steps. Files,
 * tables, questions and the audit all read these; times are device times. Computed by the runtime
 * (profile/fold.h). */
#pragma once

#include "base/stats.h"
#include "report/trace.h"

/* Something that ran inside an operation: a primitive, or a kernel outside any primitive. Per step. */
typedef struct {
    const char *name;
    Category category;
    Arithmetic arithmetic;
    double ns, median, low, high; // of the primitive's device events: mean, median, minimum and maximum over
                                  // the steps
    double calls, launches;
    bool primitive;  // otherwise a kernel outside any primitive
    double *step_ns; // (steps)
} InsideRow;

/* One call of the model in one pass, summed over layers. Its identity is call, operation and pass. Per
 * step. */
typedef struct {
    const char *call;
    const char *source; // "kernels/norm/cuda_fused.cu:120"; NULL if unknown
    const char *operation;
    Pass pass;
    Form form;
    Category category;
    double ns, median, low, high; // of the operation's device events: mean, median, minimum and maximum over
                                  // the steps
    double spread;                // interquartile range over the steps
    double host_ns;               // time between begin and end on the host
    double calls, launches;
    Work work;             // the minimum that the contract requires
    double share_of_limit; // limit_share of `ns` at trace_limits
    const char *limit;     // limit_name at trace_limits
    int64_t memory;        // bytes that a call allocates at once, the maximum over all calls
    InsideRow *inside;
    int64_t inside_count, inside_room;
    double *step_ns; // (steps)
} OperationRow;

/* Device time and number of launches, per step. */
typedef struct {
    double ns, calls;
} KernelUse;

/* An operation and pass that launched a kernel; ns over all steps. */
typedef struct {
    const char *operation;
    Pass pass;
    double ns;
} KernelServed;

/* A kernel, a copy or a fill, by name. */
typedef struct {
    const char *name;
    char *label, *decoded; // owned by the row: kernel_label, kernel_decode
    TraceKind kind;
    Category category; // category of the operation that launched the kernel most recently; CATEGORY_OTHER
                       // outside operations
    const char *call;  // the call that launched it, or "several"; NULL outside operations
    KernelUse in[PASS_COUNT];
    Stats times, queued;       // ns of each event; and from the launching call to its begin, if known
    const TraceEvent *longest; // the longest event of the row
    const char *shapes;        // input shapes of the longest event's operation; NULL if unknown
    const char *source;        // line that implements that operation; NULL if unknown
    KernelServed *served;
    int64_t served_count, served_room;
} KernelRow;

/* A phase of the step on the device. It begins at the end of the previous phase, so waiting for its first
 * kernel belongs to it. The pass of an operation determines the phase: a gradient that the forward pass
 * computes is backward. Time before the first event of a step and after its last is in "others". */
typedef struct {
    double ns;
    double categories[CATEGORY_COUNT]; // time of device events; the rest of `ns` is waiting
} PhaseRow;

typedef struct {
    const Trace *trace;
    OperationRow *rows; // in the order of their first run
    int64_t row_count, row_room;
    KernelRow *kernels;
    int64_t kernel_count, kernel_room;
    PhaseRow phases[PHASE_COUNT];
    double events[CATEGORY_COUNT]; // device time, over all steps
    int64_t first_step, steps;
    double step_ns; // mean length of a recorded step, tracing on
    int64_t timed;  // steps with tracing off
    /* Median and range of those steps; of the recorded steps if there are none. */
    double step_ms, low, high, spread;
    double reader_ms;    // time waiting for the reader, mean
    double overhead;     // overhead of tracing: median with tracing over median without, minus 1; 0 if
                         // unknown
    bool overhead_noise; // these medians do not differ significantly (medians_differ)
    double covered;      // share of a recorded step, median: operations' spans, waits for the reader, copies,
                         // sampling, and gaps of at most 10 us between these
    double device_ns, launches; // all device events: time and launches per step
    double tokens;              // mean tokens of the steps that step_ms refers to
    int64_t peak_bytes;         // peak of all classes together, and the share of each class at that moment
    int64_t peak_classes[MEMORY_CLASS_COUNT];
    int64_t own_peaks[MEMORY_CLASS_COUNT]; // peak of each class alone
    int64_t peak_at;                       // ns since the first recorded step began
} Figures;

/* The row with this identity; NULL: none. `call` is compared as text, so it may belong to another trace. */
const OperationRow *figures_find(const Figures *figures, const char *call, const char *operation, Pass pass);

/* The row with a device event's name and kind; -1: none. */
int64_t figures_kernel(const Figures *figures, const TraceEvent *event);

/* Device time of a pass; PASS_COUNT: of all passes. Per step. */
double figures_pass_ns(const Figures *figures, Pass pass);

/* The phase of a device event. */
Phase figures_phase(const TraceEvent *event);

/* The largest relative difference between the paths' outputs of one operation and pass: ||a - b|| / ||a||. */
typedef struct {
    const char *call, *operation;
    Pass pass;
    double difference;
} Difference;

/* The difference with this identity, with `call` compared as text; NULL: none. */
const Difference *difference_find(const Difference *differences, int64_t count, const char *call,
                                  const char *operation, Pass pass);
