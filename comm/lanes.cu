#include "comm/lanes.h"

#include "base/memory.h"
#include "comm/rendezvous.h"
#include "kernels/device/cuda.cuh"

#include <stdio.h>
#include <string.h>

static cudaStream_t stream_of(const Lanes *lanes, Lane lane) {
    return static_cast<cudaStream_t>(lanes->streams[lane]);
}

static Status describe(const CudaDevice *cuda, Lanes *lanes) {
    cudaDeviceProp properties;
    CUDA_TRY(cudaGetDeviceProperties(&properties, cuda->index));
    int length = snprintf(lanes->gpu, sizeof lanes->gpu, "GPU-");
    for (int i = 0; i < 16; i++) {
        const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        length += snprintf(lanes->gpu + length, sizeof lanes->gpu - (size_t)length, "%s%02x", dash ? "-" : "",
                           (unsigned char)properties.uuid.bytes[i]);
    }
    return OK;
}

/* The side stream has the higher priority, because other ranks wait for its work. */
Status lanes_open(Device *device, Lanes *lanes) {
    CudaDevice *cuda = reinterpret_cast<CudaDevice *>(device);
    int least, greatest;
    cudaStream_t side;
    *lanes = Lanes{};
    CUDA_TRY(cudaSetDevice(cuda->index));
    TRY(describe(cuda, lanes));
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&side, cudaStreamNonBlocking, greatest));
    lanes->streams[LANE_MAIN] = cuda->stream;
    lanes->streams[LANE_SIDE] = side;
    return OK;
}

void lanes_close(Lanes *lanes) {
    if (!lanes->streams[LANE_SIDE]) return;
    (void)cudaStreamSynchronize(stream_of(lanes, LANE_SIDE));
    (void)cudaStreamDestroy(stream_of(lanes, LANE_SIDE));
    *lanes = Lanes{};
}

Status lanes_record(Lanes *lanes, Lane lane, Event *event) {
    CUDA_TRY(cudaEventRecord(reinterpret_cast<cudaEvent_t>(event), stream_of(lanes, lane)));
    return OK;
}

Status lanes_wait(Lanes *lanes, Lane lane, Event *event) {
    CUDA_TRY(cudaStreamWaitEvent(stream_of(lanes, lane), reinterpret_cast<cudaEvent_t>(event), 0));
    return OK;
}

/* Compares the UUIDs of all ranks' GPUs. */
Status lanes_distinct(const Lanes *lanes, Rendezvous *r) {
    typedef char Gpu[sizeof lanes->gpu];
    Gpu *all = (Gpu *)memory_array((size_t)r->size, sizeof *all);
    Status status = rendezvous_gather(r, lanes->gpu, sizeof lanes->gpu, all);
    for (int rank = 1; rank < r->size && !status; rank++) {
        for (int other = 0; other < rank && !status; other++) {
            if (memcmp(all[rank], all[other], sizeof *all) != 0) continue;
            status = fail(ERROR_USAGE, "ranks %d and %d on %s both have the GPU %.39s: each needs its own",
                          other, rank, r->hosts[rank], all[rank]);
        }
    }
    memory_free(all);
    return status;
}

int gpu_count(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
