/* Speculative decoding: a generator with a draft gives the tokens that it gives without one, bit for bit, with
 * a draft that is always right, one that is mostly wrong, and any rule of sampling. */
#include "run/inference.h"
#include "tests/support/rig.h"

#include <string.h>

enum { CONTEXT = 40, TOKENS = 70, VOCAB = 131, SEED = 11, ALL = (1 << OP_COUNT) - 1 };

static const int32_t prompt[CONTEXT] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4};

static const SamplerOptions rules[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 0.7, .top_p = 1, .seed = 3},
    {.temperature = 1, .top_p = 0.9, .seed = 4, .sequence = 2},
    {.temperature = 0.9, .top_p = 1, .top_k = 20, .repeat_penalty = 1.3, .seed = 5},
    {.temperature = 0, .top_p = 1, .repeat_penalty = 1.5},
};
enum { RULES = sizeof rules / sizeof *rules };

typedef struct {
    const char *preset;
    Dtype dtype, packed;
    uint32_t fuses;
    Backend backend;
} Kind;

static const Kind kinds[] = {
    {"gpt2-nano", F32, F32, ALL, BACKEND_CPU},     {"gpt2-nano", F32, F32, ALL | FUSE_INVARIANT, BACKEND_CPU},
    {"smollm2-135m", BF16, F32, ALL, BACKEND_CPU}, {"qwen3-0.6b", F32, F32, ALL, BACKEND_CPU},
    {"smollm2-135m", F32, I8, ALL, BACKEND_CPU},
};
static const Kind kinds_cuda[] = {
    {"gpt2-nano", F32, F32, ALL | FUSE_INVARIANT, BACKEND_CUDA},
    {"smollm2-135m", BF16, F32, ALL | FUSE_INVARIANT, BACKEND_CUDA},
    {"qwen3-0.6b", BF16, F32, ALL | FUSE_INVARIANT, BACKEND_CUDA},
};
enum { KINDS = sizeof kinds / sizeof *kinds, KINDS_CUDA = sizeof kinds_cuda / sizeof *kinds_cuda };

/* A model and its draft. */
typedef struct {
    Session session;
    Inference main, draft;
} Pair;

static int64_t draft_vocab = VOCAB;

static void open_one(Pair *p, Inference *in, int64_t window, int64_t seed) {
    expect_ok(inference_open(in, &p->session, true));
    in->use = INFERENCE_GENERATE;
    in->generator.window = window;
    if (in == &p->main && p->draft.ctx.device) in->generator.draft = &p->draft.generator;
    in->generator.draft_ctx = &p->draft.ctx;
    expect_ok(inference_start(in, &p->session, false, seed));
}

static Device *devices[BACKEND_COUNT]; // the CPU with one thread, because these models are too small for more

/* Without a draft if its seed is 0. The draft's window may be smaller. */
static void open_pair(Pair *p, const Kind *kind, int64_t window, int64_t draft_seed, int64_t draft_window) {
    *p = (Pair){0};
    Config *c = &p->session.config;
    expect_ok(config_preset(kind->preset, c));
    c->layers = 2;
    c->heads = 4;
    if (c->kv_heads != c->heads) c->kv_heads = 2;
    if (c->architecture->qkv_as_one) c->kv_heads = 4;
    c->head_size = 24;
    c->width = 96;
    c->hidden = 160;
    c->context = CONTEXT;
    c->vocab = VOCAB;
    c->init_std = 0.3; // far from flat, so that a wrong number changes a token
    p->session.device = devices[kind->backend];
    p->session.dtype = kind->dtype;
    p->session.packed = kind->packed;
    p->session.fuses = kind->fuses;
    p->session.graphs = true;
    c->vocab = draft_vocab;
    if (draft_seed) open_one(p, &p->draft, draft_window, draft_seed);
    c->vocab = VOCAB;
    open_one(p, &p->main, window, SEED);
}

static void close_pair(Pair *p) {
    inference_close(&p->main);
    if (p->draft.ctx.device) inference_close(&p->draft);
}

static void draw(Pair *p, Sampler *sampler, int64_t count, int32_t *tokens) {
    for (int64_t i = 0; i < count; i++)
        expect_ok(generator_next(&p->main.ctx, &p->main.generator, sampler, &tokens[i]));
}

static void write_text(Pair *p, const SamplerOptions *rule, int64_t length, int32_t tokens[TOKENS]) {
    Sampler *sampler;
    expect_ok(sampler_open(VOCAB, rule, &sampler));
    expect_ok(generator_start(&p->main.generator, prompt, length));
    draw(p, sampler, TOKENS, tokens);
    sampler_close(sampler);
}

/* ---- texts ---- */

static const int64_t lengths[] = {2, 20, CONTEXT - 2};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

typedef int32_t Texts[RULES][LENGTHS][TOKENS];

/* Returns the share of proposals that were accepted. */
static double write_texts(const Kind *kind, int64_t window, int64_t seed, int64_t draft_window, Texts texts) {
    Pair p;
    int64_t proposed = 0, accepted = 0;
    open_pair(&p, kind, window, seed, draft_window);
    for (int r = 0; r < RULES; r++) {
        for (int l = 0; l < LENGTHS; l++) {
            write_text(&p, &rules[r], lengths[l], texts[r][l]);
            proposed += p.main.generator.proposed;
            accepted += p.main.generator.accepted;
        }
    }
    close_pair(&p);
    return proposed ? (double)accepted / (double)proposed : -1;
}

/* Three windows of the context, among them prompts that leave space for less than PROPOSALS. */
static void expect_same_texts(const Kind *kind) {
    Texts without, right, wrong;
    write_texts(kind, CONTEXT, 0, 0, without);
    double all = write_texts(kind, CONTEXT, SEED, CONTEXT, right);
    double few = write_texts(kind, CONTEXT, SEED + 1, CONTEXT, wrong);
    assert_memory_equal(without, right, sizeof right);
    assert_memory_equal(without, wrong, sizeof wrong);
    if (all < 0.9 || few < 0 || few > 0.5) fail_msg("accepted %.3f and %.3f", all, few);
}

/* Few proposals, or none, fit into a small window of the model or of the draft. */
static void expect_small_windows(const Kind *kind) {
    Texts without, with;
    for (int64_t window = 1; window <= PROPOSALS + 2; window++) {
        write_texts(kind, window, 0, 0, without);
        write_texts(kind, window, SEED, window, with);
        assert_memory_equal(without, with, sizeof with);
    }
    write_texts(kind, CONTEXT, 0, 0, without);
    write_texts(kind, CONTEXT, SEED, CONTEXT / 2, with);
    assert_memory_equal(without, with, sizeof with);
}

/* A draft whose table has fewer rows, with which it cannot read or propose every token, or more. */
static void expect_other_paddings(const Kind *kind) {
    static const int64_t vocabs[] = {20, VOCAB - 2, VOCAB + 100};
    Texts without, with;
    write_texts(kind, CONTEXT, 0, 0, without);
    for (int i = 0; i < 3; i++) {
        draft_vocab = vocabs[i];
        const double accepted = write_texts(kind, CONTEXT, SEED, CONTEXT, with);
        draft_vocab = VOCAB;
        assert_memory_equal(without, with, sizeof with);
        if (i > 0 && accepted < 0.5) fail_msg("with %d rows accepted %.3f", (int)vocabs[i], accepted);
    }
}

/* ---- interruptions ---- */

/* A text that is interrupted after `first` tokens, amid a run of accepted proposals or at its end: a message
 * is appended, later a part is forgotten, and the text continues each time. */
static void write_turns(const Kind *kind, int64_t seed, int64_t first, int32_t tokens[CONTEXT]) {
    static const int32_t more[] = {7, 7, 2, 1, 8, 2};
    Pair p;
    Sampler *sampler;
    Generator *g = &p.main.generator;
    open_pair(&p, kind, CONTEXT, seed, CONTEXT);
    expect_ok(sampler_open(VOCAB, &rules[1], &sampler));
    expect_ok(generator_start(g, prompt, 5));
    draw(&p, sampler, first, tokens);
    expect_ok(generator_append(g, more, 1 + first % 6));
    draw(&p, sampler, 6, tokens + first);
    generator_forget(g, 3, first);
    draw(&p, sampler, 6, tokens + first + 6);
    generator_forget(g, g->length - 2, 2); // its end
    expect_ok(generator_append(g, more, 1));
    draw(&p, sampler, 6, tokens + first + 12);
    assert_int_equal(g->draws, first + 18);
    sampler_close(sampler);
    close_pair(&p);
}

static void expect_interruptions(const Kind *kind) {
    for (int64_t first = 1; first <= 9; first++) {
        int32_t without[CONTEXT] = {0}, right[CONTEXT] = {0}, wrong[CONTEXT] = {0};
        write_turns(kind, 0, first, without);
        write_turns(kind, SEED, first, right);
        write_turns(kind, SEED + 1, first, wrong);
        assert_memory_equal(without, right, sizeof right);
        assert_memory_equal(without, wrong, sizeof wrong);
    }
}

/* ---- devices ---- */

static void test_cpu(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++) expect_same_texts(&kinds[k]);
    for (int k = 0; k < KINDS; k++) expect_other_paddings(&kinds[k]);
    expect_small_windows(&kinds[0]);
    expect_interruptions(&kinds[0]);
}

static void test_cuda(void **state) {
    (void)state;
    if (!devices[BACKEND_CUDA]) skip();
    for (int k = 0; k < KINDS_CUDA; k++) expect_same_texts(&kinds_cuda[k]);
    expect_other_paddings(&kinds_cuda[0]);
    expect_small_windows(&kinds_cuda[0]);
    expect_interruptions(&kinds_cuda[0]);
}

static int open_devices(void **state) {
    (void)state;
    expect_ok(device_open("cpu", 1, &devices[BACKEND_CPU]));
    devices[BACKEND_CUDA] = test_device(BACKEND_CUDA);
    return 0;
}

static int close_devices(void **state) {
    devices[BACKEND_CPU]->close(devices[BACKEND_CPU]);
    return devices_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_cuda)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
