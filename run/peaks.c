#include "run/peaks.h"

#include "base/bfloat16.h"
#include "base/cores.h"
#include "base/directories.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/random.h"
#include "comm/rendezvous.h"
#include "kernels/gemm/gemm.h"
#include "base/stats.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 12, COPIES = 4, CACHE_LIMIT = 1 << 20, PATTERN = 1 << 20, KEY_BYTES = 400 };

/* A GPU that has just worked, say to choose the product's kernel, is held back by its limit of power, by a
 * tenth and more: before so many runs it rests. */
enum { BURST = 3, REST_MS = 30 };

/* ---- what the makers promise ---- */

typedef struct {
    const char *name;        // a part of the device's
    double bf16, tf32, fp32; // TFLOP/s without sparsity; fp32 of the ordinary units
    double bandwidth;        // TB/s
    double link;             // GB/s that leave the device at once: NVLink's, or PCIe's
} Sheet;

/* NVIDIA's data sheets of each; the more special name first. */
static const Sheet sheets[] = {
    {"H200", 989.4, 494.7, 66.9, 4.8, 450},        {"H100 PCIe", 756, 378, 51.2, 2.0, 64},
    {"H100", 989.4, 494.7, 66.9, 3.35, 450},       {"A100-SXM4-80GB", 312, 156, 19.5, 2.039, 300},
    {"A100 80GB PCIe", 312, 156, 19.5, 1.935, 32}, {"A100-SXM4-40GB", 312, 156, 19.5, 1.555, 300},
    {"A100-PCIE-40GB", 312, 156, 19.5, 1.555, 32}, {"L40S", 362, 183, 91.6, 0.864, 32},
    {"RTX 4090", 165.2, 82.6, 82.6, 1.008, 32},    {"RTX 3090", 71, 35.6, 35.6, 0.936, 32},
};

Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32) {
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++) {
        const Sheet *s = &sheets[i];
        if (!strstr(device, s->name)) continue;
        double rate = dtype == BF16 ? s->bf16 : tf32 ? s->tf32 : s->fp32;
        return (Peaks){1e12 * rate, 1e12 * s->bandwidth, 1e9 * s->link};
    }
    return (Peaks){0};
}

/* ---- what is measured ---- */

/* Fills device memory with normal random numbers: zeros, or numbers alike, would let a GPU run faster than
 * data does. */
static Status fill_random(Device *device, void *memory, size_t bytes, Dtype dtype) {
    float *normal = memory_array(PATTERN, sizeof *normal);
    void *values = memory_array(PATTERN, sizeof(double));
    Status status = OK;
    random_normals(0, 0, 0, 1, normal, PATTERN);
    for (int64_t i = 0; i < PATTERN; i++) {
        if (dtype == BF16)
            ((uint16_t *)values)[i] = bfloat16_from_float(normal[i]);
        else if (dtype == F64)
            ((double *)values)[i] = (double)normal[i];
        else
            ((float *)values)[i] = normal[i];
    }
    size_t piece = PATTERN * dtype_size(dtype);
    for (size_t done = 0; done < bytes && !status; done += piece)
        status = device->upload(device, (char *)memory + done, values,
                                bytes - done < piece ? bytes - done : piece);
    if (!status) status = device->synchronize(device);
    memory_free(normal);
    memory_free(values);
    return status;
}

/* What is timed. */
typedef struct {
    Ctx *ctx;
    Gemm product;
    char *from, *to;
    size_t bytes;
    Comm *comm;
    Tensor whole;
} Load;

static Status run_product(const Load *l) {
    return gemm(l->ctx, &l->product);
}

/* A few in a row: on the way to a GPU one alone spends 1% of its time. */
static Status run_copies(const Load *l) {
    Device *device = l->ctx->device;
    for (int i = 0; i < COPIES; i++) TRY(device->copy(device, l->to, l->from, l->bytes));
    return OK;
}

static Status run_sum(const Load *l) {
    return comm_reduce_scatter(l->comm, l->whole, comm_piece(l->comm, l->whole), LANE_MAIN);
}

static Status run_gather(const Load *l) {
    return comm_all_gather(l->comm, comm_piece(l->comm, l->whole), l->whole, LANE_MAIN);
}

static Status time_runs(Device *device, Status (*run)(const Load *), const Load *load, double *seconds) {
    Event *start, *end;
    TRY(device->event_create(device, &start));
    TRY(device->event_create(device, &end));
    double times[REPEATS];
    Status status = OK;
    for (int i = -2; i < REPEATS && !status; i++) { // two runs to warm up
        double ms = 0;
        if (i >= 0 && i % BURST == 0 && device->backend == BACKEND_CUDA)
            status = device_rest(device, REST_MS);
        if (!status) status = device->event_record(device, start);
        if (!status) status = run(load);
        if (!status) status = device->event_record(device, end);
        if (!status) status = device->elapsed(device, start, end, &ms);
        if (i >= 0) times[i] = 1e-3 * ms;
    }
    device->event_free(device, start);
    device->event_free(device, end);
    *seconds = status ? 0 : stats_make(times, REPEATS).least;
    return status;
}

static Status measure(Ctx *ctx, Peaks *peaks) {
    Device *device = ctx->device;
    bool gpu = device->backend == BACKEND_CUDA;
    int64_t n = !gpu ? 1024 : ctx->dtype == BF16 ? 8192 : 4096;
    size_t matrix = (size_t)(n * n) * dtype_size(ctx->dtype), copied = (size_t)(gpu ? 512 : 64) << 20;
    size_t bytes = 3 * matrix > 2 * copied ? 3 * matrix : 2 * copied;
    void *memory;
    TRY(device->allocate(device, bytes, &memory));
    char *at = memory;
    const Load load = {.ctx = ctx,
                       .product = {.a = at,
                                   .b = at + matrix,
                                   .c = at + 2 * matrix,
                                   .a_dtype = ctx->dtype,
                                   .b_dtype = ctx->dtype,
                                   .c_dtype = ctx->dtype,
                                   .m = n,
                                   .n = n,
                                   .k = n,
                                   .lda = n,
                                   .ldb = n,
                                   .ldc = n,
                                   .alpha = 1},
                       .from = at,
                       .to = at + bytes / 2,
                       .bytes = copied};
    double seconds = 0;
    const Form form = ctx->form;
    ctx->form = FORM_FUSED; // the fastest library, not the naive form's
    Status status = fill_random(device, memory, bytes, ctx->dtype);
    if (!status) status = time_runs(device, run_product, &load, &seconds);
    peaks->flops = 2.0 * (double)n * (double)n * (double)n / seconds;
    if (!status) status = time_runs(device, run_copies, &load, &seconds);
    peaks->bandwidth = 2.0 * COPIES * (double)copied / seconds;
    ctx->form = form;
    device->release(device, memory);
    return status;
}

/* The better of a sum's and a gathering's bus bandwidth. */
static Status measure_link(Comm *comm, Tensor whole, double *link) {
    const Load load = {.comm = comm, .whole = whole};
    const double sent = (double)tensor_bytes(whole) * (1 - 1 / (double)comm->size);
    double sum, gathering;
    TRY(comm_share(comm, whole.data, tensor_bytes(whole)));
    TRY(time_runs(comm->device, run_sum, &load, &sum));
    TRY(time_runs(comm->device, run_gather, &load, &gathering));
    TRY(comm->device->synchronize(comm->device));
    TRY(comm_unshare(comm, whole.data));
    *link = sent / fmin(sum, gathering);
    return OK;
}

static json_t *cache_load(void) {
    char *path = path_in_cache("peaks.json", false), *text = NULL;
    int64_t length;
    json_t *cache = NULL;
    Status status = path ? file_read(path, CACHE_LIMIT, &text, &length) : OK;
    if (path && !status) cache = json_loadb(text, (size_t)length, 0, NULL);
    if (!status) memory_free(text);
    status_free(status);
    memory_free(path);
    if (!json_is_object(cache)) {
        json_decref(cache);
        cache = json_object();
    }
    return cache;
}

static void cache_store(json_t *cache) {
    JsonWriter w = {0};
    const char *key, *name;
    json_t *peaks, *value;
    json_write_open(&w, '{');
    json_object_foreach(cache, key, peaks) {
        json_write_line(&w, 1, true);
        json_member_open(&w, key, '{');
        json_object_foreach(peaks, name, value) json_member_number(&w, name, json_number_value(value));
        json_write_close(&w, '}');
    }
    json_write_close(&w, '}');
    char *path = path_in_cache("peaks.json", true);
    if (path) status_free(json_writer_save(&w, path));
    memory_free(path);
    json_writer_free(&w);
}

/* What was seen of this device, library and dtype before; false where others had the cores then, or nothing
 * was. */
static bool find(const Ctx *ctx, const json_t *cache, char key[KEY_BYTES], Peaks *peaks) {
    snprintf(key, KEY_BYTES, "%s | %s | %s", ctx->device->name, ctx->device->library,
             ctx->tf32 ? "tf32" : dtype_name(ctx->dtype));
    const json_t *found = json_object_get(cache, key);
    double flops = json_number_value(json_object_get(found, "flops"));
    double bandwidth = json_number_value(json_object_get(found, "bandwidth"));
    bool seen = flops > 0 && bandwidth > 0;
    peaks->flops = seen ? flops : 0;
    peaks->bandwidth = seen ? bandwidth : 0;
    return seen && json_number_value(json_object_get(found, "cores_waited")) <= CORES_SHARED;
}

bool peaks_remember(const Ctx *ctx, Peaks *peaks) {
    char key[KEY_BYTES];
    json_t *cache = cache_load();
    bool settled = find(ctx, cache, key, peaks);
    json_decref(cache);
    return settled;
}

Status peaks_measure(Ctx *ctx, Peaks *peaks) {
    char key[KEY_BYTES];
    Peaks before;
    json_t *cache = cache_load();
    bool settled = find(ctx, cache, key, &before);
    const CoreTimes cores = cores_read();
    Status status = measure(ctx, peaks);
    if (!status) {
        double waited = settled || ctx->device->backend != BACKEND_CPU ? 0 : cores_waited(cores);
        bool better = peaks->flops > before.flops || peaks->bandwidth > before.bandwidth ||
                      (!settled && waited <= CORES_SHARED);
        peaks->flops = fmax(before.flops, peaks->flops);
        peaks->bandwidth = fmax(before.bandwidth, peaks->bandwidth);
        if (better) {
            json_object_set_new(cache, key,
                                json_pack("{s:f, s:f, s:f}", "flops", peaks->flops, "bandwidth",
                                          peaks->bandwidth, "cores_waited", waited));
            cache_store(cache);
        }
    }
    json_decref(cache);
    return status;
}

Status peaks_link(Comm *comm, bool measuring, Peaks *peaks) {
    char key[KEY_BYTES];
    if (!comm) return OK;
    Device *device = comm->device;
    json_t *cache = cache_load();
    snprintf(key, sizeof key, "%s | %d ranks | %s", device->name, comm->size, comm->name);
    double before = json_number_value(json_object_get(json_object_get(cache, key), "link")), link = 0;
    void *memory = NULL;
    Status status = OK;
    if (measuring) {
        size_t bytes = (size_t)(device->backend == BACKEND_CUDA ? 256 : 16) << 20;
        int64_t count = comm_padded(comm->size, (int64_t)(bytes / sizeof(float)));
        status = device->allocate(device, (size_t)count * sizeof(float), &memory);
        if (!status) status = device->fill(device, memory, 0, (size_t)count * sizeof(float));
        status = rendezvous_agree(comm->rendezvous, status);
        if (!status) status = measure_link(comm, tensor_view(memory, F32, shape1(count)), &link);
        if (memory) device->release(device, memory);
    }
    peaks->link = fmax(link, before);
    if (link > before && comm->rank == 0) {
        json_object_set_new(cache, key, json_pack("{s:f}", "link", link));
        cache_store(cache);
    }
    json_decref(cache);
    return status;
}
