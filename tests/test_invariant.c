/* --fused=1,invariant: a row's logits have the same bits in training's forward pass over the text alone, in a
 * batch of texts of other lengths, read into a cache in pieces, and decoded token by token. On the CPU, up to
 * LINEAR_FEW_ROWS rows have the same bits together as decoded one by one without invariant, too. */
#include "base/memory.h"
#include "base/random.h"
#include "run/batch_generator.h"
#include "run/runner.h"
#include "tests/support/rig.h"

#include <string.h>

enum {
    ALL = (1 << OP_COUNT) - 1,
    LAYERS = 2,
    VOCAB = 131,         // padded
    CONTEXT = 150,       // more than two of attention's blocks of keys
    LONG = 1100,         // more than a cluster of blocks takes at once
    ROWS = 64,           // of a batch
    PROMPT = 12,         // tokens of its longest prompt
    DRAWN = 5,           // tokens that are sampled
    MIXES = 20,          // per family and dtype, besides one of all rows: 228 in all
    WINDOW = PROMPT + 2, // the longest texts fill it
    TEXTS = 80,          // most texts of a mix, which take the places of those that have ended
};

typedef struct {
    const char *preset;
    Dtype dtype, packed;
    Backend backend;
    bool wide; // layers whose inputs a GPU adds in slices; heads of which it has one kernel for a token
} Family;

typedef struct {
    Session session;
    Ctx ctx;
    Transformer model;
    BatchGenerator generator;
    int64_t rows;    // of the generator
    int64_t context; // of the one text
    Cache cache;     // its own
    Tensor tokens, logits;
    float *alone; // (context, padded vocabulary): the logits of `tokens`
    float *read;  // the same, of the last pass
    BatchRow texts[TEXTS];
    uint64_t seed; // of the mix
    int64_t begun, count;
    int64_t full;   // texts of all mixes that the window has ended
    int64_t joined; // texts of all mixes that began while others went on
    float *drawn;   // (TEXTS, DRAWN, padded vocabulary): the logits from which the batch sampled
} Subject;

static int64_t padded(const Subject *s) {
    return config_padded_vocab(&s->model.config);
}

static Status read_logits(Ctx *ctx, Subject *s, int64_t count) {
    if (ctx->measuring) return OK;
    return ctx->device->download(ctx->device, s->read, s->logits.data,
                                 (size_t)(count * padded(s)) * sizeof *s->read);
}

/* Reads logits of tokens [first, first + count) of s->tokens; as training computes them if there is no
 * cache. */
static Status forward(Ctx *ctx, Subject *s, int64_t first, int64_t count, Cache *cache) {
    const Tensor tokens = tensor_elements(s->tokens, first, shape2(1, count));
    const Shape shape = shape2(count, padded(s));
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    ctx->training = !cache && s->session.packed == F32;
    TRY(transformer_forward(ctx, &s->model, &(DeviceBatch){.tokens = tokens}, cache));
    ctx->training = false;
    TRY(transformer_logits(ctx, &s->model, s->model.hidden, tensor_view(s->logits.data, F32, shape)));
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return read_logits(ctx, s, count);
}

static Status rehearse(Ctx *ctx, void *program) {
    Subject *s = program;
    TRY(transformer_take(ctx, &s->model, false));
    TRY(batch_generator_take(ctx, &s->generator));
    TRY(transformer_take_cache(ctx, &s->model, 1, s->context, 0, &s->cache));
    TRY(take(ctx, ARENA_SAVED, "tokens", I32, shape2(1, s->context), &s->tokens));
    TRY(take(ctx, ARENA_SAVED, "logits", F32, shape2(s->context, padded(s)), &s->logits));
    if (!ctx->measuring) return OK;
    TRY(forward(ctx, s, 0, s->context, NULL));
    TRY(forward(ctx, s, 0, s->context, &s->cache));
    s->cache.length = 0;
    return OK;
}

static void open_subject(Subject *s, const Family *family, int64_t rows, int64_t context, int64_t seed) {
    *s = (Subject){.rows = rows, .context = context};
    Config *c = &s->session.config;
    expect_ok(config_preset(family->preset, c));
    c->layers = LAYERS;
    c->heads = 4;
    if (c->kv_heads != c->heads) c->kv_heads = c->architecture->qkv_as_one ? 4 : 2;
    c->head_size = 24; // neither a multiple of a vector's lanes nor of a tile
    c->width = 96;
    c->hidden = 160;
    c->context = s->context;
    c->vocab = VOCAB;
    if (family->wide) {
        c->head_size = c->head_norms ? 128 : 64;
        c->width = 1024;
        c->kv_heads = c->kv_heads == c->heads ? 16 : 2;
        c->heads = 16;
        c->hidden = 4168; // slices of more inputs than a block has in shared memory
    }
    c->init_std = family->wide ? 0.1 : 0.3; // far from flat
    s->session.device = test_device(family->backend);
    s->session.dtype = family->dtype;
    s->session.packed = family->packed;
    s->session.fuses = ALL | FUSE_INVARIANT;
    s->session.graphs = rows > 1;
    expect_ok(runner_open(&s->session, &s->ctx, &s->model));
    batch_generator_open(&s->model, rows, WINDOW, &s->generator);
    expect_ok(runner_start(&(Runner){&s->session, &s->ctx, &s->model, rehearse, s, false, seed, NULL}));
    s->alone = memory_array((size_t)(s->context * padded(s)), sizeof *s->alone);
    s->read = memory_array((size_t)(s->context * padded(s)), sizeof *s->read);
    s->drawn = memory_array((size_t)(TEXTS * DRAWN * padded(s)), sizeof *s->drawn);
}

static void close_subject(Subject *s) {
    memory_free(s->alone);
    memory_free(s->read);
    memory_free(s->drawn);
    batch_generator_close(&s->generator);
    transformer_close(&s->model);
    ctx_close(&s->ctx);
}

static void put_tokens(Subject *s, const int32_t *ids, int64_t count) {
    expect_ok(s->session.device->upload(s->session.device, s->tokens.data, ids, (size_t)count * sizeof *ids));
}

static void expect_same_logits(const float *one, const float *other) {
    assert_memory_equal(one, other, VOCAB * sizeof *one);
}

/* ---- batches ---- */

/* Keeps the logits of the row that is being sampled. */
static bool keep_logits(void *context, const BatchRow *row, int32_t token) {
    Subject *s = context;
    const BatchGenerator *g = &s->generator;
    const int64_t place = row - g->places, index = row->text.count - row->prompt;
    assert_in_range(place, 0, g->count - 1);
    assert_in_range(index, 0, DRAWN - 1);
    if (g->draws) // sampled on the device, so that the host has no logits
        expect_ok(
            values_read(&s->ctx, g->logits, place * padded(s), padded(s), g->values + place * padded(s)));
    memcpy(s->drawn + (row->number * DRAWN + index) * padded(s), g->values + place * padded(s),
           (size_t)padded(s) * sizeof *s->drawn);
    return token % 16 == 3; // texts end at different lengths
}

static void expect_as_alone(Subject *s, int64_t r) {
    const BatchRow *row = &s->texts[r];
    const int64_t count = row->text.count;
    put_tokens(s, row->text.ids, count);
    expect_ok(forward(&s->ctx, s, 0, count, NULL));
    for (int64_t i = row->prompt; i < count + row->ended; i++)
        expect_same_logits(s->drawn + (r * DRAWN + i - row->prompt) * padded(s),
                           s->read + (i - 1) * padded(s));
}

static Status next_text(void *context, BatchRow *row, bool *any) {
    Subject *s = context;
    const uint64_t number = (uint64_t)s->begun;
    const SamplerOptions options = {
        .temperature = (double)(number % 3), .top_p = 1, .seed = s->seed, .sequence = number};
    *any = s->begun < s->count;
    if (!*any) return OK;
    bool joins = false;
    for (int64_t r = 0; r < s->rows; r++) joins = joins || s->generator.places[r].read > 0;
    s->joined += joins;
    s->begun++;
    row->number = (int64_t)number;
    row->prompt = 1 + (int64_t)random_below(s->seed, number, PROMPT, PROMPT);
    for (int64_t i = 0; i < row->prompt; i++)
        token_list_add(&row->text, (int32_t)random_below(s->seed, number, (uint64_t)i, VOCAB));
    return sampler_open(VOCAB, &options, &row->sampler);
}

static Status keep_text(void *context, BatchRow *row) {
    Subject *s = context;
    const int64_t drawn = row->text.count - row->prompt;
    assert_true(row->ended || drawn == DRAWN || row->text.count == WINDOW + 1);
    s->full += !row->ended && drawn < DRAWN;
    s->texts[row->number] = *row;
    row->text = (TokenList){0};
    return OK;
}

static void mix(Subject *s, uint64_t seed) {
    s->seed = seed;
    s->begun = 0;
    s->count = 1 + (int64_t)random_below(seed, TEXTS, 0, (uint64_t)(s->rows < ROWS ? 3 * s->rows : TEXTS));
    s->generator.piece = 1 + (int64_t)random_below(seed, TEXTS, 1, WINDOW);
    expect_ok(batch_generator_run(
        &s->ctx, &s->generator,
        &(BatchTexts){
            .context = s, .tokens = DRAWN, .next = next_text, .ends = keep_logits, .finish = keep_text}));
    for (int64_t r = 0; r < s->count; r++) {
        expect_as_alone(s, r);
        token_list_free(&s->texts[r].text);
    }
}

/* ---- pieces ---- */

/* The tokens before `from` are in the cache. */
static void expect_pieces(Subject *s, int64_t from, int64_t piece) {
    s->cache.length = from;
    for (int64_t first = from; first < s->context; first += piece) {
        int64_t count = s->context - first < piece ? s->context - first : piece;
        expect_ok(forward(&s->ctx, s, first, count, &s->cache));
        for (int64_t i = 0; i < count; i++)
            expect_same_logits(s->read + i * padded(s), s->alone + (first + i) * padded(s));
    }
}

static void decode_all(Subject *s, int64_t first, float *logits) {
    s->cache.length = first;
    for (int64_t i = first; i < s->context; i++) {
        Tensor token = tensor_elements(s->tokens, i, shape1(1));
        ArenaMark mark = arena_mark(&s->ctx.arenas[ARENA_SAVED]);
        expect_ok(transformer_decode(&s->ctx, &s->model, token, &s->cache,
                                     tensor_view(s->logits.data, F32, shape2(1, padded(s)))));
        arena_release(&s->ctx.arenas[ARENA_SAVED], mark);
        expect_ok(read_logits(&s->ctx, s, 1));
        memcpy(logits + i * padded(s), s->read, (size_t)padded(s) * sizeof *logits);
    }
}

static void expect_decoded(Subject *s) {
    float *logits = memory_array((size_t)(s->context * padded(s)), sizeof *logits);
    decode_all(s, 0, logits);
    for (int64_t i = 0; i < s->context; i++)
        expect_same_logits(logits + i * padded(s), s->alone + i * padded(s));
    memory_free(logits);
}

/* Without invariant, after a prompt that is read at once. */
static void expect_few_rows(Subject *s) {
    s->ctx.fuses = ALL;
    s->cache.length = 0;
    expect_ok(forward(&s->ctx, s, 0, PROMPT, &s->cache));
    decode_all(s, PROMPT, s->alone);
    for (int64_t piece = 1; piece <= LINEAR_FEW_ROWS; piece++) expect_pieces(s, PROMPT, piece);
    s->ctx.fuses = s->session.fuses;
}

static void expect_all_pieces(Subject *s) {
    const int64_t pieces[] = {1, 3, 7, 64, s->context};
    int32_t ids[LONG];
    for (int i = 0; i < s->context; i++) ids[i] = (int32_t)random_below(5, 0, (uint64_t)i, VOCAB);
    put_tokens(s, ids, s->context);
    expect_ok(forward(&s->ctx, s, 0, s->context, NULL));
    memcpy(s->alone, s->read, (size_t)(s->context * padded(s)) * sizeof *s->alone);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) expect_pieces(s, 0, pieces[i]);
    expect_decoded(s);
    if (s->session.device->backend == BACKEND_CPU) expect_few_rows(s);
}

/* ---- families ---- */

static void on_family(const Family *family, int mixes) {
    static const int64_t rows[] = {1, 2, 5, 16, ROWS};
    enum { SIZES = sizeof rows / sizeof *rows };
    for (int i = 0; i < SIZES; i++) {
        Subject s;
        open_subject(&s, family, rows[i], CONTEXT, 3 + i);
        const int count =
            rows[i] == ROWS ? 1 : mixes / (SIZES - 1); // the largest takes as long as the others
        for (int m = 0; m < count; m++) mix(&s, (uint64_t)(100 * i + m));
        assert_true(count == 1 || (s.full > 0 && (s.joined > 0) == (rows[i] > 1)));
        if (i == 0) expect_all_pieces(&s);
        close_subject(&s);
    }
}

static void on_long_text(const Family *family) {
    Subject s;
    open_subject(&s, family, 1, LONG, 9);
    expect_all_pieces(&s);
    close_subject(&s);
}

static void on_families(Backend backend) {
    static const char *const presets[] = {"gpt2", "smollm2-135m", "tinyllama-1.1b", "qwen2.5-0.5b",
                                          "qwen3-0.6b"};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        on_family(&(Family){presets[i], F32, F32, backend, false}, MIXES);
        on_family(&(Family){presets[i], BF16, F32, backend, false}, MIXES);
    }
}

static void test_floats(void **state) {
    (void)state;
    on_families(BACKEND_CPU);
}

static void test_floats_cuda(void **state) {
    (void)state;
    if (!test_device(BACKEND_CUDA)) skip();
    on_families(BACKEND_CUDA);
    static const char *const wide[] = {"gpt2", "qwen2.5-0.5b", "qwen3-0.6b"};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        on_family(&(Family){wide[i], BF16, F32, BACKEND_CUDA, true}, MIXES);
        on_long_text(&(Family){wide[i], BF16, F32, BACKEND_CUDA, true});
    }
}

static void test_groups(void **state) {
    (void)state;
    on_family(&(Family){"gpt2", F32, I8, BACKEND_CPU, false}, 5);
    on_family(&(Family){"smollm2-135m", BF16, I8, BACKEND_CPU, false}, 5);
    on_family(&(Family){"qwen3-0.6b", F32, I4, BACKEND_CPU, false}, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_floats_cuda)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
