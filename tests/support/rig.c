#include "tests/support/rig.h"

#include "base/groups.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const Variant specification = {"cpu naive fp64", BACKEND_CPU, FORM_NAIVE, F64, false};
const Variant variants[VARIANT_COUNT] = {
    {"cpu naive fp32", BACKEND_CPU, FORM_NAIVE, F32, false},
    {"cpu fused fp32", BACKEND_CPU, FORM_FUSED, F32, false},
    {"cuda naive fp32", BACKEND_CUDA, FORM_NAIVE, F32, false},
    {"cuda naive tf32", BACKEND_CUDA, FORM_NAIVE, F32, true},
    {"cuda naive bf16", BACKEND_CUDA, FORM_NAIVE, BF16, false},
    {"cuda fused fp32", BACKEND_CUDA, FORM_FUSED, F32, false},
    {"cuda fused tf32", BACKEND_CUDA, FORM_FUSED, F32, true},
    {"cuda fused bf16", BACKEND_CUDA, FORM_FUSED, BF16, false},
    {"cpu naive bf16", BACKEND_CPU, FORM_NAIVE, BF16, false},
    {"cpu fused bf16", BACKEND_CPU, FORM_FUSED, BF16, false},
};

enum { POISON = 0xFF };

/* State that is kept between tests: devices, and the running test's arrays and position in the random
 * stream. */
static struct {
    Device *devices[BACKEND_COUNT];
    bool tried[BACKEND_COUNT];
    void **arrays;
    int array_count, array_room;
    uint64_t stream;
} held;

Device *test_device(Backend backend) {
    if (held.tried[backend]) return held.devices[backend];
    held.tried[backend] = true;
    if (backend == BACKEND_CPU) {
        expect_ok(device_open_cpu(0, &held.devices[backend]));
    } else if (!device_open_cuda) {
        print_message("this build has no CUDA: its tests are skipped\n");
    } else {
        Status status = device_open_cuda(0, &held.devices[backend]);
        if (status) {
            print_message("no GPU (%s): its tests are skipped\n", status_message(status));
            held.devices[backend] = NULL;
            status_free(status);
        }
    }
    return held.devices[backend];
}

__attribute__((constructor)) static void choose_tests(void) {
    const char *pattern = getenv("TEST_FILTER");
    if (pattern) cmocka_set_test_filter(pattern);
}

static Ctx context_of(const Variant *variant) {
    return (Ctx){.device = test_device(variant->backend),
                 .dtype = variant->dtype,
                 .tf32 = variant->tf32,
                 .fuses = variant->form == FORM_FUSED ? (1u << OP_COUNT) - 1 : 0,
                 .layer = -1,
                 .call = "operation"};
}

const Variant *test_variant(void **state, Operation operation) {
    const Variant *variant = *state;
    Ctx ctx = context_of(variant);
    if (!ctx.device || !slots_filled(ctx.device->backend, ctx.dtype, operation, variant->form)) skip();
    return variant;
}

int devices_end(void **state) {
    (void)state;
    for (int i = 0; i < BACKEND_COUNT; i++) {
        if (held.devices[i]) held.devices[i]->close(held.devices[i]);
        held.devices[i] = NULL;
        held.tried[i] = false;
    }
    return 0;
}

int test_end(void **state) {
    (void)state;
    for (int i = 0; i < held.array_count; i++) free(held.arrays[i]);
    free(held.arrays);
    held.arrays = NULL;
    held.array_count = held.array_room = 0;
    held.stream = 0;
    return 0;
}

static void *array_of(int64_t count, size_t size) {
    if (held.array_count == held.array_room) {
        held.array_room = 2 * held.array_room + 64;
        held.arrays = realloc(held.arrays, (size_t)held.array_room * sizeof *held.arrays);
        assert_non_null(held.arrays);
    }
    void *array = calloc((size_t)count + 1, size);
    assert_non_null(array);
    return held.arrays[held.array_count++] = array;
}

double *zeros(int64_t count) {
    return array_of(count, sizeof(double));
}

double *normals(int64_t count, double scale, Dtype dtype) {
    double *values = zeros(count);
    float *draws = array_of(count, sizeof *draws);
    random_normals(1, held.stream++, 0, 1, draws, count);
    for (int64_t i = 0; i < count; i++) values[i] = rounded(dtype, scale * (double)draws[i]);
    return values;
}

int32_t *integers(int64_t count, int32_t below) {
    int32_t *values = array_of(count, sizeof *values);
    uint64_t stream = held.stream++;
    for (int64_t i = 0; i < count; i++)
        values[i] = (int32_t)random_below(1, stream, (uint64_t)i, (uint64_t)below);
    return values;
}

/* The upper half of the fp32 number, rounded to nearest, ties to even. Finite numbers only. */
static uint16_t bf16_bits(double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (isfinite(narrow)) bits += 0x7FFF + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}

static double bf16_value(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

double rounded(Dtype dtype, double value) {
    return dtype == F64 ? value : dtype == BF16 ? bf16_value(bf16_bits(value)) : (double)(float)value;
}

void round_to_groups(float *values, Dtype dtype, Shape shape) {
    const int64_t count = shape_count(shape), per_row = shape.d[1] / GROUP;
    Tensor matrix = tensor_view(memory_array((size_t)count, 1), dtype, shape);
    matrix.scales = memory_array((size_t)(count / GROUP), sizeof(uint16_t));
    groups_quantize(matrix, 0, count, values, NULL);
    for (int64_t g = 0; g < count / GROUP; g++) {
        int8_t codes[GROUP];
        const float scale = groups_codes(matrix, g / per_row, g % per_row, codes);
        for (int i = 0; i < GROUP; i++) values[g * GROUP + i] = scale * (float)codes[i];
    }
    memory_free(matrix.data);
    memory_free(matrix.scales);
}

static void encode(Dtype dtype, const double *values, int64_t count, void *bytes) {
    for (int64_t i = 0; i < count; i++) {
        if (dtype == F64) ((double *)bytes)[i] = values[i];
        if (dtype == F32) ((float *)bytes)[i] = (float)values[i];
        if (dtype == BF16) ((uint16_t *)bytes)[i] = bf16_bits(values[i]);
    }
}

static void decode(Dtype dtype, const void *bytes, int64_t count, double *values) {
    for (int64_t i = 0; i < count; i++) {
        if (dtype == F64) values[i] = ((const double *)bytes)[i];
        if (dtype == F32) values[i] = (double)((const float *)bytes)[i];
        if (dtype == BF16) values[i] = bf16_value(((const uint16_t *)bytes)[i]);
    }
}

Tensor rig_blank(Rig *rig, const char *name, Dtype dtype, Shape shape) {
    Tensor t = {0};
    if (shape.rank) expect_ok(take(&rig->ctx, ARENA_PARAMETERS, name, dtype, shape, &t));
    return t;
}

static void upload(Rig *rig, Tensor t, const void *bytes) {
    Device *device = rig->ctx.device;
    expect_ok(device->upload(device, t.data, bytes, tensor_bytes(t)));
}

void rig_set(Rig *rig, Tensor t, const double *values) {
    if (rig->ctx.measuring || tensor_count(t) == 0) return;
    void *bytes = malloc(tensor_bytes(t));
    assert_non_null(bytes);
    encode(t.dtype, values, tensor_count(t), bytes);
    upload(rig, t, bytes);
    free(bytes);
}

Tensor rig_put(Rig *rig, const char *name, Dtype dtype, Shape shape, const double *values) {
    Tensor t = rig_blank(rig, name, dtype, shape);
    rig_set(rig, t, values);
    return t;
}

Tensor rig_put_ints(Rig *rig, const char *name, Shape shape, const int32_t *values) {
    Tensor t = rig_blank(rig, name, I32, shape);
    if (!rig->ctx.measuring && tensor_count(t)) upload(rig, t, values);
    return t;
}

Tensor rig_put_bytes(Rig *rig, const char *name, Shape shape, const uint8_t *values) {
    Tensor t = rig_blank(rig, name, U8, shape);
    if (!rig->ctx.measuring && tensor_count(t)) upload(rig, t, values);
    return t;
}

void rig_get(Rig *rig, Tensor t, double *values) {
    if (rig->ctx.measuring || tensor_count(t) == 0) return;
    Device *device = rig->ctx.device;
    int64_t rows = tensor_rows(t), width = tensor_width(t), stride = rows > 1 ? t.stride : width;
    int64_t span = (rows - 1) * stride + width;
    unsigned char *bytes = malloc((size_t)span * dtype_size(t.dtype));
    assert_non_null(bytes);
    expect_ok(device->download(device, bytes, t.data, (size_t)span * dtype_size(t.dtype)));
    for (int64_t i = 0; i < rows; i++)
        decode(t.dtype, bytes + (size_t)(i * stride) * dtype_size(t.dtype), width, values + i * width);
    free(bytes);
}

static void rewind_arenas(Rig *rig) {
    for (int i = 0; i < ARENA_COUNT; i++) arena_release(&rig->ctx.arenas[i], (ArenaMark){0, 0});
}

static void open_rig(Rig *rig, const Variant *variant, Body body, const void *what, double *const *in,
                     double *const *out) {
    *rig = (Rig){.ctx = context_of(variant), .variant = variant};
    static const char *const names[ARENA_COUNT] = {"tensors", "gradients", "optimizer", "saved", "scratch"};
    for (int i = 0; i < ARENA_COUNT; i++) rig->ctx.arenas[i] = (Arena){.name = names[i], .canaries = true};
    rig->ctx.measuring = true;
    body(rig, what, in, out);
    rewind_arenas(rig);
    rig->ctx.measuring = false;
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena *arena = &rig->ctx.arenas[i];
        void *memory = NULL;
        if (arena->peak) expect_ok(rig->ctx.device->allocate(rig->ctx.device, arena->peak, &memory));
        arena->base = memory;
        arena->capacity = arena->peak;
    }
}

static void run(Rig *rig, Body body, const void *what, double *const *in, double *const *out) {
    Device *device = rig->ctx.device;
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena *arena = &rig->ctx.arenas[i];
        if (arena->base) expect_ok(device->fill(device, arena->base, POISON, arena->capacity));
    }
    body(rig, what, in, out);
    expect_ok(device->synchronize(device));
}

static void close_rig(Rig *rig) {
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena *arena = &rig->ctx.arenas[i];
        if (arena->base) rig->ctx.device->release(rig->ctx.device, arena->base);
        arena_close(arena);
    }
}

void rig_run_once(const Variant *variant, Body body, const void *what, double *const *in,
                  double *const *out) {
    Rig rig;
    open_rig(&rig, variant, body, what, in, out);
    run(&rig, body, what, in, out);
    close_rig(&rig);
}

static unsigned char *contents(Rig *rig, ArenaKind kind) {
    const Arena *arena = &rig->ctx.arenas[kind];
    unsigned char *bytes = malloc(arena->used + 1);
    assert_non_null(bytes);
    if (arena->used) expect_ok(rig->ctx.device->download(rig->ctx.device, bytes, arena->base, arena->used));
    return bytes;
}

/* After each tensor: the canary of --check, then poison up to the next tensor. */
static void expect_gaps_untouched(const Rig *rig, ArenaKind kind, const unsigned char *bytes) {
    const Arena *arena = &rig->ctx.arenas[kind];
    for (int e = 0; e < arena->count; e++) {
        size_t first = arena->entries[e].offset + arena->entries[e].bytes;
        size_t end = e + 1 < arena->count ? arena->entries[e + 1].offset : arena->used;
        for (size_t i = first; i < end; i++)
            if (bytes[i] != (i - first < ARENA_CANARY_BYTES ? ARENA_CANARY_BYTE : POISON))
                fail_msg("%s wrote past the end of %s", rig->variant->name,
                         arena_name(&arena->entries[e]).text);
    }
}

static void expect_same_bits(const Rig *rig, ArenaKind kind, const unsigned char *a, const unsigned char *b) {
    const Arena *arena = &rig->ctx.arenas[kind];
    for (int e = 0; e < arena->count; e++) {
        const ArenaEntry *entry = &arena->entries[e];
        if (memcmp(a + entry->offset, b + entry->offset, entry->bytes) != 0)
            fail_msg("%s: a second run gave other bits in %s", rig->variant->name, arena_name(entry).text);
    }
}

void rig_run(const Variant *variant, Body body, const void *what, double *const *in, double *const *out) {
    static const ArenaKind kept[2] = {ARENA_PARAMETERS, ARENA_SAVED};
    Rig rig;
    unsigned char *first[2], *second[2];
    open_rig(&rig, variant, body, what, in, out);
    run(&rig, body, what, in, out);
    for (int i = 0; i < 2; i++) {
        first[i] = contents(&rig, kept[i]);
        expect_gaps_untouched(&rig, kept[i], first[i]);
    }
    rewind_arenas(&rig);
    run(&rig, body, what, in, out);
    for (int i = 0; i < 2; i++) {
        second[i] = contents(&rig, kept[i]);
        expect_same_bits(&rig, kept[i], first[i], second[i]);
        free(first[i]);
        free(second[i]);
    }
    close_rig(&rig);
}
