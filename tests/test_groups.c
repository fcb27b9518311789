/* groups: codes against their definition; linear layers with quantized weights; the programs with
 * --weights. */
#include "base/groups.h"
#include "base/bfloat16.h"
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"
#include "tests/support/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 200, COUNT = GROUPS * GROUP };

static const Dtype dtypes[] = {I8, I4};

typedef struct {
    uint8_t codes[COUNT];
    uint16_t scales[GROUPS];
} Packed;

static void values_of(Dtype dtype, const Packed *p, float *values) {
    int8_t codes[GROUP];
    for (int64_t i = 0; i < COUNT; i++) {
        if (i % GROUP == 0) groups_codes(dtype, p->codes, i / GROUP, codes);
        values[i] = bfloat16_to_float(p->scales[i / GROUP]) * (float)codes[i % GROUP];
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
    static float x[COUNT], y[COUNT];
    static Packed p;
    (void)state;
    draw(x);
    groups_quantize(I8, x, COUNT, p.codes, p.scales);
    values_of(I8, &p, y);
    for (int i = 0; i < COUNT; i++) {
        const float scale = bfloat16_to_float(p.scales[i / GROUP]);
        assert_true(fabsf(x[i] - y[i]) <= scale * 0.5001F); // rounded in fp32
        if (scale > 0) assert_true(fabsf(y[i]) <= 127 * scale);
    }
}

/* At least as good as the scale that maps the extreme to -8: errors are at most half a step, except for
 * values clipped at 7. */
static void int4_errs_little(void **state) {
    static float x[COUNT], y[COUNT];
    static Packed p;
    (void)state;
    draw(x);
    groups_quantize(I4, x, COUNT, p.codes, p.scales);
    values_of(I4, &p, y);
    for (int g = 0; g < GROUPS; g++) {
        float extreme = 0, plain[GROUP];
        for (int i = 0; i < GROUP; i++)
            if (fabsf(x[g * GROUP + i]) > fabsf(extreme)) extreme = x[g * GROUP + i];
        const float scale = bfloat16_to_float(bfloat16_from_float(-extreme / 8));
        for (int i = 0; i < GROUP; i++)
            plain[i] = scale == 0 ? 0 : scale * fmaxf(-8, fminf(7, rintf(x[g * GROUP + i] / scale)));
        assert_true(squares(x + g * GROUP, y + g * GROUP) <= 1.0001 * squares(x + g * GROUP, plain));
    }
}

static void codes_of_values_are_those_values(void **state) {
    static float x[COUNT], y[COUNT], again[COUNT];
    static Packed p;
    (void)state;
    draw(x);
    for (int d = 0; d < 2; d++) {
        groups_quantize(dtypes[d], x, COUNT, p.codes, p.scales);
        values_of(dtypes[d], &p, y);
        groups_quantize(dtypes[d], y, COUNT, p.codes, p.scales);
        values_of(dtypes[d], &p, again);
        for (int i = 0; i < COUNT; i++) assert_true(y[i] == again[i]); // 0 may change its sign
    }
}

/* ---- linear layers ---- */

typedef struct {
    int64_t rows, in, out;
    bool gated;
    Dtype dtype; // of the weight
} Layer;

/* Few and many rows; depths of fewer and more groups than are multiplied at a time; numbers of outputs that
 * are not multiples of a block. */
static const Layer layers[] = {
    {1, 32, 1, false, I8},   {1, 576, 100, false, I8}, {4, 2112, 33, false, I8}, {3, 96, 64, true, I8},
    {9, 128, 40, false, I8}, {1, 32, 1, false, I4},    {1, 576, 100, false, I4}, {4, 2112, 33, false, I4},
    {3, 96, 64, true, I4},   {70, 160, 24, false, I4},
};
enum { LAYERS = sizeof layers / sizeof *layers };

static void pack(const Layer *l, const double *values, float *floats, uint8_t *codes, uint16_t *scales) {
    for (int64_t i = 0; i < l->out * l->in; i++) floats[i] = (float)values[i];
    groups_quantize(l->dtype, floats, l->out * l->in, codes, scales);
}

static void run_layer(Rig *rig, const void *what, double *const *in, double *const *out) {
    static float floats[1 << 17];
    static uint8_t codes[1 << 17];
    static uint16_t scales[1 << 12];
    const Layer *l = what;
    Ctx *ctx = &rig->ctx;
    LinearForward f = {.x = rig_put(rig, "x", ctx->dtype, shape2(l->rows, l->in), in[0]),
                       .activation = l->gated ? ACTIVATION_SWIGLU : ACTIVATION_NONE};
    ctx->training = false;
    expect_ok(take_groups(ctx, ARENA_PARAMETERS, "weight", l->dtype, shape2(l->out, l->in), &f.weight));
    if (!ctx->measuring) {
        pack(l, in[1], floats, codes, scales);
        memcpy(f.weight.data, codes, dtype_bytes(l->dtype, l->out * l->in));
        memcpy(f.weight.scales, scales, dtype_bytes(BF16, l->out * l->in / GROUP));
    }
    f.y = rig_blank(rig, "y", ctx->dtype, shape2(l->rows, l->out / (l->gated ? 2 : 1)));
    expect_ok(linear_forward(ctx, &f, ARENA_SAVED));
    rig_get(rig, f.y, out[0]);
}

/* A product and its error bound. One rounding precedes the sums: x to 8 bits, with at most half a step of
 * each group, or the weight to the dtype. The sums then round each term at most `in` times in fp32. */
typedef struct {
    double value, bound;
} Product;

static Product product(const Variant *v, const Layer *l, const double *x, const float *w,
                       const double *scales) {
    const double unit = v->dtype == F64 ? 0x1p-53 : v->dtype == F32 ? 0x1p-24 : 0x1p-8;
    const double sums = v->dtype == F64 ? 0x1p-53 : 0x1p-24;
    const bool integers = v->form == FORM_FUSED && l->rows <= LINEAR_FEW_ROWS;
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

static void check_layers(const Variant *v) {
    static float w[1 << 17];
    static uint8_t codes[1 << 17];
    static uint16_t bits[1 << 12];
    for (int k = 0; k < LAYERS; k++) {
        const Layer *l = &layers[k];
        const int64_t width = l->out / (l->gated ? 2 : 1), groups = l->out * l->in / GROUP;
        double *in[] = {normals(l->rows * l->in, 1, v->dtype), normals(l->out * l->in, 0.1, F32)};
        double *got = zeros(l->rows * width), *scales = zeros(l->in / GROUP);
        rig_run(v, run_layer, l, in, &got);
        pack(l, in[1], w, codes, bits);
        for (int64_t g = 0; g < groups; g++) {
            int8_t group[GROUP];
            groups_codes(l->dtype, codes, g, group);
            for (int i = 0; i < GROUP; i++) w[g * GROUP + i] = bfloat16_to_float(bits[g]) * (float)group[i];
        }
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
    if (v->backend != BACKEND_CPU) skip();
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

static void a_gpu_is_refused(void **state) {
    program_needs_gpu(*state);
    program_refuses(*state, ERROR_USAGE, "add --device=cpu",
                    "infer --model=llama-nano --device=cuda --weights=int8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONCE(int8_is_the_nearest),
        ONCE(int4_errs_little),
        ONCE(codes_of_values_are_those_values),
        ONCE(specification_multiplies),
        ON_EACH_VARIANT(forms_multiply),
    };
    const struct CMUnitTest programs[] = {
        cmocka_unit_test(infer_writes_with_packed_weights),
        cmocka_unit_test(a_folder_is_packed_at_load),
        cmocka_unit_test(a_gpu_is_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, devices_end);
    return failed + cmocka_run_group_tests(programs, program_setup, scratch_teardown);
}
