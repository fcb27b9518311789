/* The CUDA backend of device.h: one GPU, one stream, cuBLASLt's handle and workspace. */
#include "kernels/device/cuda.cuh"

#include "base/memory.h"

#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

enum { WORKSPACE_BYTES = 64 * 1024 * 1024 };

Status cuda_status(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return OK;
    (void)cudaGetLastError(); // clears the error, so that it is not reported again
    if (error == cudaErrorMemoryAllocation) {
        return fail(ERROR_MEMORY, "%s: out of GPU memory; use a smaller batch or model", what);
    }
    return fail(ERROR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

static CudaDevice *cuda_of(Device *device) {
    return reinterpret_cast<CudaDevice *>(device);
}

/* ---- memory ---- */

static Status cuda_allocate(Device *device, size_t bytes, void **memory) {
    *memory = NULL;
    if (bytes == 0) return OK;
    CUDA_TRY(cudaSetDevice(cuda_of(device)->index));
    cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return fail(ERROR_MEMORY, "%s: not enough memory for %.2f GiB; use a smaller batch or model",
                    device->name, (double)bytes / (1 << 30));
    }
    return cuda_status(error, "cudaMalloc");
}

static void cuda_release(Device *, void *memory) {
    (void)cudaFree(memory);
}

static Status cuda_pinned(Device *device, size_t bytes, void **memory) {
    *memory = NULL;
    if (bytes == 0) return OK;
    CUDA_TRY(cudaSetDevice(cuda_of(device)->index));
    cudaError_t error = cudaMallocHost(memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return fail(ERROR_MEMORY, "not enough memory for %.2f GiB of pinned host memory",
                    (double)bytes / (1 << 30));
    }
    return cuda_status(error, "cudaMallocHost");
}

static void cuda_release_pinned(Device *, void *memory) {
    (void)cudaFreeHost(memory);
}

/* Bytes that no plan may take: CUDA loads a kernel's code at its first launch, and libraries allocate their
 * workspaces at their first call. */
enum { LOADED_LATER = 512 << 20 };

static Status cuda_available(Device *, size_t *bytes) {
    size_t all, left;
    CUDA_TRY(cudaMemGetInfo(&left, &all));
    *bytes = left > LOADED_LATER ? left - LOADED_LATER : 0;
    return OK;
}

static Status cuda_fill(Device *device, void *memory, int byte, size_t bytes) {
    if (bytes == 0) return OK;
    CUDA_TRY(cudaMemsetAsync(memory, byte, bytes, cuda_of(device)->stream));
    return OK;
}

static Status cuda_upload(Device *device, void *memory, const void *host, size_t bytes) {
    if (bytes == 0) return OK; // pageable memory is staged before the call returns
    CUDA_TRY(cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, cuda_of(device)->stream));
    return OK;
}

static Status cuda_download(Device *device, void *host, const void *memory, size_t bytes) {
    if (bytes == 0) return OK;
    CUDA_TRY(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, cuda_of(device)->stream));
    CUDA_TRY(cudaStreamSynchronize(cuda_of(device)->stream));
    return OK;
}

static Status cuda_copy(Device *device, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return OK;
    CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_of(device)->stream));
    return OK;
}

/* ---- order and time ---- */

/* Includes a communicator's stream. */
static Status cuda_synchronize(Device *) {
    CUDA_TRY(cudaDeviceSynchronize());
    return OK;
}

static Status cuda_launched(Device *) {
    return cuda_status(cudaGetLastError(), "an earlier launch");
}

static Status cuda_event_create(Device *, Event **event) {
    cudaEvent_t created;
    *event = NULL;
    CUDA_TRY(cudaEventCreate(&created));
    *event = reinterpret_cast<Event *>(created);
    return OK;
}

static void cuda_event_free(Device *, Event *event) {
    if (event) (void)cudaEventDestroy(reinterpret_cast<cudaEvent_t>(event));
}

static Status cuda_event_record(Device *device, Event *event) {
    CUDA_TRY(cudaEventRecord(reinterpret_cast<cudaEvent_t>(event), cuda_of(device)->stream));
    return OK;
}

static Status cuda_event_wait(Device *, Event *event) {
    CUDA_TRY(cudaEventSynchronize(reinterpret_cast<cudaEvent_t>(event)));
    return OK;
}

static Status cuda_elapsed(Device *, Event *start, Event *end, double *milliseconds) {
    float elapsed = 0;
    CUDA_TRY(cudaEventSynchronize(reinterpret_cast<cudaEvent_t>(end)));
    CUDA_TRY(cudaEventElapsedTime(&elapsed, reinterpret_cast<cudaEvent_t>(start),
                                  reinterpret_cast<cudaEvent_t>(end)));
    *milliseconds = elapsed;
    return OK;
}

/* ---- graphs ---- */

struct Graph {
    cudaGraphExec_t executable;
    int64_t launches, kernels;
};

/* Thread-local, so that other threads (the loader's pinned memory) do not break the capture. */
static Status cuda_capture_begin(Device *device) {
    CUDA_TRY(cudaStreamBeginCapture(cuda_of(device)->stream, cudaStreamCaptureModeThreadLocal));
    cuda_of(device)->before_capture = device->launches;
    return OK;
}

/* Counts the kernel nodes of a captured graph; libraries may have added fills. */
static Status count_kernels(cudaGraph_t captured, int64_t *kernels) {
    size_t count = 0;
    *kernels = 0;
    CUDA_TRY(cudaGraphGetNodes(captured, nullptr, &count));
    cudaGraphNode_t *nodes = (cudaGraphNode_t *)memory_array(count + 1, sizeof *nodes);
    Status status = cuda_status(cudaGraphGetNodes(captured, nodes, &count), "cudaGraphGetNodes");
    for (size_t i = 0; i < count && !status; i++) {
        cudaGraphNodeType type;
        status = cuda_status(cudaGraphNodeGetType(nodes[i], &type), "cudaGraphNodeGetType");
        *kernels += !status && type == cudaGraphNodeTypeKernel;
    }
    memory_free(nodes);
    return status;
}

static Status cuda_capture_end(Device *device, Graph **graph) {
    CudaDevice *cuda = cuda_of(device);
    const int64_t launches = device->launches - cuda->before_capture;
    device->launches = cuda->before_capture; // captured launches have not run
    *graph = NULL;
    cudaGraph_t captured = NULL;
    CUDA_TRY(cudaStreamEndCapture(cuda->stream, &captured));
    Graph *made = (Graph *)memory_allocate(sizeof *made);
    Status status = count_kernels(captured, &made->kernels);
    if (!status)
        status = cuda_status(cudaGraphInstantiate(&made->executable, captured, 0), "cudaGraphInstantiate");
    (void)cudaGraphDestroy(captured);
    if (status) {
        memory_free(made);
        return status;
    }
    made->launches = launches;
    *graph = made;
    return OK;
}

static Status cuda_graph_launch(Device *device, Graph *graph) {
    CUDA_TRY(cudaGraphLaunch(graph->executable, cuda_of(device)->stream));
    device->launches += graph->launches;
    return OK;
}

static int64_t cuda_graph_kernels(const Graph *graph) {
    return graph->kernels;
}

static void cuda_graph_free(Device *device, Graph *graph) {
    if (!graph) return;
    (void)cudaStreamSynchronize(cuda_of(device)->stream); // the graph may be running
    (void)cudaGraphExecDestroy(graph->executable);
    memory_free(graph);
}

/* ---- NVTX ranges: a table from a name's address to its registered string ---- */

struct RangeName {
    const char *name;
    nvtxStringHandle_t registered;
};

struct RangeNames {
    nvtxDomainHandle_t domain; // NULL without a profiler
    RangeName *slots;          // open addressing, a power of two, at most half full
    size_t count, room;
};

static RangeName *range_slot(RangeName *slots, size_t room, const char *name) {
    size_t i = ((uintptr_t)name * 0x9E3779B97F4A7C15ull >> 32) & (room - 1);
    while (slots[i].name && slots[i].name != name) i = (i + 1) & (room - 1);
    return &slots[i];
}

static void range_grow(RangeNames *names) {
    size_t room = names->room ? names->room * 2 : 64;
    RangeName *slots = (RangeName *)memory_array(room, sizeof *slots);
    for (size_t i = 0; i < names->room; i++) {
        if (names->slots[i].name) *range_slot(slots, room, names->slots[i].name) = names->slots[i];
    }
    memory_free(names->slots);
    names->slots = slots;
    names->room = room;
}

static void cuda_range_push(Device *device, const char *name) {
    RangeNames *names = cuda_of(device)->names;
    if (!names->domain) return;
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    if (names->count * 2 >= names->room) range_grow(names);
    RangeName *slot = range_slot(names->slots, names->room, name);
    if (!slot->name) {
        *slot = {name, nvtxDomainRegisterStringA(names->domain, name)};
        names->count++;
    }
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = slot->registered;
    nvtxDomainRangePushEx(names->domain, &attributes);
}

static void cuda_range_pop(Device *device) {
    RangeNames *names = cuda_of(device)->names;
    if (names->domain) nvtxDomainRangePop(names->domain);
}

static void cuda_outside_profiler(Device *, bool record) {
    (void)(record ? cudaProfilerStart() : cudaProfilerStop()); // failing without a profiler is no error
}

/* ---- opening and closing ---- */

static void cuda_close(Device *device) {
    if (!device) return;
    CudaDevice *cuda = cuda_of(device);
    if (cuda->stream) (void)cudaStreamSynchronize(cuda->stream);
    if (cuda->free_plans) cuda->free_plans(&cuda->cublaslt, cuda->plans);
    if (cuda->names) {
        if (cuda->names->domain) nvtxDomainDestroy(cuda->names->domain);
        memory_free(cuda->names->slots);
        memory_free(cuda->names);
    }
    if (cuda->workspace) (void)cudaFree(cuda->workspace);
    if (cuda->tickets) (void)cudaFree(cuda->tickets);
    if (cuda->blas) (void)cuda->cublaslt.Destroy(cuda->blas);
    if (cuda->stream) (void)cudaStreamDestroy(cuda->stream);
    memory_free(cuda);
}

/* Anatomy. Parallel: not at all. Launch: one thread. Holds: 4 registers, no shared memory. Occupancy: one
 * thread: its latency counts. Reads: nothing. Syncs: none. Fusion: nothing: it asks whether the device runs
 * this build. */
__global__ static void probe_kernel() {}

/* Anatomy. Parallel: not at all. Launch: one thread. Holds: 8 registers, no shared memory. Occupancy: one
 * thread: its latency counts. Reads: nothing. Syncs: none. Fusion: nothing: it asks what the device runs,
 * once. */
__global__ static void report_hopper(int *hopper) {
    *hopper = gpu::HOPPER;
}

/* Fills in the GPU's properties, and checks that it can run this binary's kernels. */
static Status cuda_describe(CudaDevice *device) {
    cudaDeviceProp properties;
    CUDA_TRY(cudaGetDeviceProperties(&properties, device->index));
    snprintf(device->base.name, sizeof device->base.name, "%.127s", properties.name);
    CUDA_TRY(cudaDeviceGetPCIBusId(device->base.bus, sizeof device->base.bus, device->index));
    device->base.memory = properties.totalGlobalMem;
    device->multiprocessors = properties.multiProcessorCount;
    device->capability = 10 * properties.major + properties.minor;
    device->shared_bytes = properties.sharedMemPerBlockOptin;
    device->l2_bytes = (size_t)properties.l2CacheSize;
    device->base.limits = {properties.maxThreadsPerMultiProcessor / properties.warpSize,
                           properties.maxBlocksPerMultiProcessor, properties.regsPerMultiprocessor,
                           properties.sharedMemPerMultiprocessor, properties.reservedSharedMemPerBlock};

    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
        error == cudaErrorUnsupportedPtxVersion) {
        (void)cudaGetLastError();
        return fail(
            ERROR_DEVICE,
            "this program holds no code for %s (sm_%d): rebuild it on that machine, or use --device=cpu",
            device->base.name, device->capability);
    }
    TRY(cuda_status(error, "cudaFuncGetAttributes"));
    device->early_launches = attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90;
    return OK;
}

/* Runs a kernel to learn for which architecture it was built. Overwrites the first ticket. */
static Status cuda_ask_hopper(CudaDevice *device) {
    int hopper;
    report_hopper<<<1, 1, 0, device->stream>>>(device->tickets);
    CUDA_TRY(cudaGetLastError());
    CUDA_TRY(
        cudaMemcpyAsync(&hopper, device->tickets, sizeof hopper, cudaMemcpyDeviceToHost, device->stream));
    CUDA_TRY(cudaStreamSynchronize(device->stream));
    device->hopper = hopper != 0;
    return OK;
}

static Status cuda_start(CudaDevice *device) {
    CUDA_TRY(cudaSetDevice(device->index));
    TRY(cuda_describe(device));
    CUDA_TRY(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    TRY(cublaslt_open(&device->cublaslt));
    CUBLAS_TRY(&device->cublaslt, Create(&device->blas));
    size_t version = device->cublaslt.GetVersion();
    snprintf(device->base.library, sizeof device->base.library, "cuBLASLt %zu.%zu.%zu", version / 10000,
             version / 100 % 100, version % 100);
    device->workspace_bytes = WORKSPACE_BYTES;
    device->base.workspace = WORKSPACE_BYTES + TICKETS * sizeof *device->tickets;
    CUDA_TRY(cudaMalloc(&device->workspace, device->workspace_bytes));
    CUDA_TRY(cudaMalloc(&device->tickets, TICKETS * sizeof *device->tickets));
    TRY(cuda_ask_hopper(device));
    CUDA_TRY(cudaMemsetAsync(device->tickets, 0, TICKETS * sizeof *device->tickets, device->stream));
    device->names = (RangeNames *)memory_allocate(sizeof *device->names);
    device->names->domain = nvtxDomainCreateA("fusebox");
    return OK;
}

static void cuda_fill_interface(Device *base) {
    base->backend = BACKEND_CUDA;
    base->allocate = cuda_allocate;
    base->release = cuda_release;
    base->pinned = cuda_pinned;
    base->release_pinned = cuda_release_pinned;
    base->available = cuda_available;
    base->fill = cuda_fill;
    base->upload = cuda_upload;
    base->download = cuda_download;
    base->copy = cuda_copy;
    base->synchronize = cuda_synchronize;
    base->launched = cuda_launched;
    base->event_create = cuda_event_create;
    base->event_free = cuda_event_free;
    base->event_record = cuda_event_record;
    base->event_wait = cuda_event_wait;
    base->elapsed = cuda_elapsed;
    base->capture_begin = cuda_capture_begin;
    base->capture_end = cuda_capture_end;
    base->graph_launch = cuda_graph_launch;
    base->graph_kernels = cuda_graph_kernels;
    base->graph_free = cuda_graph_free;
    base->range_push = cuda_range_push;
    base->range_pop = cuda_range_pop;
    base->outside_profiler = cuda_outside_profiler;
    base->close = cuda_close;
}

Status device_open_cuda(int index, Device **device) {
    int count = 0;
    *device = NULL;
    cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error != cudaSuccess) {
        return fail(ERROR_DEVICE,
                    "no CUDA GPU can be used: %s; install or update its driver, or use --device=cpu",
                    cudaGetErrorString(error));
    }
    if (index < 0 || index >= count) {
        return fail(ERROR_DEVICE, "no CUDA GPU %d: this machine has %d, numbered from 0; use --device=cpu",
                    index, count);
    }
    CudaDevice *cuda = (CudaDevice *)memory_allocate(sizeof *cuda);
    cuda->index = index;
    cuda_fill_interface(&cuda->base);
    Status status = cuda_start(cuda);
    if (status) {
        cuda_close(&cuda->base);
        return status;
    }
    *device = &cuda->base;
    return OK;
}
