/* groups: codes against their definition; linear layers with quantized weights; the programs with
 * --weights. */
#include "base/groups.h"
#include "base/bfloat16.h"
#include "data/safetensors.h"
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"
#include "tests/support/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 25 * GROUP, COUNT = GROUP_ROWS * WIDTH, GROUPS = COUNT / GROUP };

/* Quantizes to a matrix; y gets its values, scales those of its groups. */
static void quantize(Dtype dtype, const float *x, const float *importance, float *y, float *scales) {
    static uint8_t codes[COUNT];
    static uint16_t bits[GROUPS];
    Tensor matrix = tensor_view(codes, dtype, shape2(GROUP_ROWS, WIDTH));
    matrix.scales = bits;
    groups_quantize(matrix, 0, COUNT / 2, x, importance); // whole groups, not whole tiles
    groups_quantize(matrix, COUNT / 2, COUNT / 2, x + COUNT / 2, importance);
    for (int g = 0; g < GROUPS; g++) {
        int8_t group[GROUP];
        const int per_row = WIDTH / GROUP;
        scales[g] = groups_codes(matrix, g / per_row, g % per_row, group);
        for (int i = 0; i < GROUP; i++) y[g * GROUP + i] = scales[g] * (float)group[i];
    }
}

/* Groups of very different sizes; the first is all zeros. */
static void draw(float *x) {
    const double *draws = normals(COUNT, 1, F32);
    for (int i = 0; i < COUNT; i++) x[i] = i < GROUP ? 0 : (float)ldexp(draws[i], i / GROUP % 40 - 20);
}

static double squares(const float *x, const float *y) {
    double sum = 0;
    for (int i = 0; i < GROUP; i++) sum += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
    return sum;
}

static void int8_is_the_nearest(void **state) {
    static float x[COUNT], y[COUNT], again[COUNT], scales[GROUPS];
    (void)state;
    draw(x);
    quantize(I8, x, NULL, y, scales);
    for (int i = 0; i < COUNT; i++) {
        const float scale = scales[i / GROUP];
        assert_true(fabsf(x[i] - y[i]) <= scale * 0.5001F); // rounded in fp32
        if (scale > 0) assert_true(fabsf(y[i]) <= 127 * scale);
    }
    quantize(I8, y, NULL, again, scales);
    for (int i = 0; i < COUNT; i++) assert_true(y[i] == again[i]); // 0 may change its sign
}

static float nearest_level(float x) {
    float nearest = groups_levels[0];
    for (int l = 1; l < LEVELS; l++)
        if (fabsf(x - groups_levels[l]) < fabsf(x - nearest)) nearest = groups_levels[l];
    return nearest;
}

/* No worse than the nearest levels for the scale that maps the extreme to the first one. */
static void int4_errs_little(void **state) {
    static float x[COUNT], y[COUNT], scales[GROUPS];
    (void)state;
    draw(x);
    quantize(I4, x, NULL, y, scales);
    for (int g = 0; g < GROUPS; g++) {
        float extreme = 0, plain[GROUP];
        for (int i = 0; i < GROUP; i++)
            if (fabsf(x[g * GROUP + i]) > fabsf(extreme)) extreme = x[g * GROUP + i];
        const float scale = bfloat16_to_float(bfloat16_from_float(extreme / groups_levels[0]));
        for (int i = 0; i < GROUP; i++)
            plain[i] = scale == 0 ? 0 : scale * nearest_level(x[g * GROUP + i] / scale);
        assert_true(squares(x + g * GROUP, y + g * GROUP) <= 1.0001 * squares(x + g * GROUP, plain));
    }
}

/* In each group one column, at a different place, counts more; these columns get smaller errors. */
static void important_columns_err_less(void **state) {
    static float x[COUNT], y[COUNT], weighed[COUNT], importance[WIDTH], scales[GROUPS];
    double plain = 0, weighted = 0;
    (void)state;
    draw(x);
    for (int i = 0; i < WIDTH; i++) importance[i] = i % GROUP == i / GROUP ? 1000 : 1;
    quantize(I4, x, NULL, y, scales);
    quantize(I4, x, importance, weighed, scales);
    for (int i = GROUP; i < COUNT; i++) {
        if (importance[i % WIDTH] == 1) continue;
        plain += fabs((double)(x[i] - y[i]) / scales[i / GROUP]);
        weighted += fabs((double)(x[i] - weighed[i]) / scales[i / GROUP]);
    }
    assert_true(fabs(weighted) < 0.5 * fabs(plain));
}

/* ---- linear layers ---- */

typedef struct {
    int64_t rows, in, out;
    bool gated;
    Dtype dtype; // of the weight
} Layer;

/* Few rows and many; one group and many; outputs that are not in blocks. */
static const Layer layers[] = {
    {1, 32, 8, false, I8},    {1, 576, 104, false, I8}, {4, 2112, 40, false, I8}, {3, 96, 64, true, I8},
    {9, 128, 40, false, I8},  {40, 128, 24, true, I8},  {1, 32, 8, false, I4},    {1, 576, 104, false, I4},
    {4, 2112, 40, false, I4}, {3, 96, 64, true, I4},    {70, 160, 24, false, I4},
};
enum { LAYERS = sizeof layers / sizeof *layers };

static void run_layer(Rig *rig, const void *what, double *const *in, double *const *out) {
    static float floats[1 << 17];
    const Layer *l = what;
    Ctx *ctx = &rig->ctx;
    LinearForward f = {.x = rig_put(rig, "x", ctx->dtype, shape2(l->rows, l->in), in[0]),
                       .activation = l->gated ? ACTIVATION_SWIGLU : ACTIVATION_NONE};
    ctx->training = false;
    expect_ok(take_groups(ctx, ARENA_PARAMETERS, "weight", l->dtype, shape2(l->out, l->in), &f.weight));
    if (!ctx->measuring) {
        for (int64_t i = 0; i < l->out * l->in; i++) floats[i] = (float)in[1][i];
        HostGroups host;
        expect_ok(host_groups_open(ctx, f.weight, 0, l->out * l->in, &host));
        groups_quantize(host.matrix, host.first, l->out * l->in, floats, NULL);
        expect_ok(host_groups_close(ctx, &host, true));
    }
    f.y = rig_blank(rig, "y", ctx->dtype, shape2(l->rows, l->out / (l->gated ? 2 : 1)));
    expect_ok(linear_forward(ctx, &f, ARENA_SAVED));
    rig_get(rig, f.y, out[0]);
}

/* A product and its error bound. One rounding precedes the sums: x to 8 bits, with at most half a step of
 * each group, or the weight to the dtype; in tf32 both are rounded to 10 bits. The sums then round each term
 * at most `in` times in fp32. */
typedef struct {
    double value, bound;
} Product;

static Product product(const Variant *v, const Layer *l, const double *x, const float *w,
                       const double *scales) {
    const double unit = v->dtype == F64 ? 0x1p-53 : v->dtype == BF16 ? 0x1p-8 : v->tf32 ? 0x1p-9 : 0x1p-24;
    const double sums = v->dtype == F64 ? 0x1p-53 : 0x1p-24;
    const bool integers = v->backend == BACKEND_CPU && v->form == FORM_FUSED && l->rows <= LINEAR_CODED_ROWS;
    double value = 0, size = 0, steps = 0;
    for (int64_t i = 0; i < l->in; i++) {
        value += x[i] * (double)w[i];
        size += fabs(x[i] * (double)w[i]);
        steps += scales[i / GROUP] / 2 * fabs((double)w[i]);
    }
    const double before = integers ? steps : unit * size;
    return (Product){value, before + (double)(l->in + 4) * sums * (size + before)};
}

static double silu(double z) {
    return z / (1 + exp(-z));
}

/* silu's derivative is at most 1.1. A stored value is rounded once more, with a gate before and after it. */
static Product output(const Variant *v, const Layer *l, const double *x, const float *w, const double *scales,
                      int64_t o) {
    const double unit = v->dtype == F64 ? 0x1p-50 : v->dtype == F32 ? 0x1p-22 : 0x1p-8;
    Product p = product(v, l, x, w + o * l->in, scales);
    p.bound += unit * (fabs(p.value) + p.bound);
    if (!l->gated) return p;
    Product up = product(v, l, x, w + (o + l->out / 2) * l->in, scales);
    up.bound += unit * (fabs(up.value) + up.bound);
    const double gate = silu(p.value), slack = 1.1 * p.bound;
    const double bound = slack * fabs(up.value) + (fabs(gate) + slack) * up.bound;
    return (Product){gate * up.value, bound + 3 * unit * (fabs(gate * up.value) + bound)};
}

/* The steps of x's groups, a bf16's rounding included. */
static void steps_of(const double *x, int64_t in, double *scales) {
    for (int64_t g = 0; g < in / GROUP; g++) {
        double most = 0;
        for (int i = 0; i < GROUP; i++) most = fmax(most, fabs(x[g * GROUP + i]));
        scales[g] = most / 127 * (1 + 0x1p-8);
    }
}

/* The values that a layer's weight stands for. */
static void quantized(const Layer *l, const double *values, float *w) {
    for (int64_t i = 0; i < l->out * l->in; i++) w[i] = (float)values[i];
    round_to_groups(w, l->dtype, shape2(l->out, l->in));
}

static void check_layers(const Variant *v) {
    static float w[1 << 17];
    for (int k = 0; k < LAYERS; k++) {
        const Layer *l = &layers[k];
        if (l->dtype == I4 && v->backend != BACKEND_CPU) continue; // for which a GPU has no kernels
        const int64_t width = l->out / (l->gated ? 2 : 1);
        double *in[] = {normals(l->rows * l->in, 1, v->dtype), normals(l->out * l->in, 0.1, F32)};
        double *got = zeros(l->rows * width), *scales = zeros(l->in / GROUP);
        rig_run(v, run_layer, l, in, &got);
        quantized(l, in[1], w);
        for (int64_t n = 0; n < l->rows; n++) {
            steps_of(in[0] + n * l->in, l->in, scales);
            for (int64_t o = 0; o < width; o++) {
                const Product want = output(v, l, in[0] + n * l->in, w, scales, o);
                const double is = got[n * width + o];
                if (!(fabs(is - want.value) <= want.bound))
                    fail_msg("layer %d, row %d, output %d is %g, but must be %g within %g", k, (int)n, (int)o,
                             is, want.value, want.bound);
            }
        }
    }
}

static void specification_multiplies(void **state) {
    (void)state;
    check_layers(&specification);
}

static void forms_multiply(void **state) {
    const Variant *v = test_variant(state, OP_LINEAR);
    check_layers(v);
}

/* ---- the program ---- */

/* A folder's matrices may be transposed, as GPT-2's are, and its head tied; a preset's weights are drawn. */
static void infer_writes_with_packed_weights(void **state) {
    static const char *const names[] = {"int8", "int4"};
    for (int i = 0; i < 2; i++) {
        program_succeeds(*state,
                         "infer --model=llama-nano --device=cpu --peaks=0 --prompt=a --tokens=9 --weights=%s",
                         names[i]);
        program_succeeds(*state,
                         "infer --model=llama-nano --device=cpu --peaks=0 --fused=0 --prompt=a --tokens=9 "
                         "--weights=%s",
                         names[i]);
    }
}

/* The mean loss that infer --eval prints. */
static double loss_of(const char *folder, const char *options) {
    const Ran *ran = program_succeeds(folder,
                                      "infer --model=tiny/step-00000020 --device=cpu --dtype=fp32 --peaks=0 "
                                      "--eval=validation.txt --batch=2 %s",
                                      options);
    const char *at = strstr(ran->output, "mean loss ");
    assert_non_null(at);
    return strtod(at + strlen("mean loss "), NULL);
}

/* A weight's error is at most 1/254 (8 bits) or 1/14 (4 bits) of its group's largest: the loss of a small
 * model hardly changes. */
static void a_folder_is_packed_at_load(void **state) {
    program_succeeds(*state, "train " TINY " --steps=20 --out=tiny");
    const double loss = loss_of(*state, ""), int8 = loss_of(*state, "--weights=int8");
    const double int4 = loss_of(*state, "--weights=int4");
    assert_true(int8 != loss && fabs(int8 - loss) < 0.01);
    assert_true(int4 != loss && fabs(int4 - loss) < 0.2);
}

enum { SEQ = 32, VOCAB = 256 };
#define MODEL "infer --model=tiny/step-00000020 --device=cpu --dtype=fp32 --peaks=0 "

/* The logits of the text's first tokens, which are its bytes. */
static void logits_of(const char *folder, const char *weights, const unsigned char *text, float *logits) {
    char ids[4 * SEQ + 1];
    Safetensors *file;
    for (int i = 0, at = 0; i < SEQ; i++)
        at += snprintf(ids + at, sizeof ids - (size_t)at, i ? ",%d" : "%d", text[i]);
    program_succeeds(folder, MODEL "--weights=%s --logits=l.safetensors --ids=%s", weights, ids);
    expect_ok(safetensors_open(inside(folder, "l.safetensors"), &file));
    expect_ok(safetensors_read(safetensors_find(file, "logits"), 0, SEQ * VOCAB, logits));
    safetensors_close(file);
}

/* Probabilities, by their definition; returns the target's loss. */
static double softmax(const float *logits, int target, double *p) {
    double sum = 0;
    for (int v = 0; v < VOCAB; v++) sum += p[v] = exp((double)logits[v]);
    for (int v = 0; v < VOCAB; v++) p[v] /= sum;
    return -log(p[target]);
}

/* The figures of one window, from the logits that --logits writes. */
enum { LOSS, FLOAT_LOSS, MOST, MEAN, DIVERGENCE, FIGURES };
static void figures_of(const char *folder, const char *weights, double *figures) {
    static float plain[SEQ * VOCAB], packed[SEQ * VOCAB];
    double p[VOCAB], q[VOCAB];
    char text[SEQ + 1];
    FILE *file = fopen(inside(folder, "validation.txt"), "r");
    assert_int_equal(fread(text, 1, sizeof text, file), sizeof text);
    fclose(file);
    file = fopen(inside(folder, "window.txt"), "w");
    fwrite(text, 1, sizeof text, file);
    fclose(file);
    logits_of(folder, "float", (unsigned char *)text, plain);
    logits_of(folder, weights, (unsigned char *)text, packed);
    for (int i = 0; i < SEQ; i++) {
        const int target = (unsigned char)text[i + 1];
        figures[FLOAT_LOSS] += softmax(plain + i * VOCAB, target, p) / SEQ;
        figures[LOSS] += softmax(packed + i * VOCAB, target, q) / SEQ;
        for (int v = 0; v < VOCAB; v++) {
            const double apart = fabs((double)plain[i * VOCAB + v] - (double)packed[i * VOCAB + v]);
            figures[MOST] = fmax(figures[MOST], apart);
            figures[MEAN] += apart / (SEQ * VOCAB);
            figures[DIVERGENCE] += p[v] * log(p[v] / q[v]) / SEQ;
        }
    }
}

/* --eval --compare, whose sums differ from these only by roundings in double. */
static void the_error_is_shown(void **state) {
    static const char *const keys[] = {"loss", "float_loss", "logits_most", "logits_mean", "kl_divergence"};
    static const char *const weights[] = {"int8", "int4"};
    double divergence[2];
    for (int k = 0; k < 2; k++) {
        double want[FIGURES] = {0};
        figures_of(*state, weights[k], want);
        const Ran *ran = program_succeeds(
            *state, MODEL "--eval=window.txt --weights=%s --compare --json=error.json", weights[k]);
        expect_text(ran->output, "perplexity");
        expect_text(ran->output, "KL divergence");
        expect_text(ran->output, weights[k]);
        json_t *root = json_load_file(inside(*state, "error.json"), 0, NULL);
        for (int i = 0; i < FIGURES; i++) {
            const double got = json_number_value(json_object_get(root, keys[i]));
            if (!(fabs(got - want[i]) <= 1e-12)) fail_msg("%s is %.17g, not %.17g", keys[i], got, want[i]);
        }
        const double bytes = json_number_value(json_object_get(root, "bytes"));
        assert_true(bytes > 0 && bytes < json_number_value(json_object_get(root, "float_bytes")));
        json_decref(root);
        divergence[k] = want[DIVERGENCE];
    }
    assert_true(0 < divergence[0] && divergence[0] < divergence[1]);
    /* Of several windows and batches, the last one incomplete, every token counts once. */
    const double loss = loss_of(*state, "--weights=int8");
    for (int batch = 1; batch <= 3; batch += 2) {
        const Ran *ran = program_succeeds(
            *state, MODEL "--eval=validation.txt --weights=int8 --compare --batch=%d", batch);
        double got = 0;
        assert_int_equal(sscanf(ran->output, "validation.txt: 256 tokens, mean loss %lf", &got), 1);
        assert_true(fabs(got - loss) <= 1e-6 + 0x1p-24 * 256 * loss); // printed digits; fp32 sums
    }
}

static void a_gpu_refuses_int4(void **state) {
    program_needs_gpu(*state);
    program_refuses(*state, ERROR_USAGE, "add --device=cpu",
                    "infer --model=llama-nano --device=cuda --weights=int4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONCE(int8_is_the_nearest),      ONCE(int4_errs_little),          ONCE(important_columns_err_less),
        ONCE(specification_multiplies), ON_EACH_VARIANT(forms_multiply),
    };
    const struct CMUnitTest programs[] = {
        cmocka_unit_test(infer_writes_with_packed_weights),
        cmocka_unit_test(a_folder_is_packed_at_load),
        cmocka_unit_test(the_error_is_shown),
        cmocka_unit_test(a_gpu_refuses_int4),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, devices_end);
    return failed + cmocka_run_group_tests(programs, program_setup, scratch_teardown);
}
