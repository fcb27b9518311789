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

/* Whether `bytes` can be allocated, for libraries that do not check. */
bool cpu_has_room(size_t bytes);
