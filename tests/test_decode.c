/* A token through the decoder against the naive form in double precision, and the naive form against
 * transformer_forward, to the last bit. The bound is measured as in test_model.c: ALLOWED times the effect of
 * disturbing the weights by the dtype's unit roundoff. */
#include "model/transformer.h"

#include "base/memory.h"
#include "base/random.h"
#include "tests/support/compare.h"

#include <math.h>
#include <string.h>

enum { ALLOWED = 10, DISTURBANCES = 2 };

typedef struct {
    int64_t layers, width, heads, kv_heads, hidden, vocab;
    int64_t capacity, past, steps;
    bool device_past;
    Activation activation;
    bool norm_after;
    int64_t source, length; // rows of the encoder's memory, 0: none; valid rows, -1: all
    bool odd;               // no CUDA kernel serves these sizes, in bf16 only heads of whole 16 columns
    double noise;           // relative, on the weights; fp64 only
    uint64_t seed;
    const char *preset; // preset of the model's family; NULL: GPT-2, or with a source the encoder-decoder
    int64_t head_size;  // 0: width / heads
    bool by_model;
    bool groups; // matrices are I8 by groups on a GPU, where the others have their values
} Case;

#define SWIGLU ACTIVATION_SWIGLU

/* Includes an odd number of parts, and memories whose keys are divided among blocks, or of which none is
 * visible. */
static const Case cases[] = {
    {1, 64, 2, 2, 256, 67, 9, 0, 2, .activation = ACTIVATION_GELU_TANH},
    {2, 128, 4, 4, 512, 131, 40, 33, 3, .device_past = true, .activation = ACTIVATION_GELU_TANH},
    {2, 256, 4, 2, 256, 100, 300, 290, 2, .device_past = true, .activation = ACTIVATION_RELU},
    {1, 192, 3, 3, 768, 1000, 1500, 1400, 1, .device_past = true, .activation = ACTIVATION_GELU_TANH},
    {1, 256, 2, 1, 1024, 300, 90, 70, 2, .activation = ACTIVATION_TANH},
    {1, 384, 12, 12, 512, 303, 20, 9, 2, .device_past = true, .activation = ACTIVATION_GELU_TANH},
    {2, 1088, 17, 17, 256, 40, 20, 9, 2, .device_past = true, .activation = ACTIVATION_GELU_TANH},
    {2, 60, 3, 3, 100, 50, 12, 5, 3, .device_past = true, .activation = ACTIVATION_TANH, .odd = true},
    {1, 256, 4, 4, 2048, 301, 40, 20, 2, .device_past = true, .activation = ACTIVATION_RELU,
     .norm_after = true, .source = 24, .length = -1},
    {2, 128, 4, 4, 512, 131, 40, 33, 3, .device_past = true, .activation = ACTIVATION_RELU,
     .norm_after = true, .source = 5, .length = 3},
    {1, 192, 3, 3, 768, 100, 9, 0, 2, .activation = ACTIVATION_RELU, .norm_after = true, .source = 1,
     .length = -1},
    {1, 256, 2, 1, 512, 300, 20, 7, 2, .device_past = true, .activation = ACTIVATION_RELU, .norm_after = true,
     .source = 150, .length = 149},
    {1, 64, 2, 2, 256, 67, 9, 3, 2, .device_past = true, .activation = ACTIVATION_TANH, .norm_after = true,
     .source = 4},
    {2, 128, 4, 4, 256, 67, 9, 3, 2, .device_past = true, .activation = ACTIVATION_GELU, .norm_after = true},
    {2, 256, 4, 2, 256, 100, 300, 290, 2, .device_past = true, .activation = ACTIVATION_GELU, .source = 301,
     .length = 290},
    {2, 60, 3, 3, 100, 50, 12, 5, 3, .device_past = true, .activation = ACTIVATION_RELU, .norm_after = true,
     .source = 7, .length = 6, .odd = true},
    {2, 64, 2, 2, 176, 67, 9, 0, 3, .activation = SWIGLU, .preset = "llama-nano"},
    {2, 192, 3, 1, 200, 131, 400, 300, 3, .device_past = true, .activation = SWIGLU, .preset = "llama-nano"},
    {1, 448, 7, 1, 1304, 301, 1500, 1400, 2, .device_past = true, .activation = SWIGLU,
     .preset = "qwen2.5-0.5b"},
    {2, 136, 4, 2, 264, 99, 200, 127, 3, .device_past = true, .activation = SWIGLU, .preset = "qwen3-0.6b",
     .head_size = 128},
    {1, 72, 3, 3, 40, 17000, 40, 30, 1, .device_past = true, .activation = SWIGLU, .preset = "qwen3-0.6b",
     .head_size = 32},
    {1, 2048, 4, 2, 3000, 200, 9, 5, 1, .device_past = true, .activation = SWIGLU, .preset = "llama-nano",
     .head_size = 64},
    {2, 160, 2, 2, 200, 50, 12, 5, 3, .device_past = true, .activation = SWIGLU, .odd = true,
     .preset = "llama-nano"},
    {2, 192, 3, 1, 224, 256, 40, 30, 3, .device_past = true, .activation = SWIGLU, .preset = "llama-nano",
     .groups = true},
    {1, 448, 7, 1, 2336, 17152, 30, 20, 2, .device_past = true, .activation = SWIGLU,
     .preset = "qwen2.5-0.5b", .groups = true},
};
enum { CASES = sizeof cases / sizeof *cases };

enum { WIDE = 1024, LONG_HEAD = 16384 }; // a width, and a vocabulary

/* Whether only the CUDA kernels treat the case's sizes differently, and the variant is the CPU's. There such
 * cases would take most of the time. */
static bool passes_over(const Variant *variant, const Case *c) {
    return variant->backend == BACKEND_CPU && (c->width >= WIDE || c->vocab >= LONG_HEAD);
}

enum { WEIGHTS, POSITIONS, CACHES, MEMORIES, INPUTS };

static int64_t head_size_of(const Case *c) {
    return c->head_size ? c->head_size : c->width / c->heads;
}

static Config config_of(const Case *c) {
    Config config;
    const char *kind = c->source ? "transformer-nano" : "gpt2-nano";
    expect_ok(config_preset(c->preset ? c->preset : kind, &config));
    config.layers = c->layers;
    if (c->source) config.encoder_layers = 1;
    config.width = c->width;
    config.heads = c->heads;
    config.head_size = head_size_of(c);
    config.kv_heads = c->kv_heads;
    config.hidden = c->hidden;
    config.vocab = c->vocab;
    config.context = c->capacity;
    config.activation = c->activation;
    config.norm_order = c->norm_after ? NORM_POST : NORM_PRE;
    config.final_norm = !c->norm_after;
    config.embedding_scale = c->norm_after;
    config.tied_head = false;
    return config;
}

static int64_t kv_of(const Case *c) {
    return head_size_of(c) * c->kv_heads;
}

static int64_t cache_count(const Case *c) {
    return c->layers * c->capacity * kv_of(c);
}

static int64_t memory_count(const Case *c) {
    return c->layers * c->source * 2 * kv_of(c);
}

/* An angle is the product of a position and a frequency, both fp32 in every form: off by so much of
 * itself. */
static const double ANGLE_UNIT = 0x1p-23;

/* By groups inputs are rounded to 8 bits: half a step, relative to their largest. */
static const double HALF_STEP = 0.5 / 127;

static void disturb_frequencies(Rig *rig, const Case *c, Tensor frequencies) {
    int64_t count = tensor_count(frequencies);
    double *moved = zeros(count);
    rig_get(rig, frequencies, moved);
    for (int64_t i = 0; i < count; i++) moved[i] *= 1 + ANGLE_UNIT * random_normal(c->seed, 1, (uint64_t)i);
    rig_set(rig, frequencies, moved);
}

static void write_groups(Ctx *ctx, Parameters *p, const double *values) {
    for (int i = 0; i < p->count && !ctx->measuring; i++) {
        const int64_t count = p->info[i].count;
        float *floats = memory_array((size_t)count, sizeof *floats);
        for (int64_t k = 0; k < count; k++) floats[k] = (float)values[p->info[i].offset + k];
        expect_ok(parameter_write(ctx, p, i, floats));
        memory_free(floats);
    }
    if (!ctx->measuring) expect_ok(parameters_copy_head(ctx, p));
}

/* The weights of the case, disturbed, in the model's own layout. */
static void set_weights(Rig *rig, const Case *c, Transformer *model, double *const *in) {
    Parameters *p = &model->parameters;
    const double *values = in[WEIGHTS];
    if (dtype_grouped(p->packed)) return write_groups(&rig->ctx, p, values);
    if (c->noise > 0 && !rig->ctx.measuring) {
        double *moved = zeros(p->size);
        float *draws = memory_array((size_t)p->size, sizeof *draws);
        random_normals(c->seed, 0, 0, 1, draws, p->size);
        for (int64_t i = 0; i < p->size; i++) moved[i] = values[i] * (1 + c->noise * (double)draws[i]);
        memory_free(draws);
        values = moved;
        if (c->preset) disturb_frequencies(rig, c, model->stack.pass.frequencies);
    }
    rig_set(rig, p->weight, values);
    if (!c->preset) rig_set(rig, stack_positions(&model->stack), in[POSITIONS]);
    /* Without the vocabulary's padding, so that the head's kernel gets odd sizes. */
    p->head.weight = tensor_view(p->head.weight.data, p->head.weight.dtype, shape2(c->vocab, c->width));
}

/* The cache without unwritten rows. */
static void get_cache(Rig *rig, const Case *c, Tensor cache, double *values) {
    rig_get(rig, cache, values);
    int64_t kv = kv_of(c), used = c->past + c->steps;
    for (int64_t i = 0; i < c->layers; i++)
        memset(values + (i * c->capacity + used) * kv, 0,
               (size_t)((c->capacity - used) * kv) * sizeof *values);
}

/* The same computed by the model. */
static void forward(Ctx *ctx, Transformer *model, Tensor token, Cache *cache, Tensor logits) {
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    expect_ok(transformer_forward(ctx, model, &(DeviceBatch){.tokens = token}, cache));
    expect_ok(transformer_logits(ctx, model, model->hidden, logits));
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
}

static bool served; // the last body, by the fused form
static bool fp8;    // bodies are run under --fused=fp8

static Status note(Ctx *ctx, const Call *call) {
    (void)ctx;
    served = served || call->operation == OP_DECODE;
    return OK;
}

/* out: logits (steps, vocab), keys and values (layers, capacity, kv) */
static void body(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const Config config = config_of(c);
    const int32_t length = (int32_t)c->length;
    Ctx *ctx = &rig->ctx;
    Transformer model;
    Cache cache;
    served = false;
    ctx->observe = note;
    if (fp8) ctx->fuses |= FUSE_FP8;
    expect_ok(transformer_open(&config, &model));
    if (c->groups && ctx->device->backend == BACKEND_CUDA) model.parameters.packed = I8;
    expect_ok(transformer_take(ctx, &model, false));
    expect_ok(transformer_take_cache(ctx, &model, 1, c->capacity, c->source, &cache));
    set_weights(rig, c, &model, in);
    rig_set(rig, cache.k, in[CACHES]);
    rig_set(rig, cache.v, in[CACHES] + cache_count(c));
    rig_set(rig, cache.memory, in[MEMORIES]);
    cache.memory_lengths =
        rig_put_ints(rig, "length", c->source && c->length >= 0 ? shape1(1) : (Shape){0}, &length);
    for (int64_t step = 0; step < c->steps; step++) {
        const int32_t id = (int32_t)((7 * step + 3) % c->vocab), past = (int32_t)(c->past + step);
        Tensor token = rig_put_ints(rig, "id", shape2(1, 1), &id);
        Tensor logits = rig_blank(rig, "logits", wide_dtype(ctx), shape2(1, c->vocab));
        cache.length_on_device = rig_put_ints(rig, "past", c->device_past ? shape1(1) : (Shape){0}, &past);
        /* The host's position is correct for forms that do not read the device's. */
        const bool fused = ctx->device->backend == BACKEND_CUDA && rig->variant->form == FORM_FUSED;
        cache.length = c->device_past && fused ? c->capacity - 1 : past;
        if (c->by_model)
            forward(ctx, &model, token, &cache, logits);
        else
            expect_ok(transformer_decode(ctx, &model, tensor_reshape(token, shape1(1)), &cache, logits));
        rig_get(rig, logits, out[0] + step * c->vocab);
    }
    get_cache(rig, c, cache.k, out[1]);
    get_cache(rig, c, cache.v, out[2]);
    transformer_close(&model);
}

static double *scaled(int64_t count, double scale, double shift, Dtype dtype) {
    double *values = normals(count, scale, F64);
    for (int64_t i = 0; i < count; i++) values[i] = rounded(dtype, shift + values[i]);
    return values;
}

/* Rounds a matrix to the values of I8 by groups, which quantizing again does not change. */
static void round_matrix(double *values, Shape shape) {
    const int64_t count = shape_count(shape);
    if (shape.rank != 2 || shape.d[0] % GROUP_ROWS || shape.d[1] % GROUP) return;
    float *floats = memory_array((size_t)count, sizeof *floats);
    for (int64_t i = 0; i < count; i++) floats[i] = (float)values[i];
    round_to_groups(floats, I8, shape);
    for (int64_t i = 0; i < count; i++) values[i] = floats[i];
    memory_free(floats);
}

/* Random values in the flat layout of the parameters, scaled so that products keep the size of their
 * input. */
static double *weights_of(const Case *c, Dtype dtype) {
    const Config config = config_of(c);
    Parameters p;
    parameters_open(&config, &p);
    double *all = zeros(p.size);
    for (int i = 0; i < p.count; i++) {
        const ParameterInfo *info = &p.info[i];
        bool table = info->parameter == &p.stack.token;
        double scale = table ? 1 : info->shape.rank > 1 ? 1 / sqrt((double)info->shape.d[1]) : 0.3;
        memcpy(all + info->offset, scaled(info->count, scale, info->constant, dtype),
               (size_t)info->count * sizeof *all);
        if (c->groups) round_matrix(all + info->offset, info->shape);
    }
    parameters_close(&p);
    return all;
}

static void make_inputs(const Case *c, Dtype dtype, double **in) {
    in[WEIGHTS] = weights_of(c, dtype);
    in[POSITIONS] = scaled(c->capacity * c->width, 0.5, 0, dtype);
    in[CACHES] = scaled(2 * cache_count(c), 1, 0, dtype);
    for (int64_t i = 0; i < 2 * cache_count(c); i++) // rows that do not exist yet must not be read
        if (i / kv_of(c) % c->capacity >= c->past) in[CACHES][i] = NAN;
    in[MEMORIES] = scaled(memory_count(c), 1, 0, dtype);
    for (int64_t i = 0; c->length >= 0 && i < memory_count(c); i++) // invalid rows
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
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const Units units = units_of(variant);
    int served_cases = 0, fitting = 0;
    for (int n = 0; n < CASES; n++) {
        const Case *c = &cases[n];
        if (passes_over(variant, c)) continue;
        double *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS], *moved[OUTPUTS], change[OUTPUTS] = {0};
        int64_t counts[OUTPUTS];
        make_inputs(c, variant->dtype, in);
        make_outputs(c, counts, want);
        make_outputs(c, counts, got);
        make_outputs(c, counts, moved);
        rig_run_once(&specification, body, c, in, want);
        for (int i = 0; i < DISTURBANCES; i++) {
            Case disturbed = *c;
            disturbed.noise = fmax(fmax(units.storage, units.product), c->groups ? HALF_STEP : 0);
            disturbed.seed = (uint64_t)i + 1;
            rig_run_once(&specification, body, &disturbed, in, moved);
            for (int o = 0; o < OUTPUTS; o++)
                change[o] = fmax(change[o], distance_of(moved[o], want[o], counts[o]));
        }
        rig_run(variant, body, c, in, got);
        const bool odd = c->odd && (variant->dtype != BF16 || head_size_of(c) % 16 != 0);
        assert_false(served && odd);
        served_cases += served;
        fitting += !odd;
        for (int o = 0; o < OUTPUTS; o++) {
            double off = distance_of(got[o], want[o], counts[o]);
            if (!(off <= ALLOWED * change[o]))
                fail_msg("%s, case %d: %s are off by %.3g, but %.3g is allowed (their norm is %.3g)",
                         variant->name, n, names[o], off, ALLOWED * change[o], length_of(want[o], counts[o]));
        }
    }
    assert_true(served_cases == 0 || served_cases == fitting);
}

static void naive_form_is_the_model(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int n = 0; n < CASES; n++) {
        double *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS];
        int64_t counts[OUTPUTS];
        Case c = cases[n];
        if (c.width >= WIDE || passes_over(variant, &c)) continue;
        fp8 = n % 2;
        make_inputs(&c, variant->dtype, in);
        make_outputs(&c, counts, want);
        make_outputs(&c, counts, got);
        rig_run(variant, body, &c, in, got);
        if (served) continue;
        c.by_model = true;
        rig_run(variant, body, &c, in, want);
        for (int o = 0; o < OUTPUTS; o++) expect_equal(got[o], want[o], counts[o], "by the model");
    }
    fp8 = false;
}

static Tensor matrix(int64_t rows, int64_t width) {
    return tensor_view(NULL, F32, shape2(rows, width));
}

/* A decoder of one layer of width 8, with GPT-2's structure, which is never run. */
static Decode small_decoder(DecodeLayer *layer) {
    const Tensor row = tensor_view(NULL, F32, shape1(8)), square = matrix(8, 8);
    const DecodeAffine norm = {row, row}, linear = {square, row};
    *layer = (DecodeLayer){.norm1 = norm,
                           .qkv = {matrix(24, 8), tensor_view(NULL, F32, shape1(24))},
                           .projection = linear,
                           .norm2 = norm,
                           .expand = linear,
                           .contract = linear,
                           .cache_k = square,
                           .cache_v = square};
    return (Decode){.token_id = tensor_view(NULL, I32, shape1(1)),
                    .token = square,
                    .position = square,
                    .layers = layer,
                    .layer_count = 1,
                    .final_norm = norm,
                    .head = square,
                    .logits = row,
                    .heads = 2,
                    .kv_heads = 2,
                    .token_scale = 1};
}

/* The same with Llama's structure: gated, rotary, two query heads per key head, head norms, no biases. */
static Decode small_llama(DecodeLayer *layer) {
    const DecodeAffine norm = {tensor_view(NULL, F32, shape1(8)), {0}};
    const DecodeAffine heads = {tensor_view(NULL, F32, shape1(4)), {0}};
    Decode d = small_decoder(layer);
    layer->norm1 = layer->norm2 = d.final_norm = norm;
    layer->query_norm = layer->key_norm = heads;
    layer->qkv = (DecodeAffine){matrix(16, 8), {0}};
    layer->expand = (DecodeAffine){matrix(24, 8), {0}};
    layer->contract = (DecodeAffine){matrix(8, 12), {0}};
    layer->projection.bias = (Tensor){0};
    layer->cache_k = layer->cache_v = matrix(8, 4);
    d.position = (Tensor){0};
    d.frequencies = tensor_view(NULL, F32, shape1(2));
    d.norm_kind = NORM_RMS;
    d.kv_heads = 1;
    d.activation = ACTIVATION_SWIGLU;
    return d;
}

static void add_memory(DecodeLayer *layer) {
    layer->cross_norm = layer->norm1;
    layer->query = layer->cross_projection = layer->projection;
    layer->memory = matrix(5, 16);
}

/* The sum of the FLOPs of the single operations must be the decoder's. */
static double counted_flops(const Decode *d) {
    Ctx ctx = {.device = test_device(BACKEND_CPU), .dtype = F32, .measuring = true};
    expect_ok(decode_naive(&ctx, d));
    for (int i = 0; i < ARENA_COUNT; i++) arena_close(&ctx.arenas[i]);
    return ctx.work.flops;
}

static void work_is_the_operations(void **state) {
    DecodeLayer layers[4];
    Decode decoders[] = {small_decoder(&layers[0]), small_decoder(&layers[1]), small_decoder(&layers[2]),
                         small_llama(&layers[3])};
    (void)state;
    decoders[0].activation = ACTIVATION_GELU_TANH;
    decoders[1].activation = ACTIVATION_RELU;
    decoders[1].asked = 5; // of 8: the others are padding
    decoders[1].past = 7;
    decoders[2].norm_after = true;
    decoders[2].token_scale = sqrt(8);
    decoders[2].activation = ACTIVATION_TANH;
    add_memory(&layers[2]);
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
        double flops = decode_work(&decoders[i]).flops;
        if (flops != counted_flops(&decoders[i]))
            fail_msg("decoder %zu: %g FLOPs, but its operations %g", i, flops, counted_flops(&decoders[i]));
    }
    /* For logits that are not requested, no weights are read and nothing is written. */
    Decode all = decoders[1];
    all.asked = 0;
    assert_true(decode_work(&all).bytes - decode_work(&decoders[1]).bytes == 3 * (8 + 1) * sizeof(float));
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const Tensor row = tensor_view(NULL, F32, shape1(8));
    DecodeLayer layer;
    const Decode right = small_decoder(&layer);
    DecodeLayer wrong_layer = layer, without_query = layer;
    wrong_layer.qkv = layer.projection;
    add_memory(&without_query);
    without_query.query = (DecodeAffine){0};
    Decode wrong[] = {right, right, right, right, right, right, right,
                      right, right, right, right, right, right};
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
    wrong[9].norm_kind = NORM_RMS;
    wrong[10].frequencies = row;
    wrong[11].activation = ACTIVATION_SWIGLU;
    wrong[12].asked = 9;
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
    const struct CMUnitTest tests[] = {ONCE(wrong_contracts_are_refused), ONCE(work_is_the_operations),
                                       ON_EACH_VARIANT(form_follows_the_specification),
                                       ON_EACH_VARIANT(naive_form_is_the_model)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
