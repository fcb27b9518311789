/* lanes: the two streams of a GPU in which the nccl and peer engines enqueue collectives. All symbols are
 * weak: NULL in a build without CUDA. */
#pragma once

#include "comm/comm.h"

__BEGIN_DECLS

typedef struct {
    void *streams[LANE_COUNT]; // cudaStream_t; the first is the device's own
    char gpu[40];              // UUID of the GPU or of the MIG instance, "GPU-..."
} Lanes;

/* `device` must be a CUDA device. ERROR_DEVICE. lanes_close waits until the side stream is empty. */
__attribute__((weak)) CHECKED Status lanes_open(Device *device, Lanes *lanes);
__attribute__((weak)) void lanes_close(Lanes *lanes);

__attribute__((weak)) CHECKED Status lanes_record(Lanes *lanes, Lane lane, Event *event);
__attribute__((weak)) CHECKED Status lanes_wait(Lanes *lanes, Lane lane, Event *event);

/* Collective: ERROR_USAGE if two ranks have one GPU; the message names both. */
__attribute__((weak)) CHECKED Status lanes_distinct(const Lanes *lanes, struct Rendezvous *rendezvous);

/* The number of GPUs that this process can use. Initializes CUDA. */
__attribute__((weak)) int gpu_count(void);

__END_DECLS
