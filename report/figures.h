/* figures: a trace folded into what reports speak of: operations, kernels, phases, each as a mean over the
 * recorded steps. The files, the tables, the questions and the audit all read these; times are of the device.
 * The runtime makes them (profile/fold.h). */
#pragma once

#include "base/stats.h"
#include "report/trace.h"

/* What ran inside an operation: a primitive, or a kernel that no primitive marks. Per step. */
typedef struct {
    const char *name;
    Category category;
    Arithmetic arithmetic;
    double ns, median, low, high; // of its device events: mean, median, least and most of the steps
    double calls, launches;
    bool primitive;  // else a kernel that no primitive marks
    double *step_ns; // (steps)
} InsideRow;

/* One call of the model in one pass; layers are added up. Its identity is call, operation and pass. Per
 * step. */
typedef struct {
    const char *call;
    const char *source; // "kernels/norm/cuda_fused.cu:120"; NULL where not known
    const char *operation;
    Pass pass;
    Form form;
    Category category;
    double ns, median, low, high; // of its device events: mean, median, least and most of the steps
    double spread;                // from the first quartile of the steps to the third
    double host_ns;               // between its begin and its end on the host
    double calls, launches;
    Work work;             // the least that the contract demands
    double share_of_limit; // limit_share of `ns` at trace_limits
    const char *limit;     // limit_name at trace_limits
    int64_t memory;        // bytes that a call takes on top of what lay there before: the most of all
    InsideRow *inside;
    int64_t inside_count, inside_room;
    double *step_ns; // (steps)
} OperationRow;

/* Per step. */
typedef struct {
    double ns, calls;
} KernelUse;

/* An operation and pass that a kernel served; ns of all steps. */
typedef struct {
    const char *operation;
    Pass pass;
    double ns;
} KernelServed;

/* A kernel, a copy or a fill, by name. */
typedef struct {
    const char *name;
    char *label, *decoded; // the row's own: kernel_label, kernel_decode
    TraceKind kind;
    Category category; // of what it served most recently; CATEGORY_OTHER of a kernel outside operations
    const char *call;  // that it served, or "several"; NULL outside operations
    KernelUse in[PASS_COUNT];
    Stats times, queued; // ns of each event; and from the call that launched it to its begin, where known
    const TraceEvent *longest; // of its events
    const char *shapes;        // of what the longest one's operation reads; NULL where not known
    KernelServed *served;
    int64_t served_count, served_room;
} KernelRow;

/* A phase of the step on the device: from the end of what ran before it, so waiting for its first kernel
 * is its own. An operation's pass decides, where there is one: a gradient that the forward pass computes
 * is backward. To the others belongs what comes before the first event of a step and after its last. */
typedef struct {
    double ns;
    double categories[CATEGORY_COUNT]; // of device events; the rest of `ns` is waiting
} PhaseRow;

typedef struct {
    const Trace *trace;
    OperationRow *rows; // in the order in which they first ran
    int64_t row_count, row_room;
    KernelRow *kernels;
    int64_t kernel_count, kernel_room;
    PhaseRow phases[PHASE_COUNT];
    double events[CATEGORY_COUNT]; // of the device, of all steps
    int64_t first_step, steps;
    double step_ns; // a recorded step, tracing on
    int64_t timed;  // steps with tracing off
    /* Median and range of those; of the recorded steps where there are none. */
    double step_ms, low, high, spread;
    double reader_ms;    // of it waited for the reader, mean
    double overhead;     // of tracing: median with over median without, less 1; 0 where not known
    bool overhead_noise; // these medians differ by no more than chance lets them (medians_differ)
    double covered_ns; // of step_ns lies in an operation's span, a reader's wait, a copy or a token's drawing
    double device_ns, launches; // of all device events; per step
    double tokens;              // of a step whose time step_ms is, in the mean
    int64_t peak_bytes;         // of all classes together, and then the share of each
    int64_t peak_classes[MEMORY_CLASS_COUNT];
    int64_t own_peaks[MEMORY_CLASS_COUNT]; // of each class by itself
    int64_t peak_at;                       // ns since the first recorded step began
} Figures;

/* The row of this identity; NULL: none. `call` is compared as text, so it may come from another trace. */
const OperationRow *figures_find(const Figures *figures, const char *call, const char *operation, Pass pass);

/* The row of a device event's name and kind; -1: none. */
int64_t figures_kernel(const Figures *figures, const TraceEvent *event);

/* Device time of a pass; PASS_COUNT: of all. Per step. */
double figures_pass_ns(const Figures *figures, Pass pass);

/* The phase in which a device event counts. */
Phase figures_phase(const TraceEvent *event);

/* The largest relative difference between the paths' outputs of one operation and pass: ||a - b|| / ||a||. */
typedef struct {
    const char *call, *operation;
    Pass pass;
    double difference;
} Difference;

/* That of this identity, by the text of `call`; NULL: none. */
const Difference *difference_find(const Difference *differences, int64_t count, const char *call,
                                  const char *operation, Pass pass);
