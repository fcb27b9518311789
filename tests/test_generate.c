/* Generation and training as the programs run them: with and without a cache, beyond the end of the context,
 * sampled on the host and on the device, kernel by kernel and as graphs. Alternatives that must give equal
 * results are compared bit by bit. */
#include "base/random.h"
#include "kernels/sample/sample.h"
#include "run/inference.h"
#include "run/trainer.h"
#include "tests/support/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROMPT = 5,
    TOKENS = 70,
    CONTEXT = 24,
    STEPS = 7,
    BATCH = 2,
    SEQ = 16,
    ACCUM = 2,
    ALL = (1 << OP_COUNT) - 1
};

typedef struct {
    Backend backend;
    Dtype dtype;
    uint32_t fuses;
    bool graphs;
} Setup;

static const Setup cpu_naive = {BACKEND_CPU, F32, 0, false}, cpu_fused = {BACKEND_CPU, F32, ALL, true};
static const Setup eager = {BACKEND_CUDA, F32, ALL, false}, graph = {BACKEND_CUDA, F32, ALL, true};
static const Setup eager_bf16 = {BACKEND_CUDA, BF16, ALL, false},
                   graph_bf16 = {BACKEND_CUDA, BF16, ALL, true};
static const SamplerOptions greedy = {.temperature = 0, .top_p = 1};

static void need_gpu(void) {
    if (!test_device(BACKEND_CUDA)) skip();
}

static Config small(void) {
    Config config;
    expect_ok(config_preset("gpt2-nano", &config));
    config.layers = 3;
    config.heads = config.kv_heads = 4;
    config.head_size = 32;
    config.width = 128;
    config.hidden = 512;
    config.context = CONTEXT;
    config.vocab = 131;    // padded
    config.init_std = 0.3; // far from flat, so that a wrong number changes a token
    return config;
}

static void set_up(Ctx *ctx, const Setup *setup) {
    ctx->dtype = setup->dtype;
    ctx->fuses = setup->fuses;
    ctx->graphs = setup->graphs;
}

/* ---- generation ---- */

static void generate(const Setup *setup, bool cached, SamplerOptions options, int32_t tokens[TOKENS]) {
    static const int32_t prompt[PROMPT] = {3, 1, 4, 1, 5};
    Config config = small();
    const Session session = {.device = test_device(setup->backend), .config = config};
    Inference in;
    Sampler *sampler;
    expect_ok(inference_open(&in, &session, cached));
    set_up(&in.ctx, setup);
    in.use = INFERENCE_GENERATE;
    expect_ok(inference_start(&in, &session, false, 11));
    expect_ok(sampler_open(config.vocab, &options, &sampler));
    for (int run = 0; run < 2; run++) { // a new start discards everything
        int32_t again[TOKENS];
        expect_ok(generator_start(&in.generator, prompt, PROMPT));
        if (run) expect_ok(generator_prepare(&in.ctx, &in.generator, sampler));
        for (int i = 0; i < TOKENS; i++)
            expect_ok(generator_next(&in.ctx, &in.generator, sampler, run ? &again[i] : &tokens[i]));
        if (run) assert_memory_equal(tokens, again, sizeof again);
    }
    bool captured = in.generator.step.graph != NULL;
    assert_int_equal(captured,
                     cached && setup->backend == BACKEND_CUDA && setup->graphs && setup->fuses == ALL);
    assert_int_equal(in.generator.stride.graph != NULL, captured);
    sampler_close(sampler);
    inference_close(&in);
}

static void expect_same_text(const Setup *a, bool a_cached, const Setup *b, bool b_cached,
                             SamplerOptions options) {
    int32_t first[TOKENS], second[TOKENS];
    generate(a, a_cached, options, first);
    generate(b, b_cached, options, second);
    for (int i = 0; i < TOKENS; i++) assert_in_range(first[i], 0, 130);
    assert_memory_equal(first, second, sizeof first);
}

/* Three windows of the context: tokens that leave it have no effect, with and without a cache. */
static void test_cache(void **state) {
    (void)state;
    expect_same_text(&cpu_naive, true, &cpu_naive, false, greedy);
    expect_same_text(&cpu_fused, true, &cpu_fused, false, greedy);
    expect_same_text(&cpu_naive, true, &cpu_fused, true, greedy);
}

static void test_cache_cuda(void **state) {
    (void)state;
    need_gpu();
    expect_same_text(&graph, true, &eager, false, greedy);
    expect_same_text(&graph, true, &cpu_naive, true, greedy);
}

/* ---- turns ---- */

/* A generator with a window that is smaller than the context, and weights. */
static void open_window(const Setup *setup, bool cached, int64_t context, int64_t window, Inference *in) {
    Config config = small();
    config.context = context;
    const Session session = {.device = test_device(setup->backend), .config = config};
    expect_ok(inference_open(in, &session, cached));
    set_up(&in->ctx, setup);
    in->use = INFERENCE_GENERATE;
    in->generator.window = window;
    expect_ok(inference_start(in, &session, false, 11));
}

static void draw_tokens(Inference *in, int count, int32_t *tokens) {
    Sampler *sampler;
    expect_ok(sampler_open(in->model.config.vocab, &greedy, &sampler));
    for (int i = 0; i < count; i++) expect_ok(generator_next(&in->ctx, &in->generator, sampler, &tokens[i]));
    sampler_close(sampler);
}

/* If the current window is read again, the same tokens follow. */
static void expect_same_follow(Inference *in, Inference *fresh, int64_t length) {
    enum { FOLLOW = 4 };
    int32_t tokens[FOLLOW], expected[FOLLOW];
    assert_int_equal(in->generator.length, length);
    expect_ok(generator_start(&fresh->generator, in->generator.history, length));
    draw_tokens(in, FOLLOW, tokens);
    draw_tokens(fresh, FOLLOW, expected);
    assert_memory_equal(tokens, expected, sizeof tokens);
}

static void expect_turns(const Setup *setup) {
    static const int32_t prompt[PROMPT] = {3, 1, 4, 1, 5}, more[] = {9, 2, 6};
    enum { WINDOW = 20 };
    int32_t tokens[WINDOW];
    Inference in, fresh;
    open_window(setup, true, CONTEXT, WINDOW, &in);
    open_window(setup, false, CONTEXT, WINDOW, &fresh);
    Generator *g = &in.generator;
    assert_int_equal(g->cache.k.shape.d[2], WINDOW);
    expect_ok(generator_start(g, prompt, PROMPT));
    draw_tokens(&in, 3, tokens);
    expect_ok(generator_append(g, more, 3));
    assert_int_equal(g->cache.length, 7); /* the last sampled token is read together with the following
                                           * ones */
    expect_same_follow(&in, &fresh, 11);
    assert_int_equal(g->draws, 7);
    generator_forget(g, 2, 6);
    assert_int_equal(g->cache.length, 2); /* tokens before the gap are not read again */
    assert_memory_equal(g->history, prompt, 2 * sizeof *prompt);
    expect_same_follow(&in, &fresh, 9);
    expect_error(generator_append(g, tokens, 8), ERROR_INTERNAL, "8 tokens do not fit");
    generator_forget(g, 12, 1); /* the last, which the cache lacks */
    assert_int_equal(g->cache.length, 12);
    expect_ok(generator_append(g, more, 1));
    expect_same_follow(&in, &fresh, 13);
    draw_tokens(&in, 4, tokens); /* beyond the end: the later half is kept */
    assert_int_equal(g->length, WINDOW / 2 + 1);
    inference_close(&fresh);
    inference_close(&in);
}

static void test_turns(void **state) {
    (void)state;
    expect_turns(&cpu_naive);
    expect_turns(&cpu_fused);
}

static void test_turns_cuda(void **state) {
    (void)state;
    need_gpu();
    expect_turns(&eager);
    expect_turns(&graph);
}

/* A prompt read in parts. */
static void test_long_prompt(void **state) {
    (void)state;
    enum { LONG = PREFILL + 100 };
    const Setup *setup = test_device(BACKEND_CUDA) ? &graph : &cpu_fused;
    int32_t *prompt = malloc(LONG * sizeof *prompt), tokens[2][2];
    for (int64_t i = 0; i < LONG; i++) prompt[i] = (int32_t)random_below(8, 0, (uint64_t)i, 131);
    for (int cached = 0; cached < 2; cached++) {
        Inference in;
        open_window(setup, cached, LONG + 50, LONG + 10, &in);
        assert_int_equal(tensor_count(in.generator.tokens), cached ? PREFILL : LONG + 10);
        expect_ok(generator_start(&in.generator, prompt, LONG));
        draw_tokens(&in, 2, tokens[cached]);
        inference_close(&in);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    free(prompt);
}

static const SamplerOptions draws[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 1, .seed = 1},
    {.temperature = 2, .top_p = 0.9, .seed = 2},
    {.temperature = 3, .top_k = 20, .top_p = 0.8, .seed = 3},
    {.temperature = 3, .top_p = 0.9, .min_p = 0.1, .seed = 4},
};

static void test_graph(void **state) {
    (void)state;
    need_gpu();
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        expect_same_text(&eager, true, &graph, true, draws[i]);
        expect_same_text(&eager_bf16, true, &graph_bf16, true, draws[i]);
    }
}

static void test_seeds(void **state) {
    (void)state;
    int32_t first[TOKENS], other[TOKENS];
    const Setup *setup = test_device(BACKEND_CUDA) ? &graph : &cpu_fused;
    SamplerOptions options = {.temperature = 2, .top_p = 1, .seed = 1};
    expect_same_text(setup, true, setup, true, options);
    generate(setup, true, options, first);
    options.seed = 2;
    generate(setup, true, options, other);
    assert_memory_not_equal(first, other, sizeof first);
}

/* ---- drawing ---- */

typedef struct {
    Device *device;
    Ctx ctx;
    Tensor logits, uniforms, position, token;
    int32_t *sampled;
} Drawing;

static Tensor on_device(Drawing *d, Dtype dtype, int64_t count) {
    void *memory;
    expect_ok(d->device->allocate(d->device, (size_t)count * dtype_size(dtype), &memory));
    return tensor_view(memory, dtype, shape2(1, count));
}

static void open_drawing(Drawing *d, int64_t vocab) {
    void *sampled;
    *d = (Drawing){.device = test_device(BACKEND_CUDA)};
    d->ctx = (Ctx){.device = d->device, .layer = -1};
    Arena *scratch = &d->ctx.arenas[ARENA_SCRATCH];
    scratch->name = "scratch";
    scratch->base = on_device(d, I32, vocab + 256).data;
    scratch->capacity = (size_t)(vocab + 256) * sizeof(int32_t);
    d->logits = on_device(d, F32, vocab);
    d->uniforms = on_device(d, F64, 1);
    d->position = on_device(d, I32, 1);
    d->token = on_device(d, I32, 1);
    expect_ok(d->device->pinned(d->device, sizeof *d->sampled, &sampled));
    d->sampled = sampled;
}

static void close_drawing(Drawing *d) {
    void *memory[] = {d->ctx.arenas[ARENA_SCRATCH].base, d->logits.data, d->uniforms.data, d->position.data,
                      d->token.data};
    for (int i = 0; i < 5; i++) d->device->release(d->device, memory[i]);
    d->device->release_pinned(d->device, d->sampled);
    arena_close(&d->ctx.arenas[ARENA_SCRATCH]);
}

static int32_t draw(Drawing *d, SampleRule rule, const float *logits, int64_t vocab, double uniform) {
    int32_t position = 0, token;
    Sample sample = {rule, d->logits, vocab, d->uniforms, d->position, d->token, d->sampled};
    expect_ok(d->device->upload(d->device, d->logits.data, logits, (size_t)vocab * sizeof *logits));
    expect_ok(d->device->upload(d->device, d->uniforms.data, &uniform, sizeof uniform));
    expect_ok(d->device->upload(d->device, d->position.data, &position, sizeof position));
    expect_ok(sample_cuda(&d->ctx, &sample));
    arena_release(&d->ctx.arenas[ARENA_SCRATCH], (ArenaMark){0, 0});
    expect_ok(d->device->download(d->device, &token, d->token.data, sizeof token));
    expect_ok(d->device->download(d->device, &position, d->position.data, sizeof position));
    assert_int_equal(position, 1);
    assert_int_equal(token, *d->sampled < 0 ? 0 : *d->sampled);
    return *d->sampled;
}

/* Widely spread logits, and logits many of which are equal. */
static void fill_logits(float *logits, int64_t vocab, uint64_t stream, bool coarse) {
    random_normals(5, stream, 0, 2, logits, vocab);
    for (int64_t i = 0; coarse && i < vocab; i++) logits[i] = roundf(4 * logits[i]) / 4;
}

static int32_t host_draw(SampleRule rule, const float *logits, int64_t vocab, double uniform) {
    int32_t best = 0, *weights = malloc((size_t)vocab * sizeof *weights);
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = (int32_t)i;
    int32_t token = sample_host(&rule, logits, vocab, best, uniform, weights);
    free(weights);
    return token;
}

static void test_same_draws(void **state) {
    (void)state;
    need_gpu();
    static const int64_t vocabs[] = {1,    2,     33,
                                     1025, 50257, 131072}; // the last is too large for shared memory
    static const struct {
        double temperature;
        int64_t top_k;
        double top_p, min_p;
    } rules[] = {{0, 0, 1, 0},      {1, 1, 1, 0},         {1, 0, 1, 0},   {0.7, 40, 1, 0},
                 {0.8, 0, 0.95, 0}, {2, 100, 0.5, 0},     {1, 0, 0.1, 0}, {1, 0, 1e-9, 0},
                 {1, 0, 1, 0.05},   {1.5, 40, 0.9, 0.02}, {1, 20, 1, 1},  {1e-300, 0, .9, 0},
                 {1e6, 0, 0.9, 0},  {1e6, 7, 0.999, 0}};
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        Drawing d;
        float *logits = malloc((size_t)vocabs[v] * sizeof *logits);
        open_drawing(&d, vocabs[v]);
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
            for (uint64_t i = 0; i < 8; i++) {
                SampleRule rule =
                    sample_rule(rules[r].temperature, rules[r].top_k, rules[r].top_p, rules[r].min_p);
                double uniform = i == 0 ? 0 : i == 1 ? 1 - 0x1p-53 : random_uniform(6, r, i);
                fill_logits(logits, vocabs[v], i, i % 2);
                if (i > 3 && vocabs[v] > 2) logits[i % 3] = -INFINITY;
                assert_int_equal(draw(&d, rule, logits, vocabs[v], uniform),
                                 host_draw(rule, logits, vocabs[v], uniform));
            }
        free(logits);
        close_drawing(&d);
    }
}

static void test_bad_rows(void **state) {
    (void)state;
    need_gpu();
    static const float rows[][3] = {
        {1, NAN, 2}, {1, -NAN, 2}, {1, 2, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
    Drawing d;
    open_drawing(&d, 3);
    for (int greedily = 0; greedily < 2; greedily++)
        for (int i = 0; i < 4; i++)
            assert_int_equal(draw(&d, sample_rule(greedily ? 0 : 1, 0, 1, 0), rows[i], 3, 0.5), -1);
    close_drawing(&d);
}

/* ---- training and forward passes ---- */

static Status fetch(void *source, int64_t index, Batch *batch) {
    int64_t *step = source;
    static int32_t tokens[ACCUM][BATCH * SEQ + 1];
    for (int64_t i = 0; i <= BATCH * SEQ; i++)
        tokens[index][i] = (int32_t)random_below(3, (uint64_t)(*step * ACCUM + index), (uint64_t)i, 131);
    *batch = (Batch){.inputs = tokens[index], .targets = tokens[index] + 1};
    return OK;
}

static void train(const Setup *setup, Recompute recompute, double losses[STEPS]) {
    Config config = small();
    Trainer t;
    expect_ok(trainer_open(&t, &(Session){.device = test_device(setup->backend), .config = config}, NULL));
    set_up(&t.ctx, setup);
    t.batch = BATCH;
    t.seq = SEQ;
    t.accum = ACCUM;
    t.model.recompute = recompute;
    t.update = (UpdateOptions){0.9, 0.95, 1e-8, 0.1, 1};
    expect_ok(trainer_measure(&t, NULL));
    expect_ok(trainer_allocate(&t));
    expect_ok(parameters_initialize(&t.ctx, &t.model.parameters, 1));
    for (int64_t step = 0; step < STEPS; step++) {
        StepResult result;
        expect_ok(trainer_step(&t, fetch, &step, 1e-3 * (double)(step + 1), &result));
        losses[step] = result.loss + result.norm;
        Validation validation;
        if (step == 4) expect_ok(trainer_evaluate(&t, fetch, &step, 1, &validation));
    }
    bool captured = setup->graphs && setup->backend == BACKEND_CUDA;
    assert_int_equal(t.passes[0][0].forward.graph && t.updated.graph, captured);
    trainer_close(&t);
}

static void test_training(void **state) {
    (void)state;
    need_gpu();
    for (Recompute recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_BLOCKS; recompute++) {
        double one[STEPS], other[STEPS];
        train(&eager, recompute, one);
        train(&graph, recompute, other);
        assert_memory_equal(one, other, sizeof one);
        train(&eager_bf16, recompute, one);
        train(&graph_bf16, recompute, other);
        assert_memory_equal(one, other, sizeof one);
    }
}

static void forward(const Setup *setup, float *values, int64_t count) {
    Config config = small();
    Inference in;
    int32_t tokens[BATCH * SEQ];
    const Session session = {.device = test_device(setup->backend), .config = config};
    expect_ok(inference_open(&in, &session, false));
    set_up(&in.ctx, setup);
    in.use = INFERENCE_LOGITS;
    in.batch = BATCH;
    in.seq = SEQ;
    in.logits_dtype = F32;
    expect_ok(inference_start(&in, &session, false, 1));
    for (int run = 0; run < 5; run++) {
        for (int i = 0; i < BATCH * SEQ; i++) tokens[i] = (i * 7 + run) % 131;
        expect_ok(inference_logits(&in, tokens, BATCH, SEQ));
    }
    expect_ok(values_read(&in.ctx, in.logits, 0, count, values));
    inference_close(&in);
}

static void test_forward(void **state) {
    (void)state;
    need_gpu();
    enum { COUNT = BATCH * SEQ * 256 };
    static float one[COUNT], other[COUNT];
    forward(&eager_bf16, one, COUNT);
    forward(&graph_bf16, other, COUNT);
    assert_memory_equal(one, other, sizeof one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),       cmocka_unit_test(test_turns_cuda),
        cmocka_unit_test(test_long_prompt), cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_cuda),  cmocka_unit_test(test_graph),
        cmocka_unit_test(test_seeds),       cmocka_unit_test(test_same_draws),
        cmocka_unit_test(test_bad_rows),    cmocka_unit_test(test_training),
        cmocka_unit_test(test_forward),
    };
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
