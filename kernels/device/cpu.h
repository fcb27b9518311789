/* cpu: the CPU as a device, for the products that cache their plans with it. */
#pragma once

#include "kernels/device/device.h"
#include "kernels/device/onednn.h"

typedef struct {
    Device base;    // first, so that a Device * is a CpuDevice *
    Onednn *onednn; // NULL if unavailable
    /* Data that a library on a higher floor caches with this device (gemm's plans), and the function that
     * frees it. */
    void *plans;
    void (*free_plans)(void *plans);
    void *blocks; // of products that convert their operands (gemm/cpu_blas.c), and their size
    size_t blocks_bytes;
} CpuDevice;

/* From now on this many threads work, at most as many as the device was opened with. A product of oneDNN keeps
 * the number with which it was first called. */
void cpu_use_threads(Device *device, int threads);

Status cpu_fill(Device *device, void *memory, int byte, size_t bytes) CHECKED;
Status cpu_stream(Device *device, Stream how, void *memory, size_t bytes, int64_t times) CHECKED;
/* Bytes of this cache level available to `threads` threads; 0 if unknown. */
size_t cpu_cache_bytes(size_t level, size_t threads);

/* Whether this much memory is available, for libraries that do not check their own allocations. */
bool cpu_has_room(size_t bytes);
