#include "run/peaks.h"

#include "base/bfloat16.h"
#include "base/cores.h"
#include "base/directories.h"
#include "base/float8.h"
#include "base/json_read.h"
#include "base/limits_fields.h"
#include "base/memory.h"
#include "base/random.h"
#include "comm/rendezvous.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear/linear.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = 4, COPIED = 512 << 20, CACHE_LIMIT = 1 << 20, PATTERN = 1 << 20, KEY_BYTES = 400 };
enum { STREAMED = 64 << 20, MEMORY_LEAST = 128 << 20 }; // bytes of a run, and of a stream through memory

/* A rate is accepted once its three fastest runs are within 2% of each other. */
enum { WARMUP = 2, ALIKE = 3, LINK_RUNS = 12 };
static const double ALIKE_WITHIN = 0.02, SECONDS_LEAST = 0.1, SECONDS_MOST = 2;

/* After sustained work, such as autotuning, a GPU's power limit slows it by a tenth and more: it rests before
 * every few runs. */
enum { BURST = 3, REST_MS = 30 };

/* ---- data sheets ---- */

typedef struct {
    const char *name;             // part of the device's name
    double fp8, bf16, tf32, fp32; // TFLOP/s without sparsity; fp32 without tensor cores; 0: none
    double bandwidth;             // TB/s
    double link;                  // GB/s out of the device, over NVLink or PCIe
} Sheet;

/* NVIDIA's data sheets; more specific names come first. */
static const Sheet sheets[] = {
    {"H200", 1978.9, 989.4, 494.7, 66.9, 4.8, 450},    {"H100 PCIe", 1513, 756, 378, 51.2, 2.0, 64},
    {"H100", 1978.9, 989.4, 494.7, 66.9, 3.35, 450},   {"A100-SXM4-80GB", 0, 312, 156, 19.5, 2.039, 300},
    {"A100 80GB PCIe", 0, 312, 156, 19.5, 1.935, 32},  {"A100-SXM4-40GB", 0, 312, 156, 19.5, 1.555, 300},
    {"A100-PCIE-40GB", 0, 312, 156, 19.5, 1.555, 32},  {"L40S", 733, 362, 183, 91.6, 0.864, 32},
    {"RTX 4090", 660.6, 165.2, 82.6, 82.6, 1.008, 32}, {"RTX 3090", 0, 71, 35.6, 35.6, 0.936, 32},
};

Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32) {
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++) {
        const Sheet *s = &sheets[i];
        if (!strstr(device, s->name)) continue;
        double rate = dtype == BF16 ? s->bf16 : tf32 ? s->tf32 : s->fp32;
        return (Peaks){.flops = 1e12 * rate,
                       .flops8 = 1e12 * s->fp8,
                       .bandwidth = 1e12 * s->bandwidth,
                       .link = 1e9 * s->link};
    }
    return (Peaks){0};
}

/* ---- measurements ---- */

/* Fills device memory with normal random numbers: a GPU runs faster on zeros or equal numbers than on
 * data. */
static Status fill_random(Device *device, void *memory, size_t bytes, Dtype dtype) {
    OWNED float *normal = memory_array(PATTERN, sizeof *normal);
    OWNED void *values = memory_array(PATTERN, sizeof(double));
    random_normals(0, 0, 0, 1, normal, PATTERN);
    for (int64_t i = 0; i < PATTERN; i++) {
        if (dtype == BF16)
            ((uint16_t *)values)[i] = bfloat16_from_float(normal[i]);
        else if (dtype == E4M3)
            ((uint8_t *)values)[i] = e4m3_saturated(normal[i]);
        else if (dtype == F64)
            ((double *)values)[i] = (double)normal[i];
        else
            ((float *)values)[i] = normal[i];
    }
    size_t piece = PATTERN * dtype_size(dtype);
    for (size_t done = 0; done < bytes; done += piece)
        TRY(device->upload(device, (char *)memory + done, values,
                           bytes - done < piece ? bytes - done : piece));
    return device->synchronize(device);
}

/* The work that is timed. */
typedef struct {
    Ctx *ctx;
    Gemm product;
    char *from, *to;
    size_t bytes;
    Stream how;
    int64_t times;
    Comm *comm;
    Tensor whole;
} Load;

static Status run_product(const Load *l) {
    return gemm(l->ctx, &l->product);
}

/* Several copies in a row: launching a single one takes 1% of its time on a GPU. */
static Status run_copies(const Load *l) {
    Device *device = l->ctx->device;
    for (int i = 0; i < COPIES; i++) TRY(device->copy(device, l->to, l->from, l->bytes));
    return OK;
}

static Status run_stream(const Load *l) {
    return l->ctx->device->stream(l->ctx->device, l->how, l->to, l->bytes, l->times);
}

static Status run_sum(const Load *l) {
    return comm_reduce_scatter(l->comm, l->whole, comm_piece(l->comm, l->whole), LANE_MAIN);
}

static Status run_gather(const Load *l) {
    return comm_all_gather(l->comm, comm_piece(l->comm, l->whole), l->whole, LANE_MAIN);
}

typedef struct {
    Device *device;
    Event *start, *end;
    double fastest[ALIKE]; // seconds, ascending; 0: none yet
    int64_t runs;
    double seconds; // total time of all runs
} Timer;

static Status timer_run(Timer *t, Status (*run)(const Load *), const Load *load) {
    Device *device = t->device;
    double ms = 0;
    if (t->runs >= WARMUP && t->runs % BURST == 0 && device->backend == BACKEND_CUDA)
        TRY(device_rest(device, REST_MS));
    TRY(device->event_record(device, t->start));
    TRY(run(load));
    TRY(device->event_record(device, t->end));
    TRY(device->elapsed(device, t->start, t->end, &ms));
    if (t->runs++ < WARMUP) return OK;
    double seconds = 1e-3 * ms;
    t->seconds += seconds;
    for (int i = 0; i < ALIKE; i++) {
        double slower = t->fastest[i];
        if (slower > 0 && seconds >= slower) continue;
        t->fastest[i] = seconds;
        seconds = slower;
        if (slower == 0) break;
    }
    return OK;
}

static void timer_close(Timer *t) {
    if (t->start) t->device->event_free(t->device, t->start);
    if (t->end) t->device->event_free(t->device, t->end);
}

/* Whether the fastest runs agree, so that none of them was interrupted. */
static bool timer_repeats(const Timer *t) {
    return t->fastest[ALIKE - 1] > 0 && t->fastest[ALIKE - 1] <= (1 + ALIKE_WITHIN) * t->fastest[0];
}

/* The time of the fastest of `runs` runs. 0 runs: repeats until the fastest runs agree; the time is 0 if they
 * never do. */
static Status time_runs(Device *device, Status (*run)(const Load *), const Load *load, int64_t runs,
                        double *seconds) {
    CLOSED_BY(timer_close) Timer t = {.device = device};
    *seconds = 0;
    TRY(device->event_create(device, &t.start));
    TRY(device->event_create(device, &t.end));
    while (runs ? t.runs < WARMUP + runs
                : t.seconds < SECONDS_LEAST || (!timer_repeats(&t) && t.seconds < SECONDS_MOST))
        TRY(timer_run(&t, run, load));
    if (runs || timer_repeats(&t)) *seconds = t.fastest[0];
    return OK;
}

/* The rates of one level of memory, with `bytes` that fit it. A rate is 0 if it is not repeatable. */
static Status measure_roof(Ctx *ctx, char *memory, size_t bytes, Roof *roof) {
    double rates[STREAM_COUNT] = {0};
    static const Stream order[] = {STREAM_WRITE, STREAM_READ, STREAM_COPY}; // writing first allocates the
                                                                            // pages
    for (int i = 0; i < STREAM_COUNT; i++) {
        const Load load = {.ctx = ctx,
                           .to = memory,
                           .bytes = bytes,
                           .how = order[i],
                           .times = (int64_t)(bytes < STREAMED ? STREAMED / bytes : 1)};
        double seconds;
        TRY(time_runs(ctx->device, run_stream, &load, 0, &seconds));
        if (seconds == 0) return OK;
        rates[order[i]] = (double)bytes * (double)load.times / seconds;
    }
    roof->read = rates[STREAM_READ];
    roof->write = rates[STREAM_WRITE];
    roof->most = fmax(rates[STREAM_COPY], fmax(roof->read, roof->write));
    return OK;
}

/* The bytes by which a cache is measured: four times the cache before it, which they do not fit, but at most
 * half of its own size. Of a large cache that many cores share, not all may be ours. */
static size_t cache_sample(const Device *device, int cache) {
    const size_t half = device->caches[cache] / 2, beyond = cache ? 4 * device->caches[cache - 1] : 0;
    return beyond && beyond < half ? beyond : half;
}

/* Data that fit a cache can be streamed through memory, too, so that no rate of a cache is lower. */
static void raise_roof(Roof *cache, const Roof *memory) {
    if (cache->most == 0) return; // unknown
    cache->read = fmax(cache->read, memory->read);
    cache->write = fmax(cache->write, memory->write);
    cache->most = fmax(cache->most, memory->most);
}

/* Memory is measured with four times the largest cache. */
static Status measure_streams(Ctx *ctx, Peaks *peaks) {
    Device *device = ctx->device;
    Roof memory = {.bytes = MEMORY_LEAST};
    size_t available;
    void *room;
    TRY(device->available(device, &available));
    for (int i = 0; i < DEVICE_CACHES; i++)
        memory.bytes = fmax(memory.bytes, 4.0 * (double)device->caches[i]);
    memory.bytes = fmin(memory.bytes, (double)available / 4);
    TRY(device->allocate(device, (size_t)memory.bytes, &room));
    Status status = measure_roof(ctx, room, (size_t)memory.bytes, &memory);
    for (int i = 0; i < DEVICE_CACHES && !status && memory.most > 0; i++) {
        Roof *cache = &peaks->caches[i];
        cache->bytes = (double)device->caches[i];
        if (!device->caches[i]) continue;
        status = measure_roof(ctx, room, cache_sample(device, i), cache);
        raise_roof(cache, &memory);
        if (cache->most == 0) memory.most = 0;
    }
    peaks->bandwidth = memory.most;
    peaks->read = memory.read;
    peaks->write = memory.write;
    device->release(device, room);
    return status;
}

static Status measure_copies(Ctx *ctx, char *memory, size_t bytes, Peaks *peaks) {
    const Load load = {.ctx = ctx, .from = memory, .to = memory + bytes, .bytes = bytes};
    double seconds;
    TRY(time_runs(ctx->device, run_copies, &load, 0, &seconds));
    peaks->bandwidth = seconds > 0 ? 2.0 * COPIES * (double)bytes / seconds : 0;
    return OK;
}

/* The FLOP/s of a product of two n x n matrices of this dtype. E4M3: the result is in bf16, and `scale` is a
 * 1 in device memory. */
static Status measure_product(Ctx *ctx, char *at, int64_t n, Dtype dtype, const float *scale, double *flops) {
    const size_t matrix = (size_t)(n * n) * dtype_size(dtype);
    const Load load = {.ctx = ctx,
                       .product = {.a = at,
                                   .b = at + matrix,
                                   .c = at + 2 * matrix,
                                   .a_dtype = dtype,
                                   .b_dtype = dtype,
                                   .c_dtype = dtype == E4M3 ? BF16 : dtype,
                                   .m = n,
                                   .n = n,
                                   .k = n,
                                   .lda = n,
                                   .ldb = n,
                                   .ldc = n,
                                   .transpose_b = dtype == E4M3,
                                   .alpha = 1,
                                   .a_scale = scale,
                                   .b_scale = scale,
                                   .fast = dtype == E4M3}};
    double seconds;
    const Form form = ctx->form;
    ctx->form = FORM_FUSED; // so that the fastest library is used
    Status status = time_runs(ctx->device, run_product, &load, 0, &seconds);
    ctx->form = form;
    *flops = !status && seconds > 0 ? 2.0 * (double)n * (double)n * (double)n / seconds : 0;
    return status;
}

/* Whether products of 8-bit numbers run. */
static bool needs_8_bits(const Ctx *ctx) {
    return ctx->fuses & FUSE_FP8 && linear_multiplies_fp8(ctx);
}

/* In memory for three n x n matrices in bf16: two in 8 bits, the result in bf16, and the scale. */
static Status measure_8_bits(Ctx *ctx, char *at, int64_t n, Peaks *peaks) {
    const size_t matrix = (size_t)(n * n);
    char *const scale = at + 5 * matrix;
    const float one = 1;
    TRY(fill_random(ctx->device, at, 2 * matrix, E4M3));
    TRY(ctx->device->upload(ctx->device, scale, &one, sizeof one));
    return measure_product(ctx, at, n, E4M3, (const float *)(const void *)scale, &peaks->flops8);
}

typedef struct {
    Device *device;
    void *bytes;
} Memory;

static void memory_give_back(Memory *memory) {
    if (memory->bytes) memory->device->release(memory->device, memory->bytes);
}

/* Measures in memory of this size: a product and, unless `copied` is 0, copies. */
static Status measure_in(Ctx *ctx, int64_t n, size_t copied, size_t bytes, Peaks *peaks) {
    CLOSED_BY(memory_give_back) Memory memory = {.device = ctx->device};
    TRY(ctx->device->allocate(ctx->device, bytes, &memory.bytes));
    TRY(fill_random(ctx->device, memory.bytes, bytes, ctx->dtype));
    TRY(measure_product(ctx, memory.bytes, n, ctx->dtype, NULL, &peaks->flops));
    if (needs_8_bits(ctx) && peaks->flops > 0) TRY(measure_8_bits(ctx, memory.bytes, n, peaks));
    return copied && peaks->flops > 0 ? measure_copies(ctx, memory.bytes, copied, peaks) : OK;
}

/* A rate that is not repeatable stays 0, and nothing is measured after it. */
static Status measure(Ctx *ctx, Peaks *peaks) {
    Device *device = ctx->device;
    bool gpu = device->backend == BACKEND_CUDA;
    int64_t n = !gpu ? 1024 : ctx->dtype == BF16 ? 8192 : 4096;
    size_t matrices = 3 * (size_t)(n * n) * dtype_size(ctx->dtype);
    size_t copied = device->stream ? 0 : COPIED, bytes = matrices > 2 * copied ? matrices : 2 * copied;
    *peaks = (Peaks){0};
    TRY(measure_in(ctx, n, copied, bytes, peaks));
    return !copied && peaks->flops > 0 ? measure_streams(ctx, peaks) : OK;
}

static Status take_zeros(Memory *memory, size_t bytes) {
    TRY(memory->device->allocate(memory->device, bytes, &memory->bytes));
    return memory->device->fill(memory->device, memory->bytes, 0, bytes);
}

/* The higher of the bus bandwidths of a sum and of a gathering. */
static Status measure_link(Comm *comm, double *link) {
    const size_t bytes = (size_t)(comm->device->backend == BACKEND_CUDA ? 256 : 16) << 20;
    const int64_t count = comm_padded(comm->size, (int64_t)(bytes / sizeof(float)));
    CLOSED_BY(memory_give_back) Memory memory = {.device = comm->device};
    double sum, gathering;
    TRY(rendezvous_agree(comm->rendezvous, take_zeros(&memory, (size_t)count * sizeof(float))));
    const Tensor whole = tensor_view(memory.bytes, F32, shape1(count));
    const Load load = {.comm = comm, .whole = whole};
    const double sent = (double)tensor_bytes(whole) * (1 - 1 / (double)comm->size);
    TRY(comm_share(comm, whole.data, tensor_bytes(whole)));
    TRY(time_runs(comm->device, run_sum, &load, LINK_RUNS, &sum)); // each rank must run equally many
    TRY(time_runs(comm->device, run_gather, &load, LINK_RUNS, &gathering));
    TRY(comm->device->synchronize(comm->device));
    TRY(comm_unshare(comm, whole.data));
    *link = sent / fmin(sum, gathering);
    return OK;
}

static json_t *cache_load(void) {
    OWNED char *path = path_in_cache("peaks.json", false);
    json_t *cache = NULL;
    if (path) status_free(json_read(path, CACHE_LIMIT, &cache));
    if (json_is_object(cache)) return cache;
    json_decref(cache);
    return json_object();
}

static void cache_store(json_t *cache) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
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
    OWNED char *path = path_in_cache("peaks.json", true);
    if (path) status_free(json_writer_save(&w, path));
}

/* Finds the rates seen earlier with this device, library and dtype; all 0 if there are none. */
static void find(const Ctx *ctx, const json_t *cache, char key[KEY_BYTES], Peaks *peaks) {
    *peaks = (Peaks){0};
    snprintf(key, KEY_BYTES, "%s | %s | %s", ctx->device->name, ctx->device->library,
             ctx->tf32 ? "tf32" : dtype_name(ctx->dtype));
    const json_t *found = json_object_get(cache, key);
    Status status = fields_check(found, peaks_fields, "");
    if (!status) fields_read(found, peaks_fields, peaks);
    status_free(status);
    bool old = ctx->device->stream && peaks->read == 0; // the file may come from a version that timed copies
                                                        // of one thread
    if (!peaks_known(peaks) || old) *peaks = (Peaks){0};
    peaks->dense = datasheet_peaks(ctx->device->name, ctx->dtype, ctx->tf32).flops;
}

static void keep(json_t *cache, const char *key, const Peaks *peaks) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    fields_write(&w, peaks_fields, peaks);
    json_object_set_new(cache, key, json_loadb(w.text, w.length, 0, NULL));
    cache_store(cache);
}

static Peaks larger(Peaks a, const Peaks *b) {
    for (const Field *f = peaks_fields; f->key; f++) {
        double *mine = (double *)(void *)((char *)&a + f->offset);
        *mine = fmax(*mine, *(const double *)(const void *)((const char *)b + f->offset));
    }
    return a;
}

bool peaks_remember(const Ctx *ctx, Peaks *peaks) {
    char key[KEY_BYTES];
    json_auto_t *cache = cache_load();
    find(ctx, cache, key, peaks);
    return peaks_known(peaks) && (peaks->flops8 > 0 || !needs_8_bits(ctx));
}

Status peaks_measure(Ctx *ctx, Peaks *peaks) {
    char key[KEY_BYTES];
    Peaks now;
    json_auto_t *cache = cache_load();
    find(ctx, cache, key, peaks);
    const CoreTimes cores = cores_read();
    TRY(measure(ctx, &now));
    if (ctx->device->backend == BACKEND_CPU && cores_waited(cores) > CORES_SHARED) {
        peaks->note = "other programs used the cores during the measurement; repeat --peaks when they do not";
    } else if (!peaks_known(&now)) {
        peaks->note = "the measurements varied by more than 2%; repeat --peaks on a quiet machine";
    } else {
        *peaks = larger(*peaks, &now);
        keep(cache, key, peaks);
    }
    return OK;
}

Status peaks_link(Comm *comm, bool measuring, Peaks *peaks) {
    char key[KEY_BYTES];
    if (!comm) return OK;
    json_auto_t *cache = cache_load();
    snprintf(key, sizeof key, "%s | %d ranks | %s", comm->device->name, comm->size, comm->name);
    double before = json_number_value(json_object_get(json_object_get(cache, key), "link")), link = 0;
    if (measuring) TRY(measure_link(comm, &link));
    peaks->link = fmax(link, before);
    if (link > before && comm->rank == 0) {
        json_object_set_new(cache, key, json_pack("{s:f}", "link", link));
        cache_store(cache);
    }
    return OK;
}
