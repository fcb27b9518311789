/* device: where tensors live and kernels run. One interface over the CPU (cpu.c) and one CUDA GPU (cuda.cu):
 * memory, copies, the stream's order, events, ranges for outside profilers. All work of a device runs in one
 * stream, in order. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

typedef enum { BACKEND_CPU, BACKEND_CUDA, BACKEND_COUNT } Backend;

typedef struct Device Device;
typedef struct Event Event; // a point in the device's stream
typedef struct Graph Graph; // captured work

/* How memory is passed over: a copy reads its first half and writes the second. */
typedef enum { STREAM_READ, STREAM_WRITE, STREAM_COPY, STREAM_COUNT } Stream;

enum { DEVICE_CACHES = 2 }; // L2 and L3

/* What one multiprocessor of a GPU holds at most: what a kernel's occupancy is a share of. */
typedef struct {
    int warps, blocks, registers;
    size_t shared, shared_reserved; // bytes; reserved: of each block, besides its own
} MultiprocessorLimits;

struct Device {
    Backend backend;
    char name[128];   // "NVIDIA H200", "AMD EPYC 9B45, 2 threads"
    char library[96]; // what computes the products: "cuBLASLt 13.1.0", "OpenBLAS 0.3.21 (SkylakeX)"
    size_t memory;    // bytes in all
    int threads;      // of a parallel region on the CPU; 0 on a GPU
    /* Kernels launched so far (a library's product counts as one); on the CPU, primitives run. */
    int64_t launches;
    size_t workspace;             // bytes that libraries and kernels keep beside the arenas
    MultiprocessorLimits limits;  // zero on the CPU
    size_t caches[DEVICE_CACHES]; // bytes of L2 and L3 that its threads have; 0: none, or not known

    /* The three allocators; ERROR_MEMORY when it does not suffice. `allocate` is for arenas, `pinned` for
     * host buffers that are copied from and to. Contents are undefined. */
    Status (*allocate)(Device *device, size_t bytes, void **memory) CHECKED;
    void (*release)(Device *device, void *memory);
    Status (*pinned)(Device *device, size_t bytes, void **memory) CHECKED;
    void (*release_pinned)(Device *device, void *memory);
    Status (*available)(Device *device, size_t *bytes) CHECKED;

    /* In stream order. upload returns once `host` may be reused when it is pageable; a pinned `host` must
     * stay until the copy is over. download waits until the bytes are there. */
    Status (*fill)(Device *device, void *memory, int byte, size_t bytes) CHECKED;
    Status (*upload)(Device *device, void *memory, const void *host, size_t bytes) CHECKED;
    Status (*download)(Device *device, void *host, const void *memory, size_t bytes) CHECKED;
    Status (*copy)(Device *device, void *to, const void *from, size_t bytes) CHECKED;

    /* Passes over the memory so many times, each thread over its own part: how fast that is at most. NULL on a
     * device that tells by `copy`. */
    Status (*stream)(Device *device, Stream how, void *memory, size_t bytes, int64_t times) CHECKED;

    /* Waits for everything; reports an error that any earlier kernel raised. */
    Status (*synchronize)(Device *device) CHECKED;
    /* An error of the launches so far that is known without waiting. */
    Status (*launched)(Device *device) CHECKED;

    /* Timing: an event is a CUDA event, or a reading of the monotonic clock. elapsed waits for `end`. */
    Status (*event_create)(Device *device, Event **event) CHECKED;
    void (*event_free)(Device *device, Event *event);
    Status (*event_record)(Device *device, Event *event) CHECKED;
    Status (*event_wait)(Device *device, Event *event) CHECKED; // the host waits until it is over
    Status (*elapsed)(Device *device, Event *start, Event *end, double *milliseconds) CHECKED;

    /* Captured work; all five NULL on a device that has no graphs (the CPU). Between capture_begin and
     * capture_end what this thread puts into the stream is noted and not done: kernels, device copies and
     * fills with their addresses and arguments, but nothing that waits, allocates, or copies from or to the
     * host. graph_launch puts all of it into the stream, as often as wanted. capture_end must follow every
     * capture_begin, also where noting failed, and gives NULL then, and an error. A launch counts as the
     * launches in the graph, of which graph_kernels are kernels. */
    Status (*capture_begin)(Device *device) CHECKED;
    Status (*capture_end)(Device *device, Graph **graph) CHECKED;
    Status (*graph_launch)(Device *device, Graph *graph) CHECKED;
    int64_t (*graph_kernels)(const Graph *graph);
    void (*graph_free)(Device *device, Graph *graph);

    /* NVTX ranges in fusebox's domain; `name` must stay valid for the device's life (names are registered
     * once). */
    void (*range_push)(Device *device, const char *name);
    void (*range_pop)(Device *device);

    /* Tells outside profilers that what follows is to be recorded, or no longer (cudaProfilerStart, Stop). */
    void (*outside_profiler)(Device *device, bool record);

    /* For the wrapper around fill, upload, download and copy (profile/watch.c). */
    void *watcher;

    void (*close)(Device *device);
};

/* Opens the CPU with `threads` threads (0: what OpenMP says). */
CHECKED Status device_open_cpu(int threads, Device **device);

/* Opens CUDA device `index`. ERROR_DEVICE when there is no driver, no such GPU, or the kernels do not run on
 * it. A weak symbol: NULL in a build without CUDA. */
__attribute__((weak)) CHECKED Status device_open_cuda(int index, Device **device);

/* choice: "cpu", "cuda", "cuda:N", or "auto" (a GPU that works, else the CPU). `threads` is for the CPU,
 * 0: all. ERROR_USAGE for anything else. */
CHECKED Status device_open(const char *choice, int threads, Device **device);

/* Seconds of the monotonic clock. */
double device_clock(void);

/* The host's processor, as it calls itself: "AMD EPYC 9B45"; "" where it does not. */
enum { PROCESSOR_BYTES = 96 };
void device_processor(char name[PROCESSOR_BYTES]);

/* Waits until the device has nothing to do, and then that long: what runs next finds it cool, and all of its
 * power. */
CHECKED Status device_rest(Device *device, int milliseconds);

__END_DECLS
