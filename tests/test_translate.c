/* Translations are the same with and without caches, in batches and one by one, in both forms and on both
 * devices; and greedy search equals repeatedly running encoder and decoder for the next token. */
#include "run/generate.h"
#include "run/plan.h"
#include "tasks/pairs/translate.h"
#include "tests/support/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCES = 5, SOURCE = 11, MOST = 13, VOCAB = 131, BEGIN = 1, END = 2, ALL = (1 << OP_COUNT) - 1 };

static const double PENALTY = 0.6;

typedef struct {
    Backend backend;
    uint32_t fuses;
    int64_t sentences, beam; // at once
    Decoding decoding;
    NormOrder order;
} Setup;

typedef struct {
    int32_t ids[SENTENCES][MOST];
    int64_t lengths[SENTENCES];
    double scores[SENTENCES];
} Translations;

static Config small(NormOrder order) {
    Config config;
    expect_ok(config_preset("transformer-nano", &config));
    config.layers = 3;
    config.encoder_layers = 2;
    config.heads = config.kv_heads = 2; // sizes that the kernels of kernels/decode take
    config.head_size = 32;
    config.width = 64;
    config.hidden = 256;
    config.context = MOST;
    config.vocab = VOCAB;
    config.init_std = 0.3; // far from flat, so that a wrong number changes a token
    config.norm_order = order;
    config.final_norm = order == NORM_PRE;
    return config;
}

/* Sentences of 1, 3, .. tokens, the last of them the end. */
static void make_sources(int32_t ids[SENTENCES][SOURCE], Sentence *sentences) {
    for (int s = 0; s < SENTENCES; s++) {
        int64_t count = 1 + 2 * s;
        for (int64_t i = 0; i < count; i++) ids[s][i] = (int32_t)(3 + (37 * s + 11 * i) % (VOCAB - 3));
        ids[s][count - 1] = END;
        sentences[s] = (Sentence){ids[s], count};
    }
}

/* ---- with a translator ---- */

typedef struct {
    Transformer model;
    Translator translator;
} Program;

static Status rehearse(Ctx *ctx, void *program) {
    Program *p = program;
    TRY(transformer_take(ctx, &p->model, false));
    return translator_take(ctx, &p->translator);
}

static void translate(const Setup *setup, Translations *out) {
    static Program p;
    Config config = small(setup->order);
    Ctx ctx;
    ctx_open(&ctx, test_device(setup->backend));
    ctx.fuses = setup->fuses;
    TranslateOptions options = {.sentences = setup->sentences,
                                .beam = setup->beam,
                                .penalty = PENALTY,
                                .begin = BEGIN,
                                .end = END,
                                .source = SOURCE,
                                .most = MOST,
                                .decoding = setup->decoding};
    expect_ok(transformer_open(&config, &p.model));
    expect_ok(translator_open(&options, &p.model, &p.translator));
    expect_ok(plan_measure(&ctx, rehearse, &p, NULL));
    expect_ok(plan_allocate(&ctx));
    expect_ok(rehearse(&ctx, &p));
    expect_ok(parameters_initialize(&ctx, &p.model.parameters, 5));
    int32_t ids[SENTENCES][SOURCE];
    Sentence sources[SENTENCES];
    make_sources(ids, sources);
    for (int64_t first = 0; first < SENTENCES; first += setup->sentences) {
        int64_t count = SENTENCES - first < setup->sentences ? SENTENCES - first : setup->sentences;
        expect_ok(translator_run(&ctx, &p.translator, sources + first, count));
        for (int64_t i = 0; i < count; i++) {
            const int32_t *best =
                translator_best(&p.translator, i, &out->lengths[first + i], &out->scores[first + i]);
            assert_in_range(out->lengths[first + i], 0, MOST);
            memcpy(out->ids[first + i], best, (size_t)out->lengths[first + i] * sizeof *best);
        }
    }
    translator_close(&p.translator);
    transformer_close(&p.model);
    ctx_close(&ctx);
}

/* The largest expected difference of scores between two orders of summation. By Higham and Mary (2019) a
 * product that sums k terms has a relative error of about sqrt(k) u, u = 2^-24 in fp32. The error of the logits
 * is that of a single sum with the terms of all consecutive products: encoder, decoder and head. After the last
 * norm a hidden state has the length sqrt(width), a row of the embedding init_std sqrt(width); so a logit has
 * the error
 *     sqrt(terms) u init_std width,
 * a token's log probability twice that, and a score, the sum of the log probabilities, sqrt(length + 1) times
 * as much. Four standard deviations are allowed. */
static double score_bound(const Config *c, int64_t length) {
    const double source = c->width + c->head_size + SOURCE + c->width;
    const double target = c->width + c->head_size + MOST + c->width;
    const double mlp = c->width + c->hidden;
    const double terms = (double)c->encoder_layers * (source + mlp) +
                         (double)c->layers * (target + source + mlp) + (double)c->width;
    const double logit = sqrt(terms) * 0x1p-24 * c->init_std * (double)c->width;
    return 4 * 2 * logit * sqrt((double)length + 1) / pow((5 + (double)length) / 6, PENALTY);
}

static void expect_same(const Setup *setup, const Translations *expected, const char *what) {
    const Config config = small(setup->order);
    Translations got;
    translate(setup, &got);
    for (int s = 0; s < SENTENCES; s++) {
        if (got.lengths[s] != expected->lengths[s] ||
            memcmp(got.ids[s], expected->ids[s], (size_t)got.lengths[s] * sizeof **got.ids) != 0)
            fail_msg("%s, beam %d: sentence %d is translated otherwise", what, (int)setup->beam, s);
        const double apart = fabs(got.scores[s] - expected->scores[s]);
        const double bound = score_bound(&config, got.lengths[s]);
        if (apart > bound) fail_msg("%s: scores lie %g apart, which may be %g", what, apart, bound);
    }
}

static const char *const decodings[] = {"cached", "self cached", "the last logits", "all logits"};

static void check_ways(Backend backend, NormOrder order, int64_t beam) {
    Setup setup = {BACKEND_CPU, 0, SENTENCES, beam, DECODING_CACHED, order};
    Translations expected;
    translate(&setup, &expected);
    int64_t tokens = 0;
    for (int s = 0; s < SENTENCES; s++) tokens += expected.lengths[s];
    assert_true(tokens > SENTENCES); /* not empty */
    setup.backend = backend;
    for (setup.fuses = 0;; setup.fuses = ALL) {
        setup.decoding = DECODING_CACHED;
        setup.sentences = 1;
        expect_same(&setup, &expected, "one by one");
        setup.sentences = 2; /* the last batch has a missing sentence */
        expect_same(&setup, &expected, "by twos");
        setup.sentences = SENTENCES;
        for (setup.decoding = DECODING_SELF; setup.decoding <= DECODING_ALL; setup.decoding++)
            expect_same(&setup, &expected, decodings[setup.decoding]);
        if (setup.fuses) break;
    }
}

static void every_way_says_the_same(void **state) {
    (void)state;
    check_ways(BACKEND_CPU, NORM_POST, 1);
    check_ways(BACKEND_CPU, NORM_POST, 4);
    check_ways(BACKEND_CPU, NORM_PRE, 3);
}

static void every_way_says_the_same_cuda(void **state) {
    (void)state;
    if (!test_device(BACKEND_CUDA)) skip();
    check_ways(BACKEND_CUDA, NORM_POST, 1);
    check_ways(BACKEND_CUDA, NORM_POST, 4);
    check_ways(BACKEND_CUDA, NORM_PRE, 3);
}

/* ---- greedy, without cache and search ---- */

typedef struct {
    Transformer model;
    Tensor source, tokens, logits;
    int64_t S, T;
} Plain;

static Status plain_pass(Ctx *ctx, void *program) {
    Plain *p = program;
    TRY(transformer_take(ctx, &p->model, false));
    TRY(take(ctx, ARENA_SAVED, "source", I32, shape2(1, SOURCE), &p->source));
    TRY(take(ctx, ARENA_SAVED, "tokens", I32, shape2(1, MOST), &p->tokens));
    return take(ctx, ARENA_SAVED, "logits", F32, shape3(1, MOST, config_padded_vocab(&p->model.config)),
                &p->logits);
}

static Status plain_forward(Ctx *ctx, Plain *p) {
    DeviceBatch inputs = {.tokens = tensor_view(p->tokens.data, I32, shape2(1, p->T)),
                          .source = tensor_view(p->source.data, I32, shape2(1, p->S))};
    Shape shape = shape3(1, p->T, config_padded_vocab(&p->model.config));
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    TRY(transformer_forward(ctx, &p->model, &inputs, NULL));
    TRY(transformer_logits(ctx, &p->model, p->model.hidden, tensor_view(p->logits.data, F32, shape)));
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return OK;
}

static Status plain_rehearsal(Ctx *ctx, void *program) {
    Plain *p = program;
    TRY(plain_pass(ctx, p));
    p->S = SOURCE;
    p->T = MOST;
    return plain_forward(ctx, p);
}

/* Appends the likeliest token; returns it. */
static int32_t plain_next(Ctx *ctx, Plain *p, int32_t *tokens, int64_t T) {
    int64_t padded = config_padded_vocab(&p->model.config);
    float logits[VOCAB];
    p->T = T;
    expect_ok(ctx->device->upload(ctx->device, p->tokens.data, tokens, (size_t)T * sizeof *tokens));
    expect_ok(plain_forward(ctx, p));
    expect_ok(values_read(ctx, p->logits, (T - 1) * padded, VOCAB, logits));
    int32_t best = 0;
    for (int32_t v = 1; v < VOCAB; v++)
        if (logits[v] > logits[best]) best = v;
    return tokens[T] = best;
}

static void greedy_is_the_likeliest_token_each_time(void **state) {
    (void)state;
    static Plain p;
    Setup setup = {BACKEND_CPU, ALL, SENTENCES, 1, DECODING_CACHED, NORM_POST};
    Translations got;
    translate(&setup, &got);
    Config config = small(NORM_POST);
    Ctx ctx;
    ctx_open(&ctx, test_device(BACKEND_CPU));
    expect_ok(transformer_open(&config, &p.model));
    expect_ok(plan_measure(&ctx, plain_rehearsal, &p, NULL));
    expect_ok(plan_allocate(&ctx));
    expect_ok(plain_pass(&ctx, &p));
    expect_ok(parameters_initialize(&ctx, &p.model.parameters, 5));
    int32_t ids[SENTENCES][SOURCE];
    Sentence sources[SENTENCES];
    make_sources(ids, sources);
    for (int s = 0; s < SENTENCES; s++) {
        int32_t tokens[MOST + 1] = {BEGIN};
        int64_t length = 1;
        p.S = sources[s].count;
        expect_ok(ctx.device->upload(ctx.device, p.source.data, ids[s], (size_t)p.S * sizeof **ids));
        while (length <= MOST && plain_next(&ctx, &p, tokens, length) != END) length++;
        assert_int_equal(got.lengths[s], length - 1);
        assert_memory_equal(got.ids[s], tokens + 1, (size_t)(length - 1) * sizeof *tokens);
    }
    transformer_close(&p.model);
    ctx_close(&ctx);
}

/* ---- greedy, by the generator (on a GPU, as a graph) ---- */

typedef struct {
    Transformer model;
    Generator generator;
} Greedy;

static Status greedy_rehearsal(Ctx *ctx, void *program) {
    Greedy *g = program;
    TRY(transformer_take(ctx, &g->model, false));
    return generator_take(ctx, &g->generator);
}

static void generate(Backend backend, bool graphs, Translations *out) {
    static Greedy g;
    const SamplerOptions options = {.temperature = 0, .top_p = 1};
    Config config = small(NORM_POST);
    Sampler *sampler;
    Ctx ctx;
    ctx_open(&ctx, test_device(backend));
    ctx.fuses = ALL;
    ctx.graphs = graphs;
    expect_ok(transformer_open(&config, &g.model));
    expect_ok(generator_open(test_device(backend), &g.model, true, &g.generator));
    g.generator.source = SOURCE;
    expect_ok(sampler_open(VOCAB, &options, &sampler));
    expect_ok(plan_measure(&ctx, greedy_rehearsal, &g, NULL));
    expect_ok(plan_allocate(&ctx));
    expect_ok(greedy_rehearsal(&ctx, &g));
    expect_ok(parameters_initialize(&ctx, &g.model.parameters, 5));
    int32_t ids[SENTENCES][SOURCE];
    Sentence sources[SENTENCES];
    make_sources(ids, sources);
    for (int s = 0; s < SENTENCES; s++) {
        expect_ok(generator_start(&g.generator, &(int32_t){BEGIN}, 1));
        expect_ok(generator_read_source(&ctx, &g.generator, ids[s], sources[s].count));
        for (out->lengths[s] = 0; out->lengths[s] < MOST; out->lengths[s]++) {
            int32_t token;
            expect_ok(generator_next(&ctx, &g.generator, sampler, &token));
            if (token == END) break;
            out->ids[s][out->lengths[s]] = token;
        }
        assert_int_equal(g.generator.step.graph != NULL, graphs && backend == BACKEND_CUDA);
    }
    expect_error(generator_read_source(&ctx, &g.generator, ids[0], SOURCE + 1), ERROR_INTERNAL,
                 "the plan is for");
    sampler_close(sampler);
    generator_close(&g.generator);
    transformer_close(&g.model);
    ctx_close(&ctx);
}

static void the_generator_says_the_same(void **state) {
    (void)state;
    Setup setup = {BACKEND_CPU, 0, SENTENCES, 1, DECODING_CACHED, NORM_POST};
    Translations expected, got;
    translate(&setup, &expected);
    for (int way = 0; way < 2 * BACKEND_COUNT; way++) {
        const Backend backend = (Backend)(way / 2);
        if (!test_device(backend)) continue;
        generate(backend, way % 2, &got);
        for (int s = 0; s < SENTENCES; s++) {
            assert_int_equal(got.lengths[s], expected.lengths[s]);
            assert_memory_equal(got.ids[s], expected.ids[s], (size_t)got.lengths[s] * sizeof **got.ids);
        }
    }
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    static Transformer model;
    Translator translator;
    Config config = small(NORM_POST);
    TranslateOptions options = {
        .sentences = 1, .beam = 1, .begin = BEGIN, .end = END, .source = MOST + 1, .most = MOST};
    expect_ok(transformer_open(&config, &model));
    expect_error(translator_open(&options, &model, &translator), ERROR_USAGE, "14 tokens are more than");
    options.source = 1;
    options.most = MOST + 1;
    expect_error(translator_open(&options, &model, &translator), ERROR_USAGE, "14 tokens are more than");
    options.most = 1;
    options.beam = 65;
    expect_error(translator_open(&options, &model, &translator), ERROR_USAGE, "the beam is 65");
    transformer_close(&model);
    expect_ok(config_preset("gpt2-nano", &config));
    expect_ok(transformer_open(&config, &model));
    options.beam = 1;
    expect_error(translator_open(&options, &model, &translator), ERROR_USAGE, "only a model with an encoder");
    transformer_close(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_says_the_same),
        cmocka_unit_test(every_way_says_the_same_cuda),
        cmocka_unit_test(greedy_is_the_likeliest_token_each_time),
        cmocka_unit_test(the_generator_says_the_same),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
