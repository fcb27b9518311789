/* Rotary positions, and attention whose query heads share key/value heads. A form's rotated q and k are
 * compared with the formula; its attention is compared with the expected results for the q and k that it has
 * rotated. */
#include "tests/support/attention.h"

#include <math.h>
#include <stdio.h>

static const AttentionCase cases[] = {
    /* B, T, S, heads, kv_heads, D, causal, lengths, packed, gap */
    {1, 1, 1, 1, 1, 2, true, false, false, 0},       {2, 3, 3, 2, 1, 6, true, false, true, 3},
    {2, 17, 17, 3, 1, 8, true, false, true, 0},      {1, 33, 33, 2, 2, 33 + 1, false, true, true, 1},
    {1, 64, 64, 9, 3, 64, true, false, true, 0},     {2, 130, 130, 7, 1, 64, true, false, true, 8},
    {1, 257, 257, 14, 2, 64, true, false, true, 0},  {1, 65, 65, 6, 2, 80, true, false, true, 0},
    {2, 127, 127, 4, 2, 128, true, false, true, 0},  {1, 300, 300, 7, 1, 128, true, false, true, 0},
    {2, 130, 130, 6, 2, 64, true, true, true, 0},    {1, 200, 200, 8, 2, 128, false, true, false, 0},
    {1, 520, 520, 3, 1, 64, true, false, false, 16}, {3, 2, 2, 5, 5, 16, true, false, true, 0},
    {1, 40, 40, 2, 1, 256, true, false, true, 0},    {33, 70, 70, 2, 1, 64, true, false, true, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Several documents in a row, of about this many tokens. */
static const struct {
    AttentionCase size;
    int64_t tokens;
} documents[] = {
    {{2, 70, 70, 2, 1, 16, true, false, true, 0}, 1},
    {{2, 130, 130, 7, 1, 64, true, false, true, 8}, 5},
    {{1, 300, 300, 3, 1, 128, true, false, true, 0}, 90},
    {{2, 520, 520, 2, 1, 64, true, false, true, 0}, 200},
    {{1, 270, 270, 2, 1, 80, true, false, false, 0}, 40},
    {{1, 600, 600, 1, 1, 128, true, false, true, 0}, 260},
};
enum { DOCUMENTS = sizeof documents / sizeof *documents };

/* Hugging Face's frequencies for rope_theta = 10000, in fp32. */
static double *frequencies_of(int64_t size) {
    double *frequencies = zeros(size / 2);
    for (int64_t d = 0; d < size / 2; d++)
        frequencies[d] = rounded(F32, pow(10000, -2 * (double)d / (double)size));
    return frequencies;
}

/* Rotates (B, T, heads, D) numbers and updates their bounds; `unit` is the stored dtype's unit roundoff.
 * Direction +1 rotates, -1 rotates back. The angle is rounded once, cosine and sine have an error of two
 * ulps, products and sum of three roundings. */
static void turn(const AttentionBatch *batch, int64_t heads, int64_t past, Units u, int sign, double *x,
                 double *bound) {
    const AttentionCase *c = &batch->size;
    const int64_t half = c->size / 2;
    for (int64_t row = 0; row < c->batch * c->queries * heads; row++)
        for (int64_t d = 0; d < half; d++) {
            const int64_t low = row * c->size + d, high = low + half;
            const int64_t start = batch->starts ? batch->starts[row / heads] : 0;
            const double angle = (double)(past + row / heads % c->queries - start) * batch->frequencies[d];
            const double cosine = cos(angle), sine = sign * sin(angle), a = x[low], b = x[high];
            const double error = u.wide * (angle + 7) * (fabs(a) + fabs(b)), was = bound[low];
            x[low] = a * cosine - b * sine;
            x[high] = b * cosine + a * sine;
            bound[low] = fabs(cosine) * was + fabs(sine) * bound[high] + error + u.storage * fabs(x[low]);
            bound[high] = fabs(cosine) * bound[high] + fabs(sine) * was + error + u.storage * fabs(x[high]);
        }
}

static double *copy_of(const double *x, int64_t count) {
    double *copy = zeros(count);
    for (int64_t i = 0; i < count; i++) copy[i] = x[i];
    return copy;
}

static void expect_turned(const AttentionBatch *batch, const Variant *variant, int64_t heads,
                          const double *got, const double *from, const char *text) {
    const int64_t count = batch->size.batch * batch->size.queries * heads * batch->size.size;
    double *want = copy_of(from, count), *bound = zeros(count);
    turn(batch, heads, 0, units_of(variant), 1, want, bound);
    expect_close(got, want, bound, count, "%s: %s, turned", variant->name, text);
}

static void describe(const AttentionCase *c, char text[96]) {
    snprintf(text, 96, "rotary B=%d T=%d heads=%d/%d D=%d%s%s%s", (int)c->batch, (int)c->queries,
             (int)c->heads, (int)c->kv_heads, (int)c->size, c->causal ? " causal" : "",
             c->lengths ? " lengths" : "", c->packed ? " packed" : "");
}

/* Blocks of queries and of keys have 64 rows on the CPU and up to 128 on a GPU: half of many rows, rounded
 * up, fills as many blocks there. */
static void check(const Variant *variant, const AttentionCase *whole, int64_t tokens, bool invariant) {
    static const char *const names[ATTENTION_OUTPUTS] = {"y", "lse", "dq", "dk", "dv"};
    const Units u = units_of(variant);
    const bool half = variant->backend == BACKEND_CPU && whole->queries >= 200;
    AttentionCase case_here = *whole, *c = &case_here;
    if (half) c->queries = c->keys = (c->queries + 1) / 2, tokens = (tokens + 1) / 2;
    AttentionBatch batch;
    double *in[ATTENTION_INPUTS], *got[ATTENTION_OUTPUTS + 2], *want[ATTENTION_OUTPUTS],
        *bound[ATTENTION_OUTPUTS];
    char text[96];
    describe(c, text);
    attention_inputs(c, variant->dtype, 1, &batch, in);
    batch.frequencies = frequencies_of(c->size);
    if (tokens) attention_documents(&batch, tokens);
    batch.invariant = invariant;
    attention_outputs(c, got);
    for (int i = 0; i < 2; i++)
        got[ATTENTION_OUTPUTS + i] = zeros(attention_output_count(c, ATTENTION_DQ + i));
    rig_run(variant, attention_run, &batch, in, got);
    double *turned[ATTENTION_INPUTS] = {got[ATTENTION_OUTPUTS], got[ATTENTION_OUTPUTS + 1], in[ATTENTION_V],
                                        in[ATTENTION_DY]};
    expect_turned(&batch, variant, c->heads, turned[0], in[ATTENTION_Q], text);
    expect_turned(&batch, variant, c->kv_heads, turned[1], in[ATTENTION_K], text);
    attention_model(&batch, u, turned, want, bound);
    turn(&batch, c->heads, 0, u, -1, want[ATTENTION_DQ], bound[ATTENTION_DQ]);
    turn(&batch, c->kv_heads, 0, u, -1, want[ATTENTION_DK], bound[ATTENTION_DK]);
    for (int o = 0; o < ATTENTION_OUTPUTS; o++)
        expect_close(got[o], want[o], bound[o], attention_output_count(c, o), "%s: %s, %s", variant->name,
                     text, names[o]);
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) check(&specification, &cases[i], 0, false);
    for (int i = 0; i < DOCUMENTS; i++) check(&specification, &documents[i].size, documents[i].tokens, false);
}

static void form_follows_the_formula(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < CASES; i++) check(variant, &cases[i], 0, false);
}

static void documents_see_themselves(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < 2 * DOCUMENTS; i++)
        check(variant, &documents[i / 2].size, documents[i / 2].tokens, i % 2);
}

/* Copies rows [firsts[b], firsts[b] + count) of each batch row b from or to a (B, T, width) array. */
static double *rows_of(const AttentionCase *c, double *whole, int64_t width, const int32_t *firsts,
                       int64_t count, const double *into) {
    double *part = into ? NULL : zeros(c->batch * count * width);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < count * width; i++) {
            double *at = whole + (b * c->queries + firsts[b]) * width + i;
            if (into)
                *at = into[b * count * width + i];
            else
                part[b * count * width + i] = *at;
        }
    return part;
}

/* A prompt of 5, then pieces of 1, 1, 3, .... out: y, rotated q, and the keys' cache; the past is also given
 * on the device. Of two rows, each has a past of its own, that of the second 2 behind, in which case the cache
 * contains NaN after its last key, and ends repeat. */
enum { PIECES = 11, TOKENS = 130, CAPACITY = 140, ROWS = 2, BEHIND = 2 };
static const int32_t pieces[PIECES + BEHIND * (ROWS - 1)] = {5, 1, 1, 3, 1, 60, 1, 54, 2, 1, 1, 1, 1};

static int32_t pasts_of(const AttentionCase *c, int32_t past, int32_t rows, bool behind,
                        int32_t pasts[ROWS]) {
    for (int32_t b = 0; b < ROWS; b++) {
        int32_t own = past - (behind ? BEHIND * b : 0), most = (int32_t)c->queries - rows;
        pasts[b] = own < 0 ? 0 : own < most ? own : most;
    }
    return pasts[0];
}

static void run_cached(Rig *rig, const void *what, double *const *in, double *const *out) {
    const AttentionBatch *batch = what;
    const AttentionCase *c = &batch->size;
    const Dtype dtype = rig->ctx.dtype;
    const int64_t q_width = c->heads * c->size, kv_width = c->kv_heads * c->size;
    const Shape capacity = shape3(c->batch, CAPACITY, kv_width);
    Tensor cache_k = rig_blank(rig, "cache_k", dtype, capacity),
           cache_v = rig_blank(rig, "cache_v", dtype, capacity);
    const bool behind = c->batch == ROWS;
    const int count_of_pieces = behind ? sizeof pieces / sizeof *pieces : PIECES;
    for (int32_t piece = 0, all = 0; piece < count_of_pieces; all += pieces[piece++]) {
        int32_t pasts[ROWS], rows = pieces[piece];
        const int32_t past = pasts_of(c, all, rows, behind, pasts);
        const int64_t count = c->batch * rows * q_width;
        const Shape q = shape3(c->batch, rows, q_width), kv = shape3(c->batch, rows, kv_width);
        AttentionForward a = {
            .q = rig_put(rig, "q", dtype, q, rows_of(c, in[0], q_width, pasts, rows, NULL)),
            .k = rig_put(rig, "k", dtype, kv, rows_of(c, in[1], kv_width, pasts, rows, NULL)),
            .v = rig_put(rig, "v", dtype, kv, rows_of(c, in[2], kv_width, pasts, rows, NULL)),
            .y = rig_blank(rig, "y", dtype, q),
            .heads = c->heads,
            .kv_heads = c->kv_heads,
            .causal = true,
            .scale = batch->scale,
            .frequencies =
                rig_put(rig, "frequencies", wide_dtype(&rig->ctx), shape1(c->size / 2), batch->frequencies),
            .cache_k = cache_k,
            .cache_v = cache_v,
            .past = past,
            .past_on_device = rig_put_ints(rig, "past", shape1(1), &past)};
        if (behind) a.pasts = rig_put_ints(rig, "pasts", shape1(ROWS), pasts);
        expect_ok(attention_forward(&rig->ctx, &a, ARENA_SAVED));
        double *y = zeros(count), *turned = zeros(count);
        rig_get(rig, a.y, y);
        rig_get(rig, a.q, turned);
        rows_of(c, out[0], q_width, pasts, rows, y);
        rows_of(c, out[1], q_width, pasts, rows, turned);
    }
    rig_get(rig, cache_k, out[2]);
}

static void cached_keys_are_turned(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    const AttentionCase wholes[] = {{2, TOKENS, TOKENS, 6, 2, 64, true, false, false, 0},
                                    {1, TOKENS, TOKENS, 3, 3, 34, true, false, false, 0},
                                    {2, TOKENS, TOKENS, 7, 1, 128, true, false, false, 0}};
    for (int i = 0; i < 3; i++) {
        const AttentionCase *c = &wholes[i];
        AttentionBatch batch;
        double *in[ATTENTION_INPUTS], *want[ATTENTION_OUTPUTS], *bound[ATTENTION_OUTPUTS];
        const int64_t count = attention_output_count(c, ATTENTION_Y), row = c->kv_heads * c->size;
        char text[96];
        describe(c, text);
        attention_inputs(c, variant->dtype, 1, &batch, in);
        batch.frequencies = frequencies_of(c->size);
        double *got[3] = {zeros(count), zeros(count), zeros(c->batch * CAPACITY * row)};
        double *keys = zeros(attention_output_count(c, ATTENTION_DK));
        rig_run(variant, run_cached, &batch, in, got);
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t k = 0; k < c->keys * row; k++)
                keys[b * c->keys * row + k] = got[2][b * CAPACITY * row + k];
        expect_turned(&batch, variant, c->heads, got[1], in[ATTENTION_Q], text);
        expect_turned(&batch, variant, c->kv_heads, keys, in[ATTENTION_K], text);
        double *turned[ATTENTION_INPUTS] = {got[1], keys, in[ATTENTION_V], in[ATTENTION_DY]};
        attention_model(&batch, units_of(variant), turned, want, bound);
        expect_close(got[0], want[0], bound[0], count, "%s: %s with a cache", variant->name, text);
    }
}

static void gradients_are_slopes(void **state) {
    (void)state;
    const AttentionCase tiny[] = {{1, 3, 3, 1, 1, 2, true, false, true, 0},
                                  {2, 4, 4, 2, 1, 4, true, false, false, 0},
                                  {3, 5, 5, 6, 2, 6, false, true, false, 0}};
    for (int i = 0; i < 3; i++)
        attention_expect_gradients(&tiny[i], frequencies_of(tiny[i].size), "rotary attention");
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const AttentionForward right = {.q = tensor_view(NULL, F32, shape3(2, 5, 24)),
                                    .k = tensor_view(NULL, F32, shape3(2, 5, 12)),
                                    .v = tensor_view(NULL, F32, shape3(2, 5, 12)),
                                    .y = tensor_view(NULL, F32, shape3(2, 5, 24)),
                                    .frequencies = tensor_view(NULL, F32, shape1(3)),
                                    .heads = 4,
                                    .kv_heads = 2};
    AttentionForward wrong[3] = {right, right, right};
    wrong[0].frequencies = tensor_view(NULL, F32, shape1(6));
    wrong[1].k = wrong[1].v = tensor_view(NULL, F32, shape3(2, 4, 12));
    wrong[2].heads = 8, wrong[2].kv_heads = 4; // heads of 3 columns
    for (int i = 0; i < 3; i++) {
        Status status = attention_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONCE(specification_follows_the_formula),   ONCE(gradients_are_slopes),
        ONCE(wrong_contracts_are_refused),         ON_EACH_VARIANT(form_follows_the_formula),
        ON_EACH_VARIANT(documents_see_themselves), ON_EACH_VARIANT(cached_keys_are_turned)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
