/* cupti: CUDA's profiling interface, which records kernels, copies, fills and calls. The library is loaded at
 * run time: the program also runs without libcupti, or while another profiler uses it. */
#pragma once

#include "report/trace.h"

/* One activity. Times are device_clock()'s, in ns. */
typedef struct {
    TraceKind kind;       // TRACE_RUNTIME, TRACE_KERNEL, TRACE_COPY, TRACE_FILL
    const char *name;     // a kernel's name is mangled; valid until cupti_close
    int64_t begin, end;   // if a kernel waited on the device for the previous one on its stream, it begins at
                          // that one's end
    uint32_t correlation; // shared by a launch and the call that launched it
    int64_t thread, stream; // the system's numbers
    uint64_t node;          // the graph's node; 0: launched by itself
    int64_t queued; // kernels: when put into the command buffer, and when submitted to the device; 0: unknown
    int64_t submitted;
    bool driver;        // a call of the driver's interface, not of the runtime's
    int64_t mark;       // the `mark` in effect when the activity was called, launched, or captured in its
                        // graph; -1: none
    KernelShape kernel; // all but the occupancy
    CopyShape copy;
} Activity;

typedef struct {
    const Activity *activities; // valid until the next start
    int64_t count;
    int64_t launches; // kernel launches that CUPTI reported by callback, whether or not their records arrived
    int64_t dropped;  // records that CUPTI had no buffer for
} Activities;

typedef struct Cupti Cupti;

struct Cupti {
    /* Nothing may be running on the device when start or stop is called. If already started, start only
     * discards earlier records, because switching on costs the first step milliseconds. */
    Status (*start)(Cupti *cupti) CHECKED;
    Status (*stop)(Cupti *cupti, Activities *activities) CHECKED;
    void (*mark)(void *cupti, int64_t mark); // marks can be nested, per thread
    void (*unmark)(void *cupti);
    /* See RecorderOptions (kernels/record.h): marks count on from the capture's `record`, so a node captured
     * under record + 3 is marked with the replay's record + 3. */
    void (*capture)(void *cupti, int64_t record);
    void (*replay)(void *cupti, int64_t record, int64_t kernels);
    void (*close)(Cupti *cupti);
};

/* Requests kernels' submission times. CUDA must not have been initialized. A weak symbol. */
__attribute__((weak)) void cupti_prepare_latency(void);

/* ERROR_DEVICE, with a reason for the user, if CUPTI cannot be used: the library is missing, or another tool
 * holds it, which the message names. At most one may be open. `graphs` enables capture and replay. A weak
 * symbol: NULL in a build without CUPTI's headers. */
__attribute__((weak)) CHECKED Status cupti_open(bool graphs, Cupti **cupti);
