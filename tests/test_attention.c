#include "tests/support/attention.h"

#include <math.h>
#include <stdio.h>

static const AttentionCase cases[] = {
    /* B, T, S, heads, kv_heads, D, causal, lengths, packed, gap */
    {1, 1, 1, 1, 1, 1, true, false, false, 0},       {1, 1, 1, 2, 2, 8, false, false, true, 0},
    {2, 2, 2, 1, 1, 16, true, false, true, 3},       {1, 3, 3, 3, 1, 33, true, false, true, 0},
    {2, 17, 17, 2, 2, 8, false, true, false, 0},     {1, 63, 63, 1, 1, 64, true, false, true, 0},
    {1, 64, 64, 2, 2, 64, true, false, true, 0},     {2, 65, 65, 2, 1, 64, true, false, true, 8},
    {1, 127, 127, 1, 1, 80, true, false, true, 0},   {2, 130, 130, 2, 2, 64, true, true, true, 0},
    {1, 257, 257, 1, 1, 64, true, false, true, 0},   {1, 257, 257, 1, 1, 128, true, false, true, 8},
    {1, 130, 130, 1, 1, 128, false, false, true, 0}, {2, 64, 64, 1, 1, 128, false, true, true, 0},
    {2, 17, 64, 4, 2, 16, true, false, false, 0},    {1, 65, 130, 1, 1, 64, false, false, false, 0},
    {1, 130, 65, 2, 1, 64, true, false, false, 0},   {1, 3, 127, 2, 1, 80, true, false, false, 0},
    {3, 1, 65, 2, 2, 64, false, true, false, 0},     {2, 127, 63, 1, 1, 33, false, true, false, 0},
    {1, 33, 257, 1, 1, 64, true, false, false, 0},   {2, 65, 17, 6, 2, 8, false, false, false, 0},
    {1, 130, 130, 4, 4, 1, true, false, true, 1},    {1, 128, 128, 2, 2, 64, true, false, true, 0},
    {1, 192, 192, 1, 1, 128, true, false, true, 0},  {4, 17, 17, 3, 3, 128, true, true, true, 0},
    {1, 200, 72, 1, 1, 16, true, true, false, 0},    {2, 2, 257, 2, 1, 128, true, false, false, 0},
    {1, 63, 1, 2, 2, 64, false, false, false, 0},    {2, 127, 130, 2, 1, 64, true, true, false, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static void describe(const AttentionCase *c, char text[96]) {
    snprintf(text, 96, "attention B=%d T=%d S=%d heads=%d/%d D=%d%s%s%s", (int)c->batch, (int)c->queries,
             (int)c->keys, (int)c->heads, (int)c->kv_heads, (int)c->size, c->causal ? " causal" : "",
             c->lengths ? " lengths" : "", c->packed ? " packed" : "");
}

static void check(const Variant *variant, const AttentionCase *c, double spread, bool formula) {
    static const char *const names[ATTENTION_OUTPUTS] = {"y", "lse", "dq", "dk", "dv"};
    AttentionBatch batch;
    double *in[ATTENTION_INPUTS], *got[ATTENTION_OUTPUTS], *want[ATTENTION_OUTPUTS],
        *bound[ATTENTION_OUTPUTS];
    char text[96];
    describe(c, text);
    attention_inputs(c, variant->dtype, spread, &batch, in);
    attention_outputs(c, got);
    attention_model(&batch, units_of(variant), in, want, bound);
    if (!formula) rig_run_once(&specification, attention_run, &batch, in, want);
    rig_run(variant, attention_run, &batch, in, got);
    for (int o = 0; o < ATTENTION_OUTPUTS; o++)
        expect_close(got[o], want[o], bound[o], attention_output_count(c, o), "%s: %s, %s", variant->name,
                     text, names[o]);
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) check(&specification, &cases[i], 1, true);
}

static void form_follows_the_specification(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < CASES; i++) check(variant, &cases[i], 1, false);
}

/* Scores of 1e4 and more: exp overflows unless the maximum is subtracted first. */
static void large_scores_stay_finite(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const AttentionCase large[] = {{1, 65, 65, 2, 2, 64, true, false, true, 0},
                                   {2, 17, 33, 2, 1, 16, false, true, false, 0},
                                   {1, 130, 130, 1, 1, 128, true, false, true, 0}};
    for (int i = 0; i < 3; i++) check(variant, &large[i], 100, false);
}

/* Many keys with widely differing scores: the running maximum grows sometimes by much, sometimes by
 * little. */
static void growing_maxima_are_followed(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const AttentionCase growing[] = {{1, 256, 256, 2, 2, 64, true, false, true, 0},
                                     {1, 390, 300, 1, 1, 64, false, false, false, 0},
                                     {2, 100, 390, 1, 1, 128, false, true, false, 0}};
    for (int i = 0; i < 3; i++) check(variant, &growing[i], 3, false);
}

/* About as many keys as a picture's patches and a class token: edges of tiles, a second tile of queries,
 * fewer keys in some rows. */
static void pictures_are_seen_whole(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const AttentionCase whole[] = {{3, 197, 197, 2, 2, 64, false, false, true, 0},
                                   {4, 197, 197, 2, 1, 64, false, true, false, 0},
                                   {2, 70, 193, 2, 2, 64, false, false, false, 0},
                                   {2, 130, 208, 2, 2, 64, false, true, false, 0},
                                   {1, 257, 209, 1, 1, 64, false, false, false, 0}};
    for (int i = 0; i < 5; i++) check(variant, &whole[i], 1, false);
}

/* Three tiles of queries for each of 45 heads, two for each of 164 and 168: more tiles than a GPU has
 * multiprocessors, and in the last case more heads than are drawn together. */
static void many_tiles_are_all_done(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const AttentionCase many[] = {{15, 257, 257, 3, 3, 64, true, false, true, 0},
                                  {41, 197, 197, 4, 4, 64, false, false, true, 0},
                                  {42, 129, 129, 8, 4, 64, true, false, true, 0}};
    for (int i = 0; i < 3; i++) check(variant, &many[i], 1, false);
}

/* Without training nothing is saved, and y is the same. */
static void inference_agrees_with_training(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < CASES; i += 3) {
        AttentionBatch batch;
        double *in[ATTENTION_INPUTS], *got[ATTENTION_OUTPUTS], *want[ATTENTION_OUTPUTS],
            *bound[ATTENTION_OUTPUTS];
        char text[96];
        describe(&cases[i], text);
        attention_inputs(&cases[i], variant->dtype, 1, &batch, in);
        attention_outputs(&cases[i], got);
        attention_model(&batch, units_of(variant), in, want, bound);
        batch.inference = true;
        rig_run(variant, attention_run, &batch, in, got);
        expect_close(got[0], want[0], bound[0], attention_output_count(&cases[i], 0), "%s: %s, inference",
                     variant->name, text);
    }
}

static void no_rows_are_harmless(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const AttentionCase c = {0, 8, 8, 2, 2, 16, true, false, false, 0};
    AttentionBatch batch;
    double *in[ATTENTION_INPUTS], *got[ATTENTION_OUTPUTS];
    attention_inputs(&c, variant->dtype, 1, &batch, in);
    attention_outputs(&c, got);
    rig_run(variant, attention_run, &batch, in, got);
}

/* Rows [first, first + count) of each batch row of a (B, T, width) array. */
static double *rows_of(const double *x, int64_t batch, int64_t rows, int64_t width, int64_t first,
                       int64_t count) {
    double *part = zeros(batch * count * width);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < count * width; i++)
            part[b * count * width + i] = x[(b * rows + first) * width + i];
    return part;
}

/* A prompt of 5, then pieces of 1, 1, 3, ...: out[0] is y of all of them, out[1] and out[2] the caches. */
enum { PIECES = 7, CAPACITY = 80 };
static const int64_t pieces[PIECES] = {5, 1, 1, 3, 1, 60, 1};

static void run_cached(Rig *rig, const void *what, double *const *in, double *const *out) {
    const AttentionBatch *batch = what;
    const AttentionCase *c = &batch->size;
    const Dtype dtype = rig->ctx.dtype;
    const int64_t q_width = c->heads * c->size, kv_width = c->kv_heads * c->size;
    const Shape capacity = shape3(c->batch, CAPACITY, kv_width);
    Tensor cache_k = rig_blank(rig, "cache_k", dtype, capacity),
           cache_v = rig_blank(rig, "cache_v", dtype, capacity);
    for (int64_t piece = 0, past = 0; piece < PIECES; past += pieces[piece++]) {
        int64_t rows = pieces[piece];
        const Shape q = shape3(c->batch, rows, q_width), kv = shape3(c->batch, rows, kv_width);
        AttentionForward a = {
            .q = rig_put(rig, "q", dtype, q, rows_of(in[0], c->batch, c->queries, q_width, past, rows)),
            .k = rig_put(rig, "k", dtype, kv, rows_of(in[1], c->batch, c->keys, kv_width, past, rows)),
            .v = rig_put(rig, "v", dtype, kv, rows_of(in[2], c->batch, c->keys, kv_width, past, rows)),
            .y = rig_blank(rig, "y", dtype, q),
            .heads = c->heads,
            .kv_heads = c->kv_heads,
            .causal = true,
            .scale = batch->scale,
            .cache_k = cache_k,
            .cache_v = cache_v,
            .past = past};
        expect_ok(attention_forward(&rig->ctx, &a, ARENA_SAVED));
        double *y = zeros(c->batch * rows * q_width);
        rig_get(rig, a.y, y);
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t i = 0; i < rows * q_width; i++)
                out[0][(b * c->queries + past) * q_width + i] = y[b * rows * q_width + i];
    }
    rig_get(rig, cache_k, out[1]);
    rig_get(rig, cache_v, out[2]);
}

static void expect_cache(const double *cache, const double *x, const AttentionCase *c) {
    const int64_t width = c->kv_heads * c->size;
    for (int64_t b = 0; b < c->batch; b++) {
        expect_equal(cache + b * CAPACITY * width, x + b * c->keys * width, c->keys * width, "cache");
        for (int64_t i = c->keys * width; i < CAPACITY * width; i++)
            assert_true(isnan(cache[b * CAPACITY * width + i])); // not touched
    }
}

static void cached_pieces_agree_with_the_whole(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const AttentionCase wholes[] = {{2, 72, 72, 4, 2, 64, true, false, false, 0},
                                    {1, 72, 72, 3, 3, 33, true, false, false, 0},
                                    {2, 72, 72, 2, 2, 128, true, false, false, 0}};
    for (int i = 0; i < 3; i++) {
        const AttentionCase *c = &wholes[i];
        AttentionBatch batch;
        double *in[ATTENTION_INPUTS], *want[ATTENTION_OUTPUTS], *bound[ATTENTION_OUTPUTS];
        attention_inputs(c, variant->dtype, 1, &batch, in);
        attention_model(&batch, units_of(variant), in, want, bound);
        int64_t cache = c->batch * CAPACITY * c->kv_heads * c->size, count = attention_output_count(c, 0);
        double *got[3] = {zeros(count), zeros(cache), zeros(cache)};
        rig_run(variant, run_cached, &batch, in, got);
        expect_close(got[0], want[0], bound[0], count, "%s: attention with a cache, D=%d", variant->name,
                     (int)c->size);
        expect_cache(got[1], in[1], c);
        expect_cache(got[2], in[2], c);
    }
}

/* Rows whose pasts differ, with NaN in the cache after each past: out[0] is y, out[1] and out[2] the caches. */
enum { OWN_ROWS = 5, LONGEST = 129 };
static const int32_t own_pasts[OWN_ROWS] = {0, 1, 127, 128, LONGEST};

static double *cache_of(const AttentionCase *c, const double *x) {
    const int64_t width = c->kv_heads * c->size;
    double *cache = zeros(c->batch * c->keys * width);
    for (int64_t row = 0; row < c->batch * c->keys; row++)
        for (int64_t i = row * width; i < (row + 1) * width; i++)
            cache[i] = row % c->keys < own_pasts[row / c->keys] ? x[i] : NAN;
    return cache;
}

static double *new_rows_of(const AttentionCase *c, const double *x) {
    const int64_t width = c->kv_heads * c->size, count = c->queries * width;
    double *rows = zeros(c->batch * count);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < count; i++) rows[b * count + i] = x[(b * c->keys + own_pasts[b]) * width + i];
    return rows;
}

static void run_pasts(Rig *rig, const void *what, double *const *in, double *const *out) {
    const AttentionBatch *batch = what;
    const AttentionCase *c = &batch->size;
    const Dtype dtype = rig->ctx.dtype;
    const int64_t width = c->kv_heads * c->size;
    const Shape q = shape3(c->batch, c->queries, c->heads * c->size),
                kv = shape3(c->batch, c->queries, width), cache = shape3(c->batch, c->keys, width);
    AttentionForward a = {.q = rig_put(rig, "q", dtype, q, in[0]),
                          .k = rig_put(rig, "k", dtype, kv, new_rows_of(c, in[1])),
                          .v = rig_put(rig, "v", dtype, kv, new_rows_of(c, in[2])),
                          .y = rig_blank(rig, "y", dtype, q),
                          .heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .causal = true,
                          .scale = batch->scale,
                          .cache_k = rig_put(rig, "cache_k", dtype, cache, cache_of(c, in[1])),
                          .cache_v = rig_put(rig, "cache_v", dtype, cache, cache_of(c, in[2])),
                          .past = LONGEST,
                          .pasts = rig_put_ints(rig, "pasts", shape1(c->batch), own_pasts)};
    expect_ok(attention_forward(&rig->ctx, &a, ARENA_SAVED));
    rig_get(rig, a.y, out[0]);
    rig_get(rig, a.cache_k, out[1]);
    rig_get(rig, a.cache_v, out[2]);
}

/* Row b alone, which sees its past and its new rows. */
static void expect_row(const AttentionBatch *batch, Units u, int64_t b, double *const *in, double *const *got,
                       const char *name) {
    const AttentionCase *c = &batch->size;
    const int64_t width = c->kv_heads * c->size, count = c->queries * c->heads * c->size,
                  keys = own_pasts[b] + c->queries;
    AttentionBatch one = *batch;
    double *want[ATTENTION_OUTPUTS], *bound[ATTENTION_OUTPUTS];
    double *own[] = {in[0] + b * count, in[1] + b * c->keys * width, in[2] + b * c->keys * width,
                     in[3] + b * count};
    one.size.batch = 1;
    one.size.keys = keys;
    attention_model(&one, u, own, want, bound);
    expect_close(got[0] + b * count, want[0], bound[0], count, "%s: T=%d, D=%d, past %d", name,
                 (int)c->queries, (int)c->size, own_pasts[b]);
    for (int i = 1; i <= 2; i++) {
        const double *cache = got[i] + b * c->keys * width;
        expect_equal(cache, own[i], keys * width, "cache");
        for (int64_t k = keys * width; k < c->keys * width; k++) assert_true(isnan(cache[k])); // not touched
    }
}

static void rows_have_pasts(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    static const struct {
        int64_t queries, heads, kv_heads, size;
    } shapes[] = {{1, 6, 2, 64},
                  {1, 4, 4, 128},
                  {3, 7, 1, 128},
                  {9, 2, 1, 64},
                  {1, 3, 3, 34},
                  {2, 2, 1, 264},
                  /* So many that a GPU takes 2, 3 or 4 heads with the same keys together. */
                  {2, 80, 40, 16},
                  {2, 120, 40, 16},
                  {2, 160, 40, 72}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t T = shapes[i].queries;
        const AttentionCase c = {OWN_ROWS,       T,    LONGEST + T, shapes[i].heads, shapes[i].kv_heads,
                                 shapes[i].size, true, false,       false,           0};
        AttentionBatch batch;
        double *in[ATTENTION_INPUTS];
        attention_inputs(&c, variant->dtype, 1, &batch, in);
        const int64_t cache = c.batch * c.keys * c.kv_heads * c.size;
        double *got[3] = {zeros(attention_output_count(&c, 0)), zeros(cache), zeros(cache)};
        rig_run(variant, run_pasts, &batch, in, got);
        for (int64_t b = 0; b < OWN_ROWS; b++)
            expect_row(&batch, units_of(variant), b, in, got, variant->name);
    }
}

enum { TOKENS = 150 };

typedef struct {
    int64_t kv_heads, size, most; // columns of a head; queries at a time
} Pieces;

/* y of a text of TOKENS, read `most` tokens at a time, under `invariant`. */
static void run_pieces(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Pieces *c = what;
    const Dtype dtype = rig->ctx.dtype;
    const int64_t heads = 2 * c->kv_heads, width = heads * c->size, kv = c->kv_heads * c->size;
    const Tensor q = rig_put(rig, "q", dtype, shape2(TOKENS, width), in[0]);
    const Tensor k = rig_put(rig, "k", dtype, shape2(TOKENS, kv), in[1]);
    const Tensor v = rig_put(rig, "v", dtype, shape2(TOKENS, kv), in[2]);
    const Tensor y = rig_blank(rig, "y", dtype, shape2(TOKENS, width));
    const Shape cache = shape3(1, TOKENS, kv);
    AttentionForward a = {.heads = heads,
                          .kv_heads = c->kv_heads,
                          .causal = true,
                          .scale = 1 / sqrt((double)c->size),
                          .cache_k = rig_blank(rig, "cache_k", dtype, cache),
                          .cache_v = rig_blank(rig, "cache_v", dtype, cache)};
    rig->ctx.fuses |= FUSE_INVARIANT;
    for (int64_t rows; a.past < TOKENS; a.past += rows) {
        rows = TOKENS - a.past < c->most ? TOKENS - a.past : c->most;
        a.q = tensor_elements(q, a.past * width, shape3(1, rows, width));
        a.y = tensor_elements(y, a.past * width, shape3(1, rows, width));
        a.k = tensor_elements(k, a.past * kv, shape3(1, rows, kv));
        a.v = tensor_elements(v, a.past * kv, shape3(1, rows, kv));
        expect_ok(attention_forward(&rig->ctx, &a, ARENA_SAVED));
    }
    rig->ctx.fuses &= ~FUSE_INVARIANT;
    rig_get(rig, y, out[0]);
}

static void a_text_has_the_bits_of_its_pieces(void **state) {
    static const int64_t sizes[] = {64, 32, 128, 40, 96}, most[] = {1, 2, 3, 4, 5, 70};
    const Variant *variant = test_variant(state, OP_ATTENTION);
    if (variant->form != FORM_FUSED) skip();
    /* so many heads that a GPU takes more queries together for the whole text than for its pieces */
    const int64_t kv_heads = variant->backend == BACKEND_CUDA ? 48 : 2;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t D = sizes[i], kv = TOKENS * kv_heads * D, count = 2 * kv;
        double *in[] = {normals(count, 3, F64), normals(kv, 1, F64), normals(kv, 1, F64)};
        for (int64_t n = 0; n < kv; n++) in[2][n] *= pow(10, -(double)(n % 41)); // the last are denormal
        double *want = zeros(count), *got = zeros(count);
        rig_run(variant, run_pieces, &(Pieces){kv_heads, D, TOKENS}, in, &want);
        for (size_t n = 0; n < sizeof most / sizeof *most; n++) {
            rig_run(variant, run_pieces, &(Pieces){kv_heads, D, most[n]}, in, &got);
            expect_equal(got, want, count, "in pieces");
        }
    }
}

static void gradients_are_slopes(void **state) {
    (void)state;
    const AttentionCase tiny[] = {{1, 3, 3, 1, 1, 2, true, false, true, 0},
                                  {2, 4, 2, 2, 1, 3, true, false, false, 0},
                                  {3, 5, 7, 4, 2, 4, false, true, false, 0}};
    for (int i = 0; i < 3; i++) attention_expect_gradients(&tiny[i], NULL, "attention");
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const AttentionForward right = {.q = tensor_view(NULL, F32, shape3(2, 3, 24)),
                                    .k = tensor_view(NULL, F32, shape3(2, 5, 12)),
                                    .v = tensor_view(NULL, F32, shape3(2, 5, 12)),
                                    .y = tensor_view(NULL, F32, shape3(2, 3, 24)),
                                    .heads = 4,
                                    .kv_heads = 2};
    AttentionForward wrong[9] = {right, right, right, right, right, right, right, right, right};
    wrong[0].kv_heads = 3;
    wrong[1].heads = 5;
    wrong[2].k = tensor_view(NULL, F32, shape3(2, 5, 24));
    wrong[3].y.stride = 25;
    wrong[4].past = 1; // and no cache
    wrong[5].key_lengths = tensor_view(NULL, I32, shape1(3));
    wrong[6].cache_k = wrong[6].cache_v = tensor_view(NULL, F32, shape3(2, 7, 12));
    wrong[6].past = 3;                                                   // 3 + 5 > 7
    wrong[7].pasts = wrong[8].pasts = tensor_view(NULL, I32, shape1(2)); // without a cache; not causal
    wrong[8].cache_k = wrong[8].cache_v = tensor_view(NULL, F32, shape3(2, 7, 12));
    for (int i = 0; i < 9; i++) {
        Status status = attention_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula),
                                       ONCE(gradients_are_slopes),
                                       ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(form_follows_the_specification),
                                       ON_EACH_VARIANT(large_scores_stay_finite),
                                       ON_EACH_VARIANT(growing_maxima_are_followed),
                                       ON_EACH_VARIANT(pictures_are_seen_whole),
                                       ON_VARIANT(many_tiles_are_all_done, 7, "cuda fused bf16"),
                                       ON_EACH_VARIANT(inference_agrees_with_training),
                                       ON_EACH_VARIANT(cached_pieces_agree_with_the_whole),
                                       ON_EACH_VARIANT(rows_have_pasts),
                                       ON_EACH_VARIANT(a_text_has_the_bits_of_its_pieces),
                                       ON_EACH_VARIANT(no_rows_are_harmless)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
