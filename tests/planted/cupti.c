#include "tests/planted/planted.h"

#include <cupti.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_BYTES = 256, NODES_MOST = 8192, STACK = 64, NS = 10 };

typedef struct {
    uint64_t id;
    const char *kernel; // NULL: a fill
} PlantedNode;

typedef struct {
    int count;
    PlantedNode nodes[NODES_MOST];
} PlantedGraph;

static struct {
    CUpti_CallbackFunc callback;
    void *user;
    bool calls, created, cloned; // which callbacks are enabled
    bool kinds[CUPTI_ACTIVITY_KIND_COUNT];
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    CUpti_TimestampCallbackFunc clock;
    uint8_t *buffer;
    size_t used, size;
    uint64_t external[STACK];
    int depth;
    uint32_t correlation;
    uint64_t node, device; // the last node's id; the time until which the device is busy
    PlantedGraph *capturing;
    bool latency;
    int early, forget, kernels;
    size_t dropped;
    const char *holder;
    uint32_t version;
} cupti;

/* ---- records ---- */

static void flush(void) {
    if (cupti.buffer) cupti.complete(NULL, 0, cupti.buffer, cupti.size, cupti.used);
    cupti.buffer = NULL;
}

static void put(const void *record, size_t bytes) {
    if (!cupti.kinds[((const CUpti_Activity *)record)->kind]) return;
    if (cupti.buffer && cupti.used + RECORD_BYTES > cupti.size) flush();
    if (!cupti.buffer) {
        size_t most = 0;
        cupti.request(&cupti.buffer, &cupti.size, &most);
        cupti.used = 0;
    }
    memcpy(cupti.buffer + cupti.used, record, bytes);
    cupti.used += RECORD_BYTES;
}

_Static_assert(sizeof(CUpti_ActivityKernel10) <= RECORD_BYTES &&
                   sizeof(CUpti_ActivityMemset4) <= RECORD_BYTES,
               "a record has room");

static void put_call(uint64_t begin, CUpti_CallbackId id) {
    CUpti_ActivityAPI call = {.kind = CUPTI_ACTIVITY_KIND_RUNTIME,
                              .cbid = id,
                              .start = begin,
                              .end = cupti.clock(),
                              .threadId = 7,
                              .correlationId = cupti.correlation};
    CUpti_ActivityExternalCorrelation mark = {.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                              .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                              .correlationId = cupti.correlation};
    put(&call, sizeof call);
    if (!cupti.depth) return;
    mark.externalId = cupti.external[cupti.depth - 1];
    put(&mark, sizeof mark);
}

static void run_node(const PlantedNode *node, bool of_graph) {
    uint64_t now = cupti.clock(), begin = now > cupti.device ? now : cupti.device;
    cupti.device = begin + NS;
    if (!node->kernel) {
        CUpti_ActivityMemset4 fill = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                                      .bytes = 64,
                                      .start = begin,
                                      .end = cupti.device,
                                      .streamId = 5,
                                      .correlationId = cupti.correlation,
                                      .graphNodeId = of_graph ? node->id : 0};
        put(&fill, sizeof fill);
        return;
    }
    if (cupti.forget && ++cupti.kernels % cupti.forget == 0) {
        cupti.dropped++;
        return;
    }
    CUpti_ActivityKernel10 kernel = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                     .name = node->kernel,
                                     .start = begin - (uint64_t)cupti.early,
                                     .end = cupti.device,
                                     .queued = cupti.latency ? begin - 300 : 0,
                                     .submitted = cupti.latency ? begin - 100 : 0,
                                     .streamId = 5,
                                     .correlationId = cupti.correlation,
                                     .gridX = 2,
                                     .gridY = 1,
                                     .gridZ = 1,
                                     .blockX = 128,
                                     .blockY = 1,
                                     .blockZ = 1,
                                     .registersPerThread = 32,
                                     .graphNodeId = of_graph ? node->id : 0};
    put(&kernel, sizeof kernel);
}

/* ---- CUDA ---- */

static void call_back(CUpti_CallbackId id) {
    const CUpti_ApiCallbackSite sites[] = {CUPTI_API_ENTER, CUPTI_API_EXIT};
    cupti.correlation++;
    for (int i = 0; i < 2; i++) {
        CUpti_CallbackData data = {.callbackSite = sites[i], .correlationId = cupti.correlation};
        if (cupti.calls && id == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000)
            cupti.callback(cupti.user, CUPTI_CB_DOMAIN_RUNTIME_API, id, &data);
    }
}

/* A node's address is its id. */
static void tell_node(CUpti_CallbackId id, const PlantedNode *node, uint64_t original) {
    CUpti_GraphData graph = {.node = (CUgraphNode)(uintptr_t)node->id,
                             .originalNode = (CUgraphNode)(uintptr_t)original};
    CUpti_ResourceData data = {.resourceDescriptor = &graph};
    bool on = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED ? cupti.created : cupti.cloned;
    if (on) cupti.callback(cupti.user, CUPTI_CB_DOMAIN_RESOURCE, id, &data);
}

static void do_work(const char *kernel, CUpti_CallbackId id) {
    uint64_t begin = cupti.clock ? cupti.clock() : 0;
    PlantedNode node = {0, kernel};
    call_back(id);
    if (cupti.capturing) {
        node.id = ++cupti.node;
        cupti.capturing->nodes[cupti.capturing->count++] = node;
        tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &node, 0);
    }
    if (!cupti.clock) return;
    put_call(begin, id);
    if (!cupti.capturing) run_node(&node, false);
}

static void launch(const char *kernel) {
    do_work(kernel, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
}

static void fill(void) {
    do_work(NULL, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
}

static void capture_begin(void) {
    cupti.capturing = calloc(1, sizeof *cupti.capturing);
}

/* The executable graph's nodes are reported as created, and as copies. */
static void *capture_end(void) {
    PlantedGraph *graph = cupti.capturing;
    cupti.capturing = NULL;
    for (int i = 0; i < graph->count; i++) {
        uint64_t original = graph->nodes[i].id;
        graph->nodes[i].id = ++cupti.node;
        tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &graph->nodes[i], 0);
        tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, &graph->nodes[i], original);
    }
    return graph;
}

static void graph_launch(void *executable) {
    const PlantedGraph *graph = executable;
    uint64_t begin = cupti.clock ? cupti.clock() : 0;
    call_back(CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
    if (!cupti.clock) return;
    put_call(begin, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
    for (int i = 0; i < graph->count; i++) run_node(&graph->nodes[i], true);
}

static int graph_kernels(const void *executable) {
    const PlantedGraph *graph = executable;
    int kernels = 0;
    for (int i = 0; i < graph->count; i++) kernels += graph->nodes[i].kernel != NULL;
    return kernels;
}

static void early(int ns) {
    cupti.early = ns;
}

static int latency(void) {
    return cupti.latency;
}

static void forget(int n) {
    cupti.forget = n;
}

static void hold(const char *who) {
    cupti.holder = who;
}

static void pretend(unsigned version) {
    cupti.version = version;
}

const Planted *planted(void);
const Planted *planted(void) {
    static const Planted functions = {launch, fill,  capture_begin, capture_end, graph_launch, graph_kernels,
                                      free,   early, latency,       forget,      hold,         pretend};
    return &functions;
}

/* ---- CUPTI ---- */

CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = cupti.version ? cupti.version : CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    (void)result;
    *text = "planted";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char **name) {
    (void)domain;
    *name = id == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000  ? "cudaGraphLaunch_v10000"
            : id == CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020 ? "cudaMemsetAsync_v3020"
                                                                   : "cudaLaunchKernel_v7000";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user,
                              CUpti_SubscriberParams *parameters) {
    if (cupti.holder)
        snprintf(parameters->oldSubscriberName, parameters->oldSubscriberSize, "%s",
                 *cupti.holder ? cupti.holder : "<not provided>");
    if (cupti.holder || cupti.callback) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    cupti.callback = callback;
    cupti.user = user;
    *subscriber = (CUpti_SubscriberHandle)&cupti;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
    (void)subscriber;
    cupti.callback = NULL;
    cupti.calls = cupti.created = cupti.cloned = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    (void)subscriber;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE)
        cupti.calls = enable;
    else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED)
        cupti.created = enable;
    else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
        cupti.cloned = enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    cupti.kinds[kind] = true;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    cupti.kinds[kind] = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
    cupti.request = request;
    cupti.complete = complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    cupti.clock = clock;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    uint8_t *next = *record ? (uint8_t *)*record + RECORD_BYTES : buffer;
    if (next + RECORD_BYTES > buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    (void)context;
    (void)stream;
    *dropped = cupti.dropped;
    cupti.dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    flush();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
    *id = (uint64_t)(uintptr_t)node;
    return *id ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    (void)kind;
    cupti.external[cupti.depth++] = id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
    (void)kind;
    if (!cupti.depth) return CUPTI_ERROR_QUEUE_EMPTY;
    *last = cupti.external[--cupti.depth];
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t enable) {
    cupti.latency = enable;
    return CUPTI_SUCCESS;
}
