/* cpu: the CPU as a device, for the products that cache their plans with it. */
#pragma once

#include "kernels/device/device.h"
#include "kernels/device/onednn.h"

typedef struct {
    Device base;    // first, so that a Device * is a CpuDevice *
    Onednn *onednn; // NULL if unavailable
    /* Data that a library above caches with this device (gemm's plans), and the function that frees it. */
    void *plans;
    void (*free_plans)(void *plans);
} CpuDevice;

Status cpu_fill(Device *device, void *memory, int byte, size_t bytes) CHECKED;
Status cpu_stream(Device *device, Stream how, void *memory, size_t bytes, int64_t times) CHECKED;
/* Bytes that so many threads have of this level; 0 where that is not known. */
size_t cpu_cache_bytes(size_t level, size_t threads);

/* Whether a library that does not look would get so much memory. */
bool cpu_has_room(size_t bytes);
