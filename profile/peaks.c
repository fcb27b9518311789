#include "profile/peaks.h"

#include "base/bfloat16.h"
#include "base/directories.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernels/gemm/gemm.h"
#include "profile/stats.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 12, COPIES = 4, CACHE_LIMIT = 1 << 20, PATTERN = 1 << 20 };

/* A GPU that has just worked, say to choose the product's kernel, is held back by its limit of power, by a
 * tenth and more: before so many runs it rests. */
enum { BURST = 3, REST_MS = 30 };

double limit_share(const Peaks *peaks, Work work, double ns) {
    if (!peaks_known(peaks) || !(ns > 0)) return 0;
    return 1e9 * fmax(work.flops / peaks->flops, work.bytes / peaks->bandwidth) / ns;
}

bool limit_is_arithmetic(const Peaks *peaks, Work work) {
    return peaks_known(peaks) && work.flops / peaks->flops >= work.bytes / peaks->bandwidth;
}

const char *limit_name(const Peaks *peaks, Work work) {
    return !peaks_known(peaks) ? "" : limit_is_arithmetic(peaks, work) ? "arithmetic" : "memory";
}

/* ---- what the makers promise ---- */

typedef struct {
    const char *name;        // a part of the device's
    double bf16, tf32, fp32; // TFLOP/s without sparsity; fp32 of the ordinary units
    double bandwidth;        // TB/s
} Sheet;

/* NVIDIA's data sheets of each; the more special name first. */
static const Sheet sheets[] = {
    {"H200", 989.4, 494.7, 66.9, 4.8},         {"H100 PCIe", 756, 378, 51.2, 2.0},
    {"H100", 989.4, 494.7, 66.9, 3.35},        {"A100-SXM4-80GB", 312, 156, 19.5, 2.039},
    {"A100 80GB PCIe", 312, 156, 19.5, 1.935}, {"A100-SXM4-40GB", 312, 156, 19.5, 1.555},
    {"A100-PCIE-40GB", 312, 156, 19.5, 1.555}, {"L40S", 362, 183, 91.6, 0.864},
    {"RTX 4090", 165.2, 82.6, 82.6, 1.008},    {"RTX 3090", 71, 35.6, 35.6, 0.936},
};

Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32) {
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++) {
        const Sheet *s = &sheets[i];
        if (!strstr(device, s->name)) continue;
        double rate = dtype == BF16 ? s->bf16 : tf32 ? s->tf32 : s->fp32;
        return (Peaks){1e12 * rate, 1e12 * s->bandwidth};
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

/* Copies come a few in a row: on the way to a GPU one alone spends 1% of its time. */
static Status run(Ctx *ctx, const Gemm *product, void *to, const void *from, size_t bytes) {
    if (product) return gemm(ctx, product);
    for (int i = 0; i < COPIES; i++) TRY(ctx->device->copy(ctx->device, to, from, bytes));
    return OK;
}

static Status time_runs(Ctx *ctx, const Gemm *product, void *to, const void *from, size_t bytes,
                        double *seconds) {
    Device *device = ctx->device;
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
        if (!status) status = run(ctx, product, to, from, bytes);
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
    Gemm product = {.a = at,
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
                    .alpha = 1};
    double seconds = 0;
    Status status = fill_random(device, memory, bytes, ctx->dtype);
    if (!status) status = time_runs(ctx, &product, NULL, NULL, 0, &seconds);
    peaks->flops = 2.0 * (double)n * (double)n * (double)n / seconds;
    if (!status) status = time_runs(ctx, NULL, at + bytes / 2, at, copied, &seconds);
    peaks->bandwidth = 2.0 * COPIES * (double)copied / seconds;
    device->release(device, memory);
    return status;
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
    const char *key;
    json_t *peaks;
    json_write_open(&w, '{');
    json_object_foreach(cache, key, peaks) {
        json_write_line(&w, 1, true);
        json_member_open(&w, key, '{');
        json_member_number(&w, "flops", json_number_value(json_object_get(peaks, "flops")));
        json_member_number(&w, "bandwidth", json_number_value(json_object_get(peaks, "bandwidth")));
        json_write_close(&w, '}');
    }
    json_write_close(&w, '}');
    char *path = path_in_cache("peaks.json", true);
    if (path) status_free(json_writer_save(&w, path));
    memory_free(path);
    json_writer_free(&w);
}

/* What was seen of this device, library and dtype before. */
static void find(const Ctx *ctx, const json_t *cache, char key[400], Peaks *peaks) {
    snprintf(key, 400, "%s | %s | %s", ctx->device->name, ctx->device->library,
             ctx->tf32 ? "tf32" : dtype_name(ctx->dtype));
    const json_t *found = json_object_get(cache, key);
    double flops = json_number_value(json_object_get(found, "flops"));
    double bandwidth = json_number_value(json_object_get(found, "bandwidth"));
    *peaks = flops > 0 && bandwidth > 0 ? (Peaks){flops, bandwidth} : (Peaks){0};
}

void peaks_remember(const Ctx *ctx, Peaks *peaks) {
    char key[400];
    json_t *cache = cache_load();
    find(ctx, cache, key, peaks);
    json_decref(cache);
}

Status peaks_measure(Ctx *ctx, Peaks *peaks) {
    char key[400];
    Peaks before;
    json_t *cache = cache_load();
    find(ctx, cache, key, &before);
    Status status = measure(ctx, peaks);
    if (!status) {
        bool better = peaks->flops > before.flops || peaks->bandwidth > before.bandwidth;
        *peaks = (Peaks){fmax(before.flops, peaks->flops), fmax(before.bandwidth, peaks->bandwidth)};
        if (better) {
            json_object_set_new(
                cache, key, json_pack("{s:f, s:f}", "flops", peaks->flops, "bandwidth", peaks->bandwidth));
            cache_store(cache);
        }
    }
    json_decref(cache);
    return status;
}
