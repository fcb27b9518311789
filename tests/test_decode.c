/* A token through the stack, in each form, against the specification in double precision. The bound is
 * measured as in test_model.c: what disturbing the weights by the dtype's unit roundoff does, ALLOWED times.
 */
#include "kernels/decode/decode.h"

#include "base/random.h"
#include "tests/support/compare.h"

#include <math.h>
#include <string.h>

enum { ALLOWED = 10, DISTURBANCES = 2, MOST_LAYERS = 2 };

typedef struct {
    int64_t layers, width, heads, kv_heads, head_size, hidden, vocab;
    int64_t capacity, past, steps;
    bool device_past;
    Activation activation;
    bool norm_after;
    int64_t source, length; // rows of the encoder's memory, 0: none; of them, those that count, -1: all
    double noise;           // relative, on the weights; fp64 only
    uint64_t seed;
} Case;

static const Case cases[] = {
    {1, 64, 2, 2, 32, 256, 67, 9, 0, 2, false, ACTIVATION_GELU_TANH, false, 0, 0, 0, 0},
    {2, 128, 4, 4, 32, 512, 131, 40, 33, 3, true, ACTIVATION_GELU_TANH, false, 0, 0, 0, 0},
    {2, 128, 4, 2, 64, 256, 100, 300, 290, 2, true, ACTIVATION_RELU, false, 0, 0, 0, 0},
    {1, 192, 3, 3, 64, 768, 1000, 1500, 1400, 1, true, ACTIVATION_GELU_TANH, false, 0, 0, 0, 0},
    {1, 256, 2, 1, 128, 1024, 300, 90, 70, 2, false, ACTIVATION_TANH, false, 0, 0, 0, 0},
    {1, 384, 12, 12, 32, 512, 303, 20, 9, 2, true, ACTIVATION_GELU_TANH, false, 0, 0, 0, 0},
    {2, 64, 17, 17, 32, 256, 40, 20, 9, 2, true, ACTIVATION_GELU_TANH, false, 0, 0, 0, 0},
    {2, 60, 3, 3, 20, 100, 50, 12, 5, 3, true, ACTIVATION_TANH, false, 0, 0, 0, 0}, // no CUDA kernel fits
    {1, 256, 4, 4, 64, 2048, 301, 40, 20, 2, true, ACTIVATION_RELU, true, 24, -1, 0, 0},
    {2, 128, 4, 4, 32, 512, 131, 40, 33, 3, true, ACTIVATION_RELU, true, 5, 3, 0, 0},
    {1, 192, 3, 3, 64, 768, 100, 9, 0, 2, false, ACTIVATION_RELU, true, 1, -1, 0, 0},
    {1, 256, 2, 1, 128, 512, 300, 20, 7, 2, true, ACTIVATION_RELU, true, 150, 149, 0, 0}, // keys shared out
    {1, 64, 2, 2, 32, 256, 67, 9, 3, 2, true, ACTIVATION_TANH, true, 4, 0, 0, 0},         // none to be seen
    {2, 128, 4, 4, 32, 256, 67, 9, 3, 2, true, ACTIVATION_GELU, true, 0, 0, 0, 0},
    {2, 128, 4, 2, 64, 256, 100, 300, 290, 2, true, ACTIVATION_GELU, false, 301, 290, 0, 0},
    {2, 60, 3, 3, 20, 100, 50, 12, 5, 3, true, ACTIVATION_RELU, true, 7, 6, 0, 0}, // none fits
};
enum { CASES = sizeof cases / sizeof *cases };

/* The weights in order; a layer's matrices and vectors are cut from its own array. */
enum { TOKEN, POSITION, HEAD, FINAL, LAYER, CACHES = LAYER + MOST_LAYERS, MEMORIES, INPUTS };

static int64_t queries_of(const Case *c) {
    return c->heads * c->head_size;
}
static int64_t kv_of(const Case *c) {
    return c->kv_heads * c->head_size;
}

enum { MAPS = 9 };

/* (out, in) of a layer's affine maps in the order of DecodeLayer; in = 0: a norm. */
static void layer_shapes(const Case *c, int64_t shapes[MAPS][2]) {
    const int64_t all[MAPS][2] = {{c->width, 0},
                                  {queries_of(c) + 2 * kv_of(c), c->width},
                                  {c->width, queries_of(c)},
                                  {c->width, 0},
                                  {c->hidden, c->width},
                                  {c->width, c->hidden},
                                  {c->width, 0},
                                  {queries_of(c), c->width},
                                  {c->width, queries_of(c)}};
    memcpy(shapes, all, sizeof all);
}

static int64_t layer_count(const Case *c) {
    int64_t shapes[MAPS][2], count = 0;
    layer_shapes(c, shapes);
    for (int i = 0; i < MAPS; i++) count += shapes[i][0] * (shapes[i][1] ? shapes[i][1] + 1 : 2);
    return count;
}

static int64_t cache_count(const Case *c) {
    return c->layers * c->capacity * kv_of(c);
}

static int64_t memory_count(const Case *c) {
    return c->layers * c->source * 2 * kv_of(c);
}

static Tensor rows_of_layer(Tensor all, int64_t layer, int64_t rows, int64_t width) {
    size_t bytes = (size_t)(layer * rows * width) * dtype_size(all.dtype);
    return tensor_view((char *)all.data + bytes, all.dtype, shape2(rows, width));
}

/* Puts the next `count` numbers, disturbed. */
static Tensor put(Rig *rig, const Case *c, const char *name, Shape shape, const double **from) {
    int64_t count = shape_count(shape);
    const double *values = *from;
    *from += count;
    if (c->noise > 0) {
        double *moved = zeros(count);
        for (int64_t i = 0; i < count; i++)
            moved[i] = values[i] * (1 + c->noise * random_normal(c->seed, (uint64_t)count, (uint64_t)i));
        values = moved;
    }
    return rig_put(rig, name, rig->ctx.dtype, shape, values);
}

/* memory: of all layers, or empty */
static DecodeLayer put_layer(Rig *rig, const Case *c, const double *values, Tensor k, Tensor v, Tensor memory,
                             int64_t i) {
    int64_t shapes[MAPS][2];
    DecodeAffine a[MAPS] = {0};
    layer_shapes(c, shapes);
    for (int m = 0; m < (c->source ? MAPS : 6); m++) {
        Shape weight = shapes[m][1] ? shape2(shapes[m][0], shapes[m][1]) : shape1(shapes[m][0]);
        a[m].weight = put(rig, c, "weight", weight, &values);
        a[m].bias = put(rig, c, "bias", shape1(shapes[m][0]), &values);
    }
    return (DecodeLayer){.norm1 = a[0],
                         .qkv = a[1],
                         .projection = a[2],
                         .norm2 = a[3],
                         .expand = a[4],
                         .contract = a[5],
                         .cross_norm = a[6],
                         .query = a[7],
                         .cross_projection = a[8],
                         .cache_k = rows_of_layer(k, i, c->capacity, kv_of(c)),
                         .cache_v = rows_of_layer(v, i, c->capacity, kv_of(c)),
                         .memory = c->source ? rows_of_layer(memory, i, c->source, 2 * kv_of(c)) : memory};
}

/* The cache without the rows that nobody has written. */
static void get_cache(Rig *rig, const Case *c, Tensor cache, double *values) {
    rig_get(rig, cache, values);
    int64_t kv = kv_of(c), there = c->past + c->steps;
    for (int64_t i = 0; i < c->layers; i++)
        memset(values + (i * c->capacity + there) * kv, 0,
               (size_t)((c->capacity - there) * kv) * sizeof *values);
}

/* out: logits (steps, vocab), keys and values (layers, capacity, kv) */
static void body(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const Shape caches = shape3(c->layers, c->capacity, kv_of(c)), none = {0};
    const Shape memories = c->source ? shape3(c->layers, c->source, 2 * kv_of(c)) : none;
    const int32_t length = (int32_t)c->length;
    const double *token = in[TOKEN], *position = in[POSITION], *head = in[HEAD], *final = in[FINAL];
    DecodeLayer layers[MOST_LAYERS];
    Tensor k = rig_put(rig, "k", rig->ctx.dtype, caches, in[CACHES]);
    Tensor v = rig_put(rig, "v", rig->ctx.dtype, caches, in[CACHES] + cache_count(c));
    Tensor memory = rig_put(rig, "memory", rig->ctx.dtype, memories, in[MEMORIES]);
    for (int64_t i = 0; i < c->layers; i++) layers[i] = put_layer(rig, c, in[LAYER + i], k, v, memory, i);
    Decode d = {.token = put(rig, c, "token", shape2(c->vocab, c->width), &token),
                .position = put(rig, c, "position", shape2(c->capacity, c->width), &position),
                .layers = layers,
                .layer_count = c->layers,
                .final_norm = {put(rig, c, "weight", c->norm_after ? none : shape1(c->width), &final),
                               put(rig, c, "bias", c->norm_after ? none : shape1(c->width), &final)},
                .head = put(rig, c, "head", shape2(c->vocab, c->width), &head),
                .heads = c->heads,
                .kv_heads = c->kv_heads,
                .token_scale = c->norm_after ? sqrt((double)c->width) : 1,
                .norm_after = c->norm_after,
                .memory_length = rig_put_ints(rig, "length", c->length < 0 ? none : shape1(1), &length),
                .scale = 1 / sqrt((double)c->head_size),
                .eps = 1e-5,
                .activation = c->activation};
    for (int64_t step = 0; step < c->steps; step++) {
        const int32_t id = (int32_t)((7 * step + 3) % c->vocab), past = (int32_t)(c->past + step);
        d.token_id = rig_put_ints(rig, "id", shape1(1), &id);
        d.past_on_device = rig_put_ints(rig, "past", c->device_past ? shape1(1) : none, &past);
        /* The host's number is the right one where the device's is not looked at. */
        const bool fused = rig->ctx.device->backend == BACKEND_CUDA && rig->variant->form == FORM_FUSED;
        d.past = c->device_past && fused ? c->capacity - 1 : past;
        d.logits = rig_blank(rig, "logits", wide_dtype(&rig->ctx), shape2(1, c->vocab));
        expect_ok(decode_forward(&rig->ctx, &d));
        rig_get(rig, d.logits, out[0] + step * c->vocab);
    }
    get_cache(rig, c, k, out[1]);
    get_cache(rig, c, v, out[2]);
}

static double *scaled(int64_t count, double scale, double shift, Dtype dtype) {
    double *values = normals(count, scale, F64);
    for (int64_t i = 0; i < count; i++) values[i] = rounded(dtype, shift + values[i]);
    return values;
}

static double *layer_values(const Case *c, Dtype dtype) {
    int64_t shapes[MAPS][2];
    layer_shapes(c, shapes);
    double *all = zeros(layer_count(c)), *at = all;
    for (int i = 0; i < MAPS; i++) {
        int64_t out = shapes[i][0], in = shapes[i][1], weights = in ? out * in : out;
        memcpy(at, scaled(weights, in ? 1 / sqrt((double)in) : 0.3, in ? 0 : 1, dtype),
               (size_t)weights * sizeof *at);
        at += weights;
        memcpy(at, scaled(out, 0.3, 0, dtype), (size_t)out * sizeof *at);
        at += out;
    }
    return all;
}

static void make_inputs(const Case *c, Dtype dtype, double **in) {
    in[TOKEN] = scaled(c->vocab * c->width, 1, 0, dtype);
    in[POSITION] = scaled(c->capacity * c->width, 0.5, 0, dtype);
    in[HEAD] = scaled(c->vocab * c->width, 1 / sqrt((double)c->width), 0, dtype);
    in[FINAL] = scaled(2 * c->width, 0.3, 1, dtype);
    for (int64_t i = 0; i < c->layers; i++) in[LAYER + i] = layer_values(c, dtype);
    in[CACHES] = scaled(2 * cache_count(c), 1, 0, dtype);
    for (int64_t i = 0; i < 2 * cache_count(c); i++) // what is not there yet must not be read
        if (i / kv_of(c) % c->capacity >= c->past) in[CACHES][i] = NAN;
    in[MEMORIES] = scaled(memory_count(c), 1, 0, dtype);
    for (int64_t i = 0; c->length >= 0 && i < memory_count(c); i++) // what does not count
        if (i / (2 * kv_of(c)) % c->source >= c->length) in[MEMORIES][i] = 100;
}

enum { OUTPUTS = 3 };

static void make_outputs(const Case *c, int64_t counts[OUTPUTS], double **out) {
    counts[0] = c->steps * c->vocab;
    counts[1] = counts[2] = cache_count(c);
    for (int o = 0; o < OUTPUTS; o++) out[o] = zeros(counts[o]);
}

static double length_of(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
    return sqrt(sum);
}

static double distance_of(const double *a, const double *b, int64_t count) {
    double *difference = zeros(count);
    for (int64_t i = 0; i < count; i++) difference[i] = a[i] - b[i];
    return length_of(difference, count);
}

static void form_follows_the_specification(void **state) {
    static const char *const names[OUTPUTS] = {"logits", "keys", "values"};
    const Variant *variant = test_variant(state, OP_DECODE);
    const Units units = units_of(variant);
    for (int n = 0; n < CASES; n++) {
        const Case *c = &cases[n];
        double *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS], *moved[OUTPUTS], change[OUTPUTS] = {0};
        int64_t counts[OUTPUTS];
        make_inputs(c, variant->dtype, in);
        make_outputs(c, counts, want);
        make_outputs(c, counts, got);
        make_outputs(c, counts, moved);
        rig_run_once(&specification, body, c, in, want);
        for (int i = 0; i < DISTURBANCES; i++) {
            Case disturbed = *c;
            disturbed.noise = fmax(units.storage, units.product);
            disturbed.seed = (uint64_t)i + 1;
            rig_run_once(&specification, body, &disturbed, in, moved);
            for (int o = 0; o < OUTPUTS; o++)
                change[o] = fmax(change[o], distance_of(moved[o], want[o], counts[o]));
        }
        rig_run(variant, body, c, in, got);
        for (int o = 0; o < OUTPUTS; o++) {
            double off = distance_of(got[o], want[o], counts[o]);
            if (!(off <= ALLOWED * change[o]))
                fail_msg("%s, case %d: %s are off by %.3g, but %.3g is allowed (their norm is %.3g)",
                         variant->name, n, names[o], off, ALLOWED * change[o], length_of(want[o], counts[o]));
        }
    }
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const Tensor row = tensor_view(NULL, F32, shape1(8)), square = tensor_view(NULL, F32, shape2(8, 8));
    const DecodeAffine norm = {row, row}, linear = {square, row};
    const DecodeAffine qkv = {tensor_view(NULL, F32, shape2(24, 8)), tensor_view(NULL, F32, shape1(24))};
    const DecodeLayer layer = {.norm1 = norm,
                               .qkv = qkv,
                               .projection = linear,
                               .norm2 = norm,
                               .expand = linear,
                               .contract = linear,
                               .cache_k = square,
                               .cache_v = square};
    DecodeLayer wrong_layer = layer, without_query = layer;
    wrong_layer.qkv = linear;
    without_query.cross_norm = norm;
    without_query.cross_projection = linear;
    without_query.memory = tensor_view(NULL, F32, shape2(5, 16));
    const Decode right = {.token_id = tensor_view(NULL, I32, shape1(1)),
                          .token = square,
                          .position = square,
                          .layers = &layer,
                          .layer_count = 1,
                          .final_norm = norm,
                          .head = square,
                          .logits = row,
                          .heads = 2,
                          .kv_heads = 2};
    Decode wrong[] = {right, right, right, right, right, right, right, right, right};
    enum { WRONG = sizeof wrong / sizeof *wrong };
    wrong[0].past = 8;
    wrong[1].heads = 3;
    wrong[2].layer_count = 0;
    wrong[3].token_id = row;
    wrong[4].layers = &wrong_layer;
    wrong[5].logits = tensor_view(NULL, F32, shape1(7));
    wrong[6].layers = &without_query;
    wrong[7].memory_length = row;
    wrong[8].final_norm = (DecodeAffine){0};
    for (int i = 0; i < WRONG; i++) {
        Status status = decode_forward(&ctx, &wrong[i]);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
    ctx.training = true;
    Status status = decode_forward(&ctx, &right);
    assert_int_equal(status_code(status), ERROR_INTERNAL);
    status_free(status);
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(form_follows_the_specification)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
