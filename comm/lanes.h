/* lanes: the two streams of a GPU that collectives can be put into, for the engines that do. All weak
 * symbols: NULL in a build without CUDA. */
#pragma once

#include "comm/comm.h"

__BEGIN_DECLS

typedef struct {
    void *streams[LANE_COUNT]; // cudaStream_t; the first is the device's own
    char gpu[40];              // its UUID, "GPU-..."; of a part of one, the part's
} Lanes;

/* `device` must be a CUDA one. ERROR_DEVICE. lanes_close waits until the second stream is empty. */
__attribute__((weak)) CHECKED Status lanes_open(Device *device, Lanes *lanes);
__attribute__((weak)) void lanes_close(Lanes *lanes);

__attribute__((weak)) CHECKED Status lanes_record(Lanes *lanes, Lane lane, Event *event);
__attribute__((weak)) CHECKED Status lanes_wait(Lanes *lanes, Lane lane, Event *event);

/* Collective: ERROR_USAGE where two ranks have one GPU; names both. */
__attribute__((weak)) CHECKED Status lanes_distinct(const Lanes *lanes, struct Rendezvous *rendezvous);

/* GPUs that this process can use. Starts CUDA. */
__attribute__((weak)) int gpu_count(void);

__END_DECLS
