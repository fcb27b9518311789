/* device: an interface over the CPU (cpu.c) and one CUDA GPU (cuda.cu): memory, copies, events, graphs,
 * and ranges for external profilers. All work of a device runs in one stream, in order. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

typedef enum { BACKEND_CPU, BACKEND_CUDA, BACKEND_COUNT } Backend;

typedef struct Device Device;
typedef struct Event Event; // a point in the device's stream
typedef struct Graph Graph; // a captured graph

/* Access patterns of `stream`: a copy reads the first half of the memory and writes the second. */
typedef enum { STREAM_READ, STREAM_WRITE, STREAM_COPY, STREAM_COUNT } Stream;

enum { DEVICE_CACHES = 2 }; // L2 and L3

/* Limits of a GPU's multiprocessor, from which a kernel's occupancy is computed. */
typedef struct {
    int warps, blocks, registers;
    size_t shared, shared_reserved; // bytes; reserved: per block, in addition to its own
} MultiprocessorLimits;

struct Device {
    Backend backend;
    char name[128];   // "NVIDIA H200", "AMD EPYC 9B45, 2 threads"
    char library[96]; // the matrix library: "cuBLASLt 13.1.0", "OpenBLAS 0.3.21 (SkylakeX)"
    char bus[32];     // a GPU's PCI address, "00000000:0F:00.0"; "" on the CPU
    size_t memory;    // total bytes
    int threads;      // threads per parallel region on the CPU; 0 on a GPU
    /* Kernels launched so far (a library's product counts as one); on the CPU, primitives. */
    int64_t launches;
    size_t workspace;             // bytes that libraries and kernels use outside the arenas
    MultiprocessorLimits limits;  // zero on the CPU
    size_t caches[DEVICE_CACHES]; // bytes of L2 and L3 available to the device's threads; 0: none, or unknown

    /* Allocators; ERROR_MEMORY if memory does not suffice. `allocate` is for arenas, `pinned` for host
     * buffers of copies. Contents are undefined. */
    Status (*allocate)(Device *device, size_t bytes, void **memory) CHECKED;
    void (*release)(Device *device, void *memory);
    Status (*pinned)(Device *device, size_t bytes, void **memory) CHECKED;
    void (*release_pinned)(Device *device, void *memory);
    Status (*available)(Device *device, size_t *bytes) CHECKED; // that a plan may take

    /* In stream order. upload returns when a pageable `host` may be reused; a pinned `host` must stay
     * until the copy has completed. download waits for the bytes. */
    Status (*fill)(Device *device, void *memory, int byte, size_t bytes) CHECKED;
    Status (*upload)(Device *device, void *memory, const void *host, size_t bytes) CHECKED;
    Status (*download)(Device *device, void *host, const void *memory, size_t bytes) CHECKED;
    Status (*copy)(Device *device, void *to, const void *from, size_t bytes) CHECKED;

    /* Accesses the memory `passes` times, each thread its own part, to measure the peak rate. NULL on a
     * device that uses `copy` for that. */
    Status (*stream)(Device *device, Stream how, void *memory, size_t bytes, int64_t times) CHECKED;

    /* Waits for everything; reports an error that any earlier kernel raised. */
    Status (*synchronize)(Device *device) CHECKED;
    /* Reports errors of launches without waiting. */
    Status (*launched)(Device *device) CHECKED;

    /* An event is a CUDA event, or a reading of the monotonic clock. elapsed waits for `end`. */
    Status (*event_create)(Device *device, Event **event) CHECKED;
    void (*event_free)(Device *device, Event *event);
    Status (*event_record)(Device *device, Event *event) CHECKED;
    Status (*event_wait)(Device *device, Event *event) CHECKED; // the host waits for the event
    Status (*elapsed)(Device *device, Event *start, Event *end, double *milliseconds) CHECKED;

    /* Graphs; all five are NULL on a device without them (the CPU). Between capture_begin and capture_end,
     * this thread's kernels, device copies and fills are captured with their arguments instead of
     * executed. Waiting, allocation and copies from or to the host are not allowed. graph_launch enqueues
     * the graph, any number of times. capture_end must follow every capture_begin; after a failed capture
     * it returns NULL and an error. A launch counts as the graph's launches, of which graph_kernels are
     * kernels. */
    Status (*capture_begin)(Device *device) CHECKED;
    Status (*capture_end)(Device *device, Graph **graph) CHECKED;
    Status (*graph_launch)(Device *device, Graph *graph) CHECKED;
    int64_t (*graph_kernels)(const Graph *graph);
    void (*graph_free)(Device *device, Graph *graph);

    /* NVTX ranges in fusebox's domain. `name` must stay valid as long as the device, because names are
     * registered once. */
    void (*range_push)(Device *device, const char *name);
    void (*range_pop)(Device *device);

    /* Starts or stops recording by external profilers (cudaProfilerStart, Stop). */
    void (*outside_profiler)(Device *device, bool record);

    // state of the wrapper around fill, upload, download and copy (profile/watch.c)
    void *watcher;

    void (*close)(Device *device);
};

/* Opens the CPU with `threads` threads (0: OpenMP's default). */
CHECKED Status device_open_cpu(int threads, Device **device);

/* Opens CUDA device `index`. ERROR_DEVICE without a driver or such a GPU, or if the kernels do not run on
 * it. A weak symbol: NULL in a build without CUDA. */
__attribute__((weak)) CHECKED Status device_open_cuda(int index, Device **device);

/* choice: "cpu", "cuda", "cuda:N", or "auto" (a working GPU, else the CPU); else ERROR_USAGE. `threads` is
 * for the CPU, 0: all. */
CHECKED Status device_open(const char *choice, int threads, Device **device);

/* Monotonic clock, in seconds. */
double device_clock(void);

/* The processor's name: "AMD EPYC 9B45"; "" if unknown. */
enum { PROCESSOR_BYTES = 96 };
void device_processor(char name[PROCESSOR_BYTES]);

/* Waits until the device is idle, then `milliseconds` longer, so that the next work starts with a cool
 * device and its full power. */
CHECKED Status device_rest(Device *device, int milliseconds);

__END_DECLS
