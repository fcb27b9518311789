#include "tests/support/compare.h"

#include "kernels/embed/embed.h"

#include <math.h>

typedef struct {
    int64_t batch, columns, vocabulary, width, positions, past; // positions 0: no position table
    int64_t kinds;                                              // of segments; 0: none
    double scale;                                               // 0 stands for 1
    bool fixed;                                                 // positions without a gradient
    bool one_kind;                                              // no segment ids: all 0
} Case;

enum { TOKEN, POSITION, SEGMENT, DY, DTOKEN, DPOSITION, DSEGMENT, INPUTS };
enum { OUT_Y, OUT_DTOKEN, OUT_DPOSITION, OUT_DSEGMENT, OUTPUTS };

static const Case cases[] = {
    {1, 1, 1, 1, 1, .past = 0},
    {1, 1, 5, 3, 0, .past = 0},
    {2, 3, 1, 7, 3, .past = 0},
    {1, 17, 11, 8, 17, .past = 0},
    {3, 5, 13, 13, 8, .past = 2},
    {2, 2, 2, 16, 2, .past = 0},
    {4, 7, 31, 24, 64, .past = 57},
    {1, 64, 3, 33, 64, .past = 0},
    {5, 13, 65, 64, 0, .past = 0},
    {2, 65, 128, 65, 65, .past = 0},
    {7, 11, 97, 96, 11, .past = 0},
    {1, 130, 257, 100, 131, .past = 1},
    {3, 33, 256, 128, 40, .past = 0},
    {2, 127, 50, 130, 127, .past = 0},
    {8, 16, 17, 192, 16, .past = 0},
    {1, 3, 1000, 255, 9, .past = 6},
    {2, 31, 300, 256, 31, .past = 0},
    {3, 9, 257, 257, 0, .past = 0},
    {2, 19, 101, 384, 19, .past = 0},
    {1, 23, 71, 768, 24, .past = 0},
    {2, 5, 37, 769, 5, .past = 0},
    {1, 7, 19, 1600, 8, .past = 1},
    {16, 64, 128, 32, 64, .past = 0},
    {3, 7, 11, 24, 9, .past = 0, .kinds = 2},
    {2, 9, 5, 33, 9, .past = 0, .kinds = 3, .scale = 5.75, .fixed = true},
    {4, 31, 64, 40, 33, .past = 1, .kinds = 2, .one_kind = true},
    {2, 5, 37, 13, 5, .past = 0, .scale = 3.6, .fixed = true},
    {5, 130, 20, 64, 130, .past = 0, .kinds = 2, .scale = 8},
    {1, 3, 4, 5, 0, .past = 0, .kinds = 2, .scale = 2},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct {
    Case size;
    const int32_t *tokens, *segments;
} Batch;

static double scale_of(const Case *c) {
    return c->scale != 0 ? c->scale : 1;
}

static int64_t kind_of(const Batch *batch, int64_t n) {
    return batch->size.one_kind ? 0 : batch->segments[n];
}

static int64_t count_of(const Case *c, int input) {
    int64_t tokens = c->batch * c->columns;
    return c->width * (input == DY                             ? tokens
                       : input == TOKEN || input == DTOKEN     ? c->vocabulary
                       : input == SEGMENT || input == DSEGMENT ? c->kinds
                       : input == DPOSITION && c->fixed        ? 0
                                                               : c->positions);
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Batch *batch = what;
    const Case *c = &batch->size;
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx);
    const Shape token = shape2(c->vocabulary, c->width), output = shape3(c->batch, c->columns, c->width);
    const Shape position = c->positions ? shape2(c->positions, c->width) : (Shape){0};
    const Shape segment = c->kinds ? shape2(c->kinds, c->width) : (Shape){0};
    const Shape segments = c->kinds && !c->one_kind ? shape2(c->batch, c->columns) : (Shape){0};
    ctx->training = true;
    EmbedForward f = {.tokens = rig_put_ints(rig, "tokens", shape2(c->batch, c->columns), batch->tokens),
                      .token = rig_put(rig, "token", dtype, token, in[TOKEN]),
                      .position = rig_put(rig, "position", dtype, position, in[POSITION]),
                      .segment = rig_put(rig, "segment", dtype, segment, in[SEGMENT]),
                      .scale = scale_of(c),
                      .y = rig_blank(rig, "y", dtype, output),
                      .past = c->past};
    if (segments.rank) f.segments = rig_put_ints(rig, "segments", segments, batch->segments);
    EmbedBackward b = {.forward = &f,
                       .dy = rig_put(rig, "dy", dtype, output, in[DY]),
                       .dtoken = rig_put(rig, "dtoken", wide, token, in[DTOKEN]),
                       .dposition =
                           rig_put(rig, "dposition", wide, c->fixed ? (Shape){0} : position, in[DPOSITION]),
                       .dsegment = rig_put(rig, "dsegment", wide, segment, in[DSEGMENT])};
    expect_ok(embed_forward(ctx, &f, ARENA_SAVED));
    expect_ok(embed_backward(ctx, &b));
    rig_get(rig, f.y, out[OUT_Y]);
    rig_get(rig, b.dtoken, out[OUT_DTOKEN]);
    rig_get(rig, b.dposition, out[OUT_DPOSITION]);
    rig_get(rig, b.dsegment, out[OUT_DSEGMENT]);
}

static void make_inputs(const Case *c, Dtype dtype, Batch *batch, double **in) {
    batch->size = *c;
    batch->tokens = integers(c->batch * c->columns, (int32_t)c->vocabulary);
    batch->segments = integers(c->batch * c->columns, c->kinds ? (int32_t)c->kinds : 1);
    for (int i = 0; i < INPUTS; i++)
        in[i] = normals(count_of(c, i), 1, i < DTOKEN ? dtype : dtype == F64 ? F64 : F32);
}

static void make_outputs(const Case *c, double **out) {
    static const int like[OUTPUTS] = {DY, TOKEN, DPOSITION, SEGMENT};
    for (int o = 0; o < OUTPUTS; o++) out[o] = zeros(count_of(c, like[o]));
}

/* Forward: one addition and one store. Backward: a sum of at most as many terms as there are tokens. A row
 * that no token selects has no error. */
static void model(const Batch *batch, Units u, double *const *in, double **want, double **bound) {
    const Case *c = &batch->size;
    const int64_t tokens = c->batch * c->columns, width = c->width;
    const double sum = sum_error(u.wide, tokens + 1);
    make_outputs(c, want);
    make_outputs(c, bound);
    for (int64_t i = 0; i < c->vocabulary * width; i++) want[OUT_DTOKEN][i] = in[DTOKEN][i];
    for (int64_t i = 0; i < count_of(c, DPOSITION); i++) want[OUT_DPOSITION][i] = in[DPOSITION][i];
    for (int64_t i = 0; i < c->kinds * width; i++) {
        want[OUT_DSEGMENT][i] = in[DSEGMENT][i];
        bound[OUT_DSEGMENT][i] = sum * fabs(in[DSEGMENT][i]);
    }
    for (int64_t n = 0; n < tokens; n++)
        for (int64_t k = 0; k < width; k++) {
            int64_t at = n * width + k, row = batch->tokens[n] * width + k;
            int64_t place = (c->past + n % c->columns) * width + k;
            int64_t kind = c->kinds ? kind_of(batch, n) * width + k : 0;
            double dy = in[DY][at], scaled = scale_of(c) * in[TOKEN][row];
            double position = c->positions ? in[POSITION][place] : 0,
                   segment = c->kinds ? in[SEGMENT][kind] : 0;
            double size = fabs(scaled) + fabs(position) + fabs(segment);
            int64_t steps = (c->positions != 0) + (c->kinds != 0) + (scale_of(c) != 1);
            want[OUT_Y][at] = scaled + position + segment;
            bound[OUT_Y][at] = (double)steps * (u.storage + u.wide) * size;
            if (bound[OUT_DTOKEN][row] == 0) bound[OUT_DTOKEN][row] = sum * fabs(in[DTOKEN][row]);
            want[OUT_DTOKEN][row] += scale_of(c) * dy;
            bound[OUT_DTOKEN][row] += (sum + u.wide) * fabs(scale_of(c) * dy);
            if (c->kinds) {
                want[OUT_DSEGMENT][kind] += dy;
                bound[OUT_DSEGMENT][kind] += sum * fabs(dy);
            }
            if (!c->positions || c->fixed) continue;
            if (bound[OUT_DPOSITION][place] == 0)
                bound[OUT_DPOSITION][place] = sum * fabs(in[DPOSITION][place]);
            want[OUT_DPOSITION][place] += dy;
            bound[OUT_DPOSITION][place] += sum * fabs(dy);
        }
}

static void compare(const Case *c, const char *variant, double **got, double **want, double **bound) {
    static const char *const names[OUTPUTS] = {"y", "dtoken", "dposition", "dsegment"};
    static const int like[OUTPUTS] = {DY, TOKEN, DPOSITION, SEGMENT};
    for (int o = 0; o < OUTPUTS; o++)
        expect_close(got[o], want[o], bound[o], count_of(c, like[o]),
                     "%s: embed B=%lld T=%lld V=%lld C=%lld, %s", variant, (long long)c->batch,
                     (long long)c->columns, (long long)c->vocabulary, (long long)c->width, names[o]);
}

static void follow(const Variant *variant, bool formula) {
    for (int i = 0; i < CASES; i++) {
        Batch batch;
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(&cases[i], variant->dtype, &batch, in);
        make_outputs(&cases[i], got);
        model(&batch, units_of(variant), in, want, bound);
        if (!formula) rig_run_once(&specification, run, &batch, in, want);
        rig_run(variant, run, &batch, in, got);
        compare(&cases[i], variant->name, got, want, bound);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    follow(&specification, true);
}

static void form_follows_the_specification(void **state) {
    follow(test_variant(state, OP_EMBED), false);
}

/* All positions have the same token: the longest chain of sums, in which float atomics would be visible. */
static void one_token_repeated(void **state) {
    const Variant *variant = test_variant(state, OP_EMBED);
    const Case c = {8, 257, 5, 40, .positions = 257};
    Batch batch;
    double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
    make_inputs(&c, variant->dtype, &batch, in);
    int32_t *tokens = integers(c.batch * c.columns, 1);
    for (int64_t i = 0; i < c.batch * c.columns; i++) tokens[i] = 3;
    batch.tokens = tokens;
    make_outputs(&c, got);
    model(&batch, units_of(variant), in, want, bound);
    rig_run(variant, run, &batch, in, got);
    compare(&c, variant->name, got, want, bound);
}

/* out[0]: rows with pasts of their own; out[1]: each row alone. */
static void run_pasts(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Batch *batch = what;
    const Case *c = &batch->size;
    const int32_t pasts[] = {4, 0, 9};
    const Dtype dtype = rig->ctx.dtype;
    EmbedForward f = {.tokens = rig_put_ints(rig, "tokens", shape2(c->batch, c->columns), batch->tokens),
                      .token = rig_put(rig, "token", dtype, shape2(c->vocabulary, c->width), in[TOKEN]),
                      .position =
                          rig_put(rig, "position", dtype, shape2(c->positions, c->width), in[POSITION]),
                      .scale = 1,
                      .past = 9,
                      .pasts = rig_put_ints(rig, "pasts", shape1(3), pasts),
                      .y = rig_blank(rig, "y", dtype, shape3(c->batch, c->columns, c->width))};
    expect_ok(embed_forward(&rig->ctx, &f, ARENA_SAVED));
    rig_get(rig, f.y, out[0]);
    f.pasts = (Tensor){0};
    for (int64_t b = 0; b < c->batch; b++) {
        EmbedForward one = f;
        one.past = pasts[b];
        one.tokens = tensor_elements(f.tokens, b * c->columns, shape2(1, c->columns));
        one.y = tensor_elements(f.y, b * c->columns * c->width, shape3(1, c->columns, c->width));
        expect_ok(embed_forward(&rig->ctx, &one, ARENA_SAVED));
    }
    rig_get(rig, f.y, out[1]);
}

static void rows_have_pasts(void **state) {
    const Case c = {3, 5, 31, 40, .positions = 14};
    Batch batch;
    double *in[INPUTS], *got[2] = {zeros(count_of(&c, DY)), zeros(count_of(&c, DY))};
    make_inputs(&c, test_variant(state, OP_EMBED)->dtype, &batch, in);
    rig_run(test_variant(state, OP_EMBED), run_pasts, &batch, in, got);
    expect_equal(got[0], got[1], count_of(&c, DY), "y");
}

static void no_tokens_are_harmless(void **state) {
    const Variant *variant = test_variant(state, OP_EMBED);
    const Case c = {0, 4, 5, 8, .positions = 4};
    Batch batch;
    double *in[INPUTS], *got[OUTPUTS];
    make_inputs(&c, variant->dtype, &batch, in);
    make_outputs(&c, got);
    rig_run(variant, run, &batch, in, got);
    expect_equal(got[OUT_DTOKEN], in[DTOKEN], c.vocabulary * c.width, "dtoken");
    expect_equal(got[OUT_DPOSITION], in[DPOSITION], c.positions * c.width, "dposition");
}

static void differentiate_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = &((const Batch *)what)->size;
    double *all_in[INPUTS] = {in[TOKEN], in[POSITION], in[SEGMENT]}, *all_out[OUTPUTS];
    for (int i = DY; i < INPUTS; i++) all_in[i] = zeros(count_of(c, i));
    make_outputs(c, all_out);
    all_out[OUT_Y] = out[0];
    run(rig, what, all_in, all_out);
}

static void differentiate_backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = &((const Batch *)what)->size;
    double *all_in[INPUTS] = {in[TOKEN], in[POSITION], in[SEGMENT], in[DY]};
    double *all_out[OUTPUTS] = {zeros(count_of(c, DY)), out[TOKEN], out[POSITION], out[SEGMENT]};
    for (int i = DTOKEN; i < INPUTS; i++) all_in[i] = zeros(count_of(c, i));
    run(rig, what, all_in, all_out);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    const Case tiny[] = {
        {2, 3, 4, 3, 4, .past = 1}, {3, 5, 2, 9, .positions = 5}, {2, 4, 3, 5, 4, .kinds = 2, .scale = 1.75}};
    for (int i = 0; i < 3; i++) {
        Batch batch;
        double *in[INPUTS];
        make_inputs(&tiny[i], F64, &batch, in);
        Differentiable d = {
            3,
            1,
            {count_of(&tiny[i], TOKEN), count_of(&tiny[i], POSITION), count_of(&tiny[i], SEGMENT)},
            {count_of(&tiny[i], DY)},
            differentiate_forward,
            differentiate_backward};
        expect_gradients(&d, &batch, in, "embed");
    }
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const EmbedForward right = {.tokens = tensor_view(NULL, I32, shape2(2, 3)),
                                .token = tensor_view(NULL, F32, shape2(7, 8)),
                                .position = tensor_view(NULL, F32, shape2(4, 8)),
                                .scale = 1,
                                .y = tensor_view(NULL, F32, shape3(2, 3, 8))};
    EmbedForward wrong[5] = {right, right, right, right, right};
    wrong[0].past = 2; // 2 + 3 > 4
    wrong[1].tokens.dtype = F32;
    wrong[2].y = tensor_view(NULL, F32, shape3(2, 3, 9));
    wrong[3].position = tensor_view(NULL, F32, shape2(4, 9));
    wrong[4].scale = 0;
    for (int i = 0; i < 5; i++) {
        Status status = embed_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONCE(specification_follows_the_formula), ONCE(gradients_are_slopes),
        ONCE(wrong_contracts_are_refused),       ON_EACH_VARIANT(form_follows_the_specification),
        ON_EACH_VARIANT(one_token_repeated),     ON_EACH_VARIANT(no_tokens_are_harmless),
        ON_EACH_VARIANT(rows_have_pasts)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
