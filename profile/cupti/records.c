/* Converts CUPTI's records to activities. */
#include "profile/cupti/internal.h"

#include "base/memory.h"

#include <stdlib.h>

/* ---- one record ---- */

static Activity kernel_activity(const CUpti_ActivityKernel10 *k) {
    return (Activity){.kind = TRACE_KERNEL,
                      .name = k->name ? k->name : "?",
                      .begin = (int64_t)k->start,
                      .end = (int64_t)k->end,
                      .correlation = k->correlationId,
                      .stream = k->streamId,
                      .node = k->graphNodeId,
                      .queued = (int64_t)k->queued,
                      .submitted = (int64_t)k->submitted,
                      .kernel = {.grid = {k->gridX, k->gridY, k->gridZ},
                                 .block = {k->blockX, k->blockY, k->blockZ},
                                 .registers = k->registersPerThread,
                                 .shared_static = k->staticSharedMemory,
                                 .shared_dynamic = k->dynamicSharedMemory,
                                 .local = (int32_t)k->localMemoryPerThread}};
}

static CopyDirection direction_of(uint8_t kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return COPY_HOST_TO_DEVICE;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return COPY_DEVICE_TO_HOST;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return COPY_DEVICE_TO_DEVICE;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return COPY_PEER;
    default: return COPY_OTHER;
    }
}

static HostMemory host_memory(const CUpti_ActivityMemcpy6 *m) {
    if (m->srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ||
        m->dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE)
        return HOST_MEMORY_PAGEABLE;
    if (m->srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED || m->dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED)
        return HOST_MEMORY_PINNED;
    return HOST_MEMORY_UNKNOWN;
}

static Activity copy_activity(const CUpti_ActivityMemcpy6 *m) {
    return (Activity){.kind = TRACE_COPY,
                      .name = copy_name(direction_of(m->copyKind)),
                      .begin = (int64_t)m->start,
                      .end = (int64_t)m->end,
                      .correlation = m->correlationId,
                      .stream = m->streamId,
                      .node = m->graphNodeId,
                      .copy = {direction_of(m->copyKind), host_memory(m), (int64_t)m->bytes}};
}

/* A copy between GPUs, or to memory shared by another process. */
static Activity peer_copy_activity(const CUpti_ActivityMemcpyPtoP4 *m) {
    return (Activity){.kind = TRACE_COPY,
                      .name = copy_name(COPY_PEER),
                      .begin = (int64_t)m->start,
                      .end = (int64_t)m->end,
                      .correlation = m->correlationId,
                      .stream = m->streamId,
                      .node = m->graphNodeId,
                      .copy = {COPY_PEER, HOST_MEMORY_UNKNOWN, (int64_t)m->bytes}};
}

static Activity fill_activity(const CUpti_ActivityMemset4 *m) {
    return (Activity){.kind = TRACE_FILL,
                      .name = "fill",
                      .begin = (int64_t)m->start,
                      .end = (int64_t)m->end,
                      .correlation = m->correlationId,
                      .stream = m->streamId,
                      .node = m->graphNodeId,
                      .copy = {COPY_OTHER, HOST_MEMORY_UNKNOWN, (int64_t)m->bytes}};
}

static Activity call_activity(const Opened *c, const CUpti_ActivityAPI *a) {
    bool driver = a->kind == CUPTI_ACTIVITY_KIND_DRIVER;
    const char *name = NULL;
    (void)c->GetCallbackName(driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, a->cbid,
                             &name);
    return (Activity){.kind = TRACE_RUNTIME,
                      .name = name ? name : "a call of CUDA",
                      .begin = (int64_t)a->start,
                      .end = (int64_t)a->end,
                      .correlation = a->correlationId,
                      .thread = a->threadId,
                      .driver = driver};
}

static void add_activity(Opened *c, Activity activity) {
    activity.mark = -1;
    c->activities = memory_grow(c->activities, &c->room, c->count + 1, sizeof *c->activities);
    c->activities[c->count++] = activity;
}

static void add_marked(Opened *c, const CUpti_ActivityExternalCorrelation *e) {
    if (e->externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return;
    c->marked = memory_grow(c->marked, &c->marked_room, c->marked_count + 1, sizeof *c->marked);
    c->marked[c->marked_count++] = (Marked){e->correlationId, (int64_t)e->externalId};
}

static void add_record(Opened *c, const CUpti_Activity *record) {
    switch ((int)record->kind) { // each version of CUPTI adds kinds
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        add_activity(c, kernel_activity((const CUpti_ActivityKernel10 *)record));
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        add_activity(c, copy_activity((const CUpti_ActivityMemcpy6 *)record));
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        add_activity(c, peer_copy_activity((const CUpti_ActivityMemcpyPtoP4 *)record));
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        add_activity(c, fill_activity((const CUpti_ActivityMemset4 *)record));
        break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
        add_activity(c, call_activity(c, (const CUpti_ActivityAPI *)record));
        break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        add_marked(c, (const CUpti_ActivityExternalCorrelation *)record);
        break;
    default: break;
    }
}

/* ---- joining ---- */

/* Data of each correlation id, from the smallest on. */
typedef struct {
    int64_t mark;
    bool runtime; // a runtime call has this id
} Joint;

static void first_and_last(const Opened *c, uint32_t *first, uint32_t *last) {
    *first = UINT32_MAX;
    *last = 0;
    for (int64_t i = 0; i < c->count; i++) {
        uint32_t correlation = c->activities[i].correlation;
        *first = correlation < *first ? correlation : *first;
        *last = correlation > *last ? correlation : *last;
    }
}

/* Marks every activity, and drops driver calls made by runtime calls. */
static void join(Opened *c) {
    uint32_t first, last;
    if (!c->count) return;
    first_and_last(c, &first, &last);
    OWNED Joint *joints = memory_array((size_t)(last - first) + 1, sizeof *joints);
    for (int64_t i = 0; i <= last - first; i++) joints[i].mark = -1;
    for (int64_t i = 0; i < c->marked_count; i++) {
        const Marked *m = &c->marked[i];
        if (m->correlation < first || m->correlation > last) continue;
        Joint *joint = &joints[m->correlation - first];
        if (m->mark > joint->mark) joint->mark = m->mark; // the innermost mark began last
    }
    for (int64_t i = 0; i < c->count; i++) {
        const Activity *a = &c->activities[i];
        if (a->kind == TRACE_RUNTIME && !a->driver) joints[a->correlation - first].runtime = true;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < c->count; i++) {
        Activity a = c->activities[i];
        if (a.driver && joints[a.correlation - first].runtime) continue;
        a.mark = joints[a.correlation - first].mark;
        if (a.node && a.mark >= 0) a.mark += cupti_node_mark(c, a.node);
        c->activities[kept++] = a;
    }
    c->count = kept;
}

/* ---- one at a time ---- */

typedef struct {
    int64_t stream, begin, activity;
} Turn;

static int by_stream_and_begin(const void *a, const void *b) {
    const Turn *x = a, *y = b;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* With programmatic dependent launch a kernel may start while the previous one on its stream still runs, and
 * mostly waits for it. Its time is counted from the end of the previous kernel, or the wait would count
 * twice. */
static void serialize(Opened *c) {
    OWNED Turn *turns = memory_array((size_t)c->count + 1, sizeof *turns);
    int64_t count = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const Activity *a = &c->activities[i];
        if (a->kind != TRACE_RUNTIME) turns[count++] = (Turn){a->stream, a->begin, i};
    }
    qsort(turns, (size_t)count, sizeof *turns, by_stream_and_begin);
    for (int64_t i = 1; i < count; i++) {
        const Activity *ahead = &c->activities[turns[i - 1].activity];
        Activity *a = &c->activities[turns[i].activity];
        if (a->stream != ahead->stream || a->begin >= ahead->end) continue;
        a->begin = ahead->end;
        if (a->end < a->begin) a->end = a->begin; // the kernel did not wait, and ended earlier
    }
}

void cupti_read(Opened *c, const Buffer *buffers, int count) {
    for (int i = 0; i < count; i++) {
        CUpti_Activity *record = NULL;
        while (c->ActivityGetNextRecord(buffers[i].bytes, buffers[i].valid, &record) == CUPTI_SUCCESS)
            add_record(c, record);
    }
    join(c);
    serialize(c);
}
