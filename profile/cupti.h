/* cupti: what CUDA's own profiling interface records of kernels, copies, fills and calls. Opened at run time:
 * a machine without libcupti, or where another profiler holds it, still runs. */
#pragma once

#include "report/trace.h"

/* One activity. Times are device_clock()'s, in ns. */
typedef struct {
    TraceKind kind;     // TRACE_RUNTIME, TRACE_KERNEL, TRACE_COPY, TRACE_FILL
    const char *name;   // of a kernel mangled; valid until cupti_close
    int64_t begin, end; // what waited on the device for the one ahead on its stream begins at that one's end
    uint32_t correlation;   // what was launched and the call that launched it bear the same
    int64_t thread, stream; // the system's numbers
    uint64_t node;          // of a graph, whose it was; 0: launched by itself
    int64_t queued; // of kernels: into the command buffer, and that handed to the device; 0: not known
    int64_t submitted;
    bool driver;  // of a call: of the driver's interface, not of the runtime's
    int64_t mark; // what `mark` said last when it was called, launched, or noted in its graph; -1: nothing
    KernelShape kernel; // all but the occupancy
    CopyShape copy;
} Activity;

typedef struct {
    const Activity *activities; // valid until the next start
    int64_t count;
    int64_t launches; // kernel launches that CUPTI called us back for, however many records came
    int64_t dropped;  // records that CUPTI had no room for
} Activities;

typedef struct Cupti Cupti;

struct Cupti {
    /* Nothing may run on the device at either. Started again, it only forgets what was recorded: switching on
     * costs the first step milliseconds. */
    Status (*start)(Cupti *cupti) CHECKED;
    Status (*stop)(Cupti *cupti, Activities *activities) CHECKED;
    void (*mark)(void *cupti, int64_t mark); // nests; of the calling thread
    void (*unmark)(void *cupti);
    /* As RecorderOptions has them (kernels/record.h): marks count on from the capture's `record`, so a node
     * that was noted under record + 3 is marked replay's record + 3. */
    void (*capture)(void *cupti, int64_t record);
    void (*replay)(void *cupti, int64_t record, int64_t kernels);
    void (*close)(Cupti *cupti);
};

/* Asks for kernels' times on their way to the device. CUDA must not have been initialized. A weak symbol. */
__attribute__((weak)) void cupti_prepare_latency(void);

/* ERROR_DEVICE with the reason, for people, where CUPTI cannot be used: there is no such library, or somebody
 * else holds it, who is then named. At most one may be open. With `graphs`, capture and replay may be called.
 * A weak symbol: NULL in a build without CUPTI's headers. */
__attribute__((weak)) CHECKED Status cupti_open(bool graphs, Cupti **cupti);
