/* Finds CUPTI, subscribes to it, and switches it on and off. */
#include "profile/cupti/internal.h"

#include "base/memory.h"
#include "kernels/device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER_BYTES = 4 << 20, BUFFERS = 1024, API_MAJOR = CUPTI_API_VERSION / 10000 };

/* CUPTI's buffer callbacks carry no user pointer, so this state must be static, the only such state in
 * fusebox. CUPTI calls them from its own thread, which ends with the flush, before any record is read. */
static struct {
    Buffer buffers[BUFFERS];
    int full;
    int64_t lost; // buffers that could not be allocated
    bool clock_registered;
} received;

static Status cupti_failure(const Opened *c, CUptiResult result, const char *what) {
    const char *text = "an unknown error";
    if (c->GetResultString) (void)c->GetResultString(result, &text);
    return fail(ERROR_DEVICE, "CUPTI: %s: %s", what, text);
}

#define CUPTI_TRY(c, call)                                                                                   \
    do {                                                                                                     \
        CUptiResult cupti_result_ = (c)->call;                                                               \
        if (cupti_result_ != CUPTI_SUCCESS) return cupti_failure(c, cupti_result_, #call);                   \
    } while (0)

/* ---- callbacks ---- */

static uint64_t clock_now(void) {
    return (uint64_t)(device_clock() * 1e9 + 0.5);
}

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most) {
    *buffer = memory_reserve(BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0;
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context;
    (void)stream;
    (void)size;
    int index = __atomic_fetch_add(&received.full, 1, __ATOMIC_ACQ_REL);
    if (index < BUFFERS) {
        received.buffers[index] = (Buffer){buffer, valid};
        return;
    }
    received.lost++;
    memory_free(buffer);
}

/* Functions that launch kernels. The runtime's functions call the driver's, under the same correlation id;
 * libraries call either. */
static const struct {
    CUpti_CallbackDomain domain;
    CUpti_CallbackId id;
} launch_calls[] = {
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz},
};
enum { LAUNCH_CALLS = sizeof launch_calls / sizeof *launch_calls };

static void on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    Opened *c = user;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
        cupti_graph_node(c, id, data);
        return;
    }
    const CUpti_CallbackData *call = data;
    if (c->capture >= 0) return; // captured, not launched
    if (call->callbackSite != CUPTI_API_ENTER) return;
    if (call->correlationId == c->launch_call) return; // a call inside a counted call
    c->launch_call = call->correlationId;
    c->launches++;
}

/* ---- one window ---- */

/* Includes calls of the driver, because libraries launch through it, and only recorded calls have a mark. */
static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void free_buffers(void) {
    for (int i = 0; i < received.full && i < BUFFERS; i++) memory_free(received.buffers[i].bytes);
    received.full = 0;
    received.lost = 0;
}

static Status switch_records(Opened *c, bool on) {
    for (int i = 0; i < KINDS; i++)
        if (on)
            CUPTI_TRY(c, ActivityEnable(kinds[i]));
        else
            CUPTI_TRY(c, ActivityDisable(kinds[i]));
    for (int i = 0; i < LAUNCH_CALLS; i++)
        CUPTI_TRY(c, EnableCallback(on, c->subscriber, launch_calls[i].domain, launch_calls[i].id));
    c->on = on;
    return OK;
}

static Status cupti_start(Cupti *base) {
    Opened *c = (Opened *)base;
    if (c->on) CUPTI_TRY(c, ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    free_buffers();
    c->launches = c->count = c->marked_count = 0;
    return c->on ? OK : switch_records(c, true);
}

/* During a capture nodes get the marks, because the calls belong to the capture. */
static void cupti_mark(void *base, int64_t mark) {
    Opened *c = base;
    if (c->depth++ < MARKS_MOST) c->marks[c->depth - 1] = mark;
    if (c->capture >= 0) return;
    (void)c->ActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, (uint64_t)mark);
}

static void cupti_unmark(void *base) {
    Opened *c = base;
    uint64_t last;
    if (c->depth > 0) c->depth--;
    if (c->capture >= 0) return;
    (void)c->ActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

static Status cupti_stop(Cupti *base, Activities *activities) {
    Opened *c = (Opened *)base;
    size_t dropped = 0;
    CUPTI_TRY(c, ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    TRY(switch_records(c, false));
    (void)c->ActivityGetNumDroppedRecords(NULL, 0, &dropped);
    cupti_read(c, received.buffers, received.full < BUFFERS ? received.full : BUFFERS);
    *activities = (Activities){c->activities, c->count, c->launches, (int64_t)dropped + received.lost};
    return OK;
}

/* ---- opening ---- */

static void cupti_close(Cupti *base) {
    Opened *c = (Opened *)base;
    if (c->on) status_free(switch_records(c, false));
    if (c->subscriber) (void)c->Unsubscribe(c->subscriber);
    free_buffers();
    memory_free(c->activities);
    memory_free(c->marked);
    memory_free(c->nodes);
    /* the library stays loaded, because CUDA keeps references to it */
    memory_free(c);
}

/* NULL if the library is not found. The library stays loaded. */
static void *open_library(void) {
    char name[32];
    snprintf(name, sizeof name, "libcupti.so.%d", API_MAJOR);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library ? library : dlopen("libcupti.so", RTLD_NOW | RTLD_LOCAL);
}

static Status load(Opened *c) {
    c->library = open_library();
    if (!c->library)
        return fail(
            ERROR_DEVICE,
            "libcupti.so.%d was not found (it comes with the CUDA toolkit; LD_LIBRARY_PATH may name its "
            "folder)",
            API_MAJOR);
#define FIND(name)                                                                                           \
    *(void **)&c->name = dlsym(c->library, "cupti" #name);                                                   \
    if (!c->name) return fail(ERROR_DEVICE, "this libcupti has no cupti" #name ": it is too old");
    CUPTI_FUNCTIONS(FIND)
#undef FIND
    uint32_t version = 0;
    CUPTI_TRY(c, GetVersion(&version));
    if (version / 10000 == API_MAJOR) return OK;
    return fail(ERROR_DEVICE, "libcupti is of CUDA %u, and this program is of CUDA %d", version / 10000,
                API_MAJOR);
}

/* CUPTI allows one subscriber per process. */
static Status subscribe(Opened *c) {
    char holder[2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "";
    CUpti_SubscriberParams parameters = {.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                         .subscriberName = "fusebox",
                                         .oldSubscriberName = holder,
                                         .oldSubscriberSize = sizeof holder};
    CUptiResult result = c->Subscribe_v2(&c->subscriber, on_call, c, &parameters);
    if (result == CUPTI_SUCCESS) return OK;
    c->subscriber = NULL;
    if (result != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        return cupti_failure(c, result, "subscribing");
    holder[sizeof holder - 1] = 0;
    bool named = *holder && !strstr(holder, "<not provided>");
    return fail(ERROR_DEVICE, "another profiler already holds CUPTI in this process: %s",
                named ? holder : "a subscriber that does not give its name");
}

static Status start_records(Opened *c) {
    if (!received.clock_registered) CUPTI_TRY(c, ActivityRegisterTimestampCallback(clock_now));
    received.clock_registered = true; // once per process: CUPTI mixes clocks otherwise
    CUPTI_TRY(c, ActivityRegisterCallbacks(give_buffer, take_buffer));
    TRY(switch_records(c, true)); // errors show now, while another source can still be selected
    return switch_records(c, false);
}

void cupti_prepare_latency(void) {
    CUptiResult (*enable)(uint8_t) = NULL;
    void *library = open_library();
    if (library) *(void **)&enable = dlsym(library, "cuptiActivityEnableLatencyTimestamps");
    if (enable) (void)enable(1);
}

static Status watch_graphs(Opened *c) {
    CUPTI_TRY(
        c, EnableCallback(1, c->subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED));
    CUPTI_TRY(
        c, EnableCallback(1, c->subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED));
    return OK;
}

Status cupti_open(bool graphs, Cupti **cupti) {
    Opened *c = memory_allocate(sizeof *c);
    c->base =
        (Cupti){cupti_start, cupti_stop, cupti_mark, cupti_unmark, cupti_capture, cupti_replay, cupti_close};
    c->capture = -1;
    Status status = load(c);
    if (!status) status = subscribe(c);
    if (!status) status = start_records(c);
    if (!status && graphs) status = watch_graphs(c);
    if (status)
        cupti_close(&c->base);
    else
        *cupti = &c->base;
    return status;
}
