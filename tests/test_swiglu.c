/* SwiGLU: a gated layer alone with its own backward pass, and with that of the next layer (`input`). */
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"

#include <math.h>

/* A gated layer in -> 2 * hidden, followed by a layer hidden -> out whose backward pass ends at pre. */
typedef struct {
    int64_t rows, in, hidden, out;
    bool bias, saves;
} Case;

enum { X, WEIGHT, BIAS, WEIGHT2, DY, DHIDDEN, DWEIGHT, DBIAS, DWEIGHT2, INPUTS };
enum { OUT_PRE, OUT_H, OUT_Y, OUT_DPRE, OUT_DWEIGHT2, OUT_DX, OUT_DWEIGHT, OUT_DBIAS, OUTPUTS };

static const Case cases[] = {
    {1, 1, 1, 1, false, true},       {1, 8, 16, 8, false, true},       {3, 5, 7, 3, true, true},
    {5, 16, 24, 16, false, true},    {17, 31, 33, 9, true, true},      {64, 48, 128, 48, false, true},
    {33, 64, 65, 64, false, true},   {130, 24, 40, 72, true, true},    {257, 72, 8, 16, false, true},
    {2, 300, 257, 40, false, true},  {65, 96, 192, 96, true, true},    {1000, 8, 24, 8, false, true},
    {1, 64, 64, 8, false, false},    {4, 64, 40, 8, true, false},      {33, 40, 65, 8, false, false},
    {128, 64, 96, 8, true, false},   {300, 136, 200, 72, false, true}, {520, 64, 488, 200, false, true},
    {300, 72, 296, 8, false, false}, {50, 520, 72, 8, true, false},    {9, 1032, 2080, 8, false, true},
};
enum { CASES = sizeof cases / sizeof *cases };

static int64_t input_count(const Case *c, int i) {
    const int64_t pre = 2 * c->hidden,
                  counts[INPUTS] = {c->rows * c->in,   pre * c->in,         pre,         c->out * c->hidden,
                                    c->rows * c->out,  c->rows * c->hidden, pre * c->in, pre,
                                    c->out * c->hidden};
    return counts[i];
}

static int64_t output_count(const Case *c, int o) {
    const int64_t pre = 2 * c->hidden,
                  counts[OUTPUTS] = {c->rows * pre,      c->rows * c->hidden, c->rows * c->out, c->rows * pre,
                                     c->out * c->hidden, c->rows * c->in,     pre * c->in,      pre};
    return counts[o];
}

static void make_inputs(const Case *c, Dtype dtype, double **in) {
    for (int i = 0; i < INPUTS; i++) {
        const double scale = i == WEIGHT    ? 1.5 / sqrt((double)c->in)
                             : i == WEIGHT2 ? 1.5 / sqrt((double)c->hidden)
                                            : 1;
        in[i] = normals(input_count(c, i), scale, i >= DWEIGHT && dtype == BF16 ? F32 : dtype);
    }
}

static void make_outputs(const Case *c, double **out) {
    for (int o = 0; o < OUTPUTS; o++) out[o] = zeros(output_count(c, o));
}

static LinearForward gated_layer(Rig *rig, const Case *c, double *const *in) {
    const Dtype dtype = rig->ctx.dtype;
    const Shape bias = c->bias ? shape1(2 * c->hidden) : (Shape){0};
    rig->ctx.training = c->saves;
    LinearForward f = {.x = rig_put(rig, "x", dtype, shape2(c->rows, c->in), in[X]),
                       .weight = rig_put(rig, "weight", dtype, shape2(2 * c->hidden, c->in), in[WEIGHT]),
                       .bias = rig_put(rig, "bias", dtype, bias, in[BIAS]),
                       .activation = ACTIVATION_SWIGLU};
    expect_ok(linear_forward(&rig->ctx, &f, ARENA_SAVED));
    assert_true(tensor_empty(f.pre) == !c->saves && tensor_width(f.y) == c->hidden);
    return f;
}

static LinearBackward own_gradient(Rig *rig, const Case *c, const LinearForward *f, double *const *in) {
    const Dtype wide = wide_dtype(&rig->ctx);
    const Shape bias = c->bias ? shape1(2 * c->hidden) : (Shape){0};
    return (LinearBackward){.forward = f,
                            .dx = rig_blank(rig, "dx", rig->ctx.dtype, f->x.shape),
                            .dweight = rig_put(rig, "dweight", wide, f->weight.shape, in[DWEIGHT]),
                            .dbias = rig_put(rig, "dbias", wide, bias, in[DBIAS])};
}

static void get_own_gradient(Rig *rig, const LinearBackward *b, double *const *out) {
    rig_get(rig, b->dx, out[OUT_DX]);
    rig_get(rig, b->dweight, out[OUT_DWEIGHT]);
    if (!tensor_empty(b->dbias)) rig_get(rig, b->dbias, out[OUT_DBIAS]);
}

/* The gated layer alone; its backward pass begins at the gradient of its y. */
static void run_alone(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const LinearForward f = gated_layer(rig, c, in);
    rig_get(rig, f.y, out[OUT_H]);
    if (!c->saves) return;
    rig_get(rig, f.pre, out[OUT_PRE]);
    LinearBackward b = own_gradient(rig, c, &f, in);
    b.dy = rig_put(rig, "dy", rig->ctx.dtype, f.y.shape, in[DHIDDEN]);
    expect_ok(linear_backward(&rig->ctx, &b));
    get_own_gradient(rig, &b, out);
}

/* With the next layer, whose backward pass computes dpre. */
static void run_chain(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const Dtype dtype = rig->ctx.dtype;
    const Shape y = shape2(c->rows, c->out), weight2 = shape2(c->out, c->hidden);
    const LinearForward f = gated_layer(rig, c, in);
    LinearForward behind = {.x = f.y, .weight = rig_put(rig, "weight2", dtype, weight2, in[WEIGHT2])};
    expect_ok(linear_forward(&rig->ctx, &behind, ARENA_SAVED));
    LinearBackward first = {.forward = &behind,
                            .input = &f,
                            .dy = rig_put(rig, "dy", dtype, y, in[DY]),
                            .dx = rig_blank(rig, "dpre", dtype, shape2(c->rows, 2 * c->hidden)),
                            .dweight =
                                rig_put(rig, "dweight2", wide_dtype(&rig->ctx), weight2, in[DWEIGHT2])};
    LinearBackward second = own_gradient(rig, c, &f, in);
    second.dy = first.dx;
    second.dy_is_dpre = true;
    expect_ok(linear_backward(&rig->ctx, &first));
    expect_ok(linear_backward(&rig->ctx, &second));
    rig_get(rig, f.pre, out[OUT_PRE]);
    rig_get(rig, f.y, out[OUT_H]);
    rig_get(rig, behind.y, out[OUT_Y]);
    rig_get(rig, first.dx, out[OUT_DPRE]);
    rig_get(rig, first.dweight, out[OUT_DWEIGHT2]);
    get_own_gradient(rig, &second, out);
}

static double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}
static double silu(double z) {
    return z * sigmoid(z);
}
static double silu_slope(double z) {
    return sigmoid(z) * (1 + z * (1 - sigmoid(z)));
}

/* c (rows, out) = a (rows, in) b (out, in)^T + bias, with the error that a causes. */
static void product(Units u, int64_t rows, int64_t in, int64_t out, const double *a, const double *a_error,
                    const double *b, const double *bias, double *c, double *bound) {
    for (int64_t n = 0; n < rows; n++)
        for (int64_t o = 0; o < out; o++) {
            const double *x = a + n * in, *y = b + o * in, *x_error = a_error ? a_error + n * in : NULL;
            double sum = bias ? bias[o] : 0, size = fabs(sum), carried = 0;
            for (int64_t i = 0; i < in; i++) {
                sum += x[i] * y[i];
                size += fabs(x[i] * y[i]);
                if (x_error) carried += x_error[i] * fabs(y[i]);
            }
            c[n * out + o] = sum;
            bound[n * out + o] = carried + product_error(u, in) * size + u.storage * (size + fabs(sum));
        }
}

/* c (out, in) += a (rows, out)^T b (rows, in), with the error that a and b cause. */
static void weight_gradient(Units u, int64_t rows, int64_t in, int64_t out, const double *a,
                            const double *a_error, const double *b, const double *b_error,
                            const double *before, double *c, double *bound) {
    const double sum = sum_error(u.wide, rows + 1);
    for (int64_t at = 0; at < out * in; at++) {
        c[at] = before[at];
        bound[at] = sum * fabs(before[at]);
    }
    for (int64_t n = 0; n < rows; n++)
        for (int64_t o = 0; o < out; o++) {
            const double x = a[n * out + o], x_error = a_error[n * out + o];
            const double *y = b + n * in, *y_error = b_error ? b_error + n * in : NULL;
            const double share = x_error + (2 * u.product + sum) * fabs(x);
            double *sums = c + o * in, *bounds = bound + o * in;
            for (int64_t i = 0; i < in; i++) {
                sums[i] += x * y[i];
                bounds[i] += share * fabs(y[i]) + (y_error ? y_error[i] * (x_error + fabs(x)) : 0);
            }
        }
}

/* h = silu(gate) * up, and dgate and dup for its gradient d. |silu'| <= 1.1 and |silu''| <= 0.5; silu has an
 * error of 4 unit roundoffs of z (its exponential has 2 + 1.2 |z|, and z^2 s (1 - s) <= 0.57), and is stored
 * once. */
static void gate(const Case *c, Units u, const double *pre, const double *pre_error, double *h,
                 double *bound) {
    for (int64_t at = 0; at < c->rows * c->hidden; at++) {
        const int64_t g = at / c->hidden * 2 * c->hidden + at % c->hidden, up = g + c->hidden;
        const double s = silu(pre[g]);
        const double s_error = 1.1 * pre_error[g] + 4 * u.wide * (1 + fabs(pre[g])) + u.storage * fabs(s);
        h[at] = s * pre[up];
        bound[at] =
            s_error * (fabs(pre[up]) + pre_error[up]) + fabs(s) * pre_error[up] + u.storage * fabs(h[at]);
    }
}

static void gate_gradient(const Case *c, Units u, const double *pre, const double *pre_error, const double *d,
                          const double *d_error, double *dpre, double *bound) {
    for (int64_t at = 0; at < c->rows * c->hidden; at++) {
        const int64_t g = at / c->hidden * 2 * c->hidden + at % c->hidden, up = g + c->hidden;
        const double s = silu(pre[g]), slope = silu_slope(pre[g]), e = d_error ? d_error[at] : 0;
        const double s_error = 1.1 * pre_error[g] + 4 * u.wide * (1 + fabs(pre[g]));
        const double slope_error = 0.5 * pre_error[g] + 4 * u.wide * (1 + fabs(pre[g]));
        dpre[g] = d[at] * pre[up] * slope;
        dpre[up] = d[at] * s;
        bound[g] = (e * fabs(pre[up]) + (fabs(d[at]) + e) * pre_error[up]) * 1.1 +
                   (fabs(d[at]) + e) * fabs(pre[up]) * slope_error + (u.storage + 3 * u.wide) * fabs(dpre[g]);
        bound[up] =
            e * 1.1 * fabs(pre[g]) + (fabs(d[at]) + e) * s_error + (u.storage + u.wide) * fabs(dpre[up]);
    }
}

/* dx, dweight, dbias from dpre. */
static void own_backward(const Case *c, Units u, double *const *in, const double *dpre, const double *error,
                         double **want, double **bound) {
    const int64_t pre = 2 * c->hidden;
    double *across = zeros(c->in * pre); // weight^T
    for (int64_t o = 0; o < pre; o++)
        for (int64_t i = 0; i < c->in; i++) across[i * pre + o] = in[WEIGHT][o * c->in + i];
    product(u, c->rows, pre, c->in, dpre, error, across, NULL, want[OUT_DX], bound[OUT_DX]);
    weight_gradient(u, c->rows, c->in, pre, dpre, error, in[X], NULL, in[DWEIGHT], want[OUT_DWEIGHT],
                    bound[OUT_DWEIGHT]);
    const double sum = sum_error(u.wide, c->rows + 1);
    for (int64_t o = 0; o < pre && c->bias; o++) {
        want[OUT_DBIAS][o] = in[DBIAS][o];
        bound[OUT_DBIAS][o] = sum * fabs(in[DBIAS][o]);
        for (int64_t n = 0; n < c->rows; n++) {
            want[OUT_DBIAS][o] += dpre[n * pre + o];
            bound[OUT_DBIAS][o] += error[n * pre + o] + sum * fabs(dpre[n * pre + o]);
        }
    }
}

static void model(const Case *c, Units u, double *const *in, bool chain, double **want, double **bound) {
    const int64_t pre = 2 * c->hidden, hidden = c->hidden;
    make_outputs(c, want);
    make_outputs(c, bound);
    product(u, c->rows, c->in, pre, in[X], NULL, in[WEIGHT], c->bias ? in[BIAS] : NULL, want[OUT_PRE],
            bound[OUT_PRE]);
    gate(c, u, want[OUT_PRE], bound[OUT_PRE], want[OUT_H], bound[OUT_H]);
    if (!chain) {
        double *dpre = zeros(c->rows * pre), *error = zeros(c->rows * pre);
        if (!c->saves) {
            want[OUT_PRE] = zeros(c->rows * pre), bound[OUT_PRE] = zeros(c->rows * pre);
            return;
        }
        gate_gradient(c, u, want[OUT_PRE], bound[OUT_PRE], in[DHIDDEN], NULL, dpre, error);
        own_backward(c, u, in, dpre, error, want, bound);
        return;
    }
    double *d = zeros(c->rows * hidden), *d_error = zeros(c->rows * hidden), *across = zeros(hidden * c->out);
    double *nothing = zeros(c->rows * c->out);
    product(u, c->rows, hidden, c->out, want[OUT_H], bound[OUT_H], in[WEIGHT2], NULL, want[OUT_Y],
            bound[OUT_Y]);
    for (int64_t o = 0; o < c->out; o++)
        for (int64_t i = 0; i < hidden; i++) across[i * c->out + o] = in[WEIGHT2][o * hidden + i];
    product(u, c->rows, c->out, hidden, in[DY], NULL, across, NULL, d, d_error);
    gate_gradient(c, u, want[OUT_PRE], bound[OUT_PRE], d, d_error, want[OUT_DPRE], bound[OUT_DPRE]);
    weight_gradient(u, c->rows, hidden, c->out, in[DY], nothing, want[OUT_H], bound[OUT_H], in[DWEIGHT2],
                    want[OUT_DWEIGHT2], bound[OUT_DWEIGHT2]);
    own_backward(c, u, in, want[OUT_DPRE], bound[OUT_DPRE], want, bound);
}

static void follow(const Variant *variant, bool formula) {
    static const char *const names[OUTPUTS] = {
        "pre", "hidden", "y", "dpre", "dweight of the layer behind", "dx", "dweight", "dbias"};
    for (int k = 0; k < 2 * CASES; k++) {
        const Case *c = &cases[k / 2];
        const bool chain = k % 2;
        const Body body = chain ? run_chain : run_alone;
        if (chain && !c->saves) continue;
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(c, variant->dtype, in);
        make_outputs(c, got);
        model(c, units_of(variant), in, chain, want, bound);
        if (!formula) rig_run_once(&specification, body, c, in, want);
        rig_run(variant, body, c, in, got);
        for (int o = 0; o < OUTPUTS; o++)
            expect_close(got[o], want[o], bound[o], output_count(c, o), "%s: SwiGLU %lldx%lld->%lld%s%s, %s",
                         variant->name, (long long)c->rows, (long long)c->in, (long long)c->hidden,
                         c->bias ? " bias" : "", chain ? " and a layer" : "", names[o]);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    follow(&specification, true);
}

static void form_follows_the_specification(void **state) {
    follow(test_variant(state, OP_LINEAR), false);
}

/* Gates of large magnitude: nothing may overflow to NaN. */
static void large_gates_stay_finite(void **state) {
    const Variant *variant = test_variant(state, OP_LINEAR);
    const Case c = {8, 1, 2, 1, false, true};
    double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS];
    make_inputs(&c, variant->dtype, in);
    make_outputs(&c, got);
    make_outputs(&c, want);
    for (int i = 0; i < 8; i++) in[X][i] = i % 2 ? -4096 : 4096;
    for (int i = 0; i < 4; i++) in[WEIGHT][i] = i % 2 ? 16 : 0.0625;
    rig_run_once(&specification, run_alone, &c, in, want);
    rig_run(variant, run_alone, &c, in, got);
    for (int o = 0; o < OUTPUTS; o++) {
        int64_t count = output_count(&c, o);
        double *bound = zeros(count), largest = 0;
        for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want[o][i]));
        for (int64_t i = 0; i < count; i++) bound[i] = 16 * units_of(variant).product * largest;
        expect_close(got[o], want[o], bound, count, "%s: large gates, output %d", variant->name, o);
    }
}

static void differentiate(Rig *rig, const void *what, double *const *in, double *const *out, bool backward) {
    const Case *c = what;
    double *all_in[INPUTS], *all_out[OUTPUTS];
    make_outputs(c, all_out);
    for (int i = 0; i < INPUTS; i++) all_in[i] = i <= WEIGHT2 ? in[i] : zeros(input_count(c, i));
    if (!backward) {
        all_out[OUT_Y] = out[0];
        run_chain(rig, c, all_in, all_out);
        return;
    }
    all_in[DY] = in[4];
    all_out[OUT_DX] = out[X];
    all_out[OUT_DWEIGHT] = out[WEIGHT];
    all_out[OUT_DBIAS] = out[BIAS];
    all_out[OUT_DWEIGHT2] = out[WEIGHT2];
    run_chain(rig, c, all_in, all_out);
}

static void differentiate_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    differentiate(rig, what, in, out, false);
}

static void differentiate_backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    differentiate(rig, what, in, out, true);
}

/* The gated layer alone: in: x, weight, then the cotangent of y. */
static void alone(Rig *rig, const void *what, double *const *in, double *const *out, bool backward) {
    const Case *c = what;
    double *all_in[INPUTS], *all_out[OUTPUTS];
    make_outputs(c, all_out);
    for (int i = 0; i < INPUTS; i++) all_in[i] = i <= WEIGHT ? in[i] : zeros(input_count(c, i));
    if (backward) {
        all_in[DHIDDEN] = in[2];
        all_out[OUT_DX] = out[X];
        all_out[OUT_DWEIGHT] = out[WEIGHT];
    } else {
        all_out[OUT_H] = out[0];
    }
    run_alone(rig, c, all_in, all_out);
}

static void alone_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    alone(rig, what, in, out, false);
}

static void alone_backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    alone(rig, what, in, out, true);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    const Case tiny[] = {{1, 2, 3, 2, true, true}, {4, 3, 5, 2, true, true}, {7, 11, 13, 5, true, true}};
    for (int i = 0; i < 3; i++) {
        const Case *c = &tiny[i];
        double *in[INPUTS];
        make_inputs(c, F64, in);
        Differentiable chain = {
            4,
            1,
            {input_count(c, X), input_count(c, WEIGHT), input_count(c, BIAS), input_count(c, WEIGHT2)},
            {c->rows * c->out},
            differentiate_forward,
            differentiate_backward};
        expect_gradients(&chain, c, in, "SwiGLU, linear");
        Case own = *c;
        own.bias = false;
        Differentiable single = {2,
                                 1,
                                 {input_count(c, X), input_count(c, WEIGHT)},
                                 {c->rows * c->hidden},
                                 alone_forward,
                                 alone_backward};
        expect_gradients(&single, &own, in, "SwiGLU");
    }
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true, .training = true};
    const Tensor x = tensor_view(NULL, F32, shape2(4, 8)), hidden = tensor_view(NULL, F32, shape2(4, 3));
    const Tensor weight = tensor_view(NULL, F32, shape2(6, 8)), pre = tensor_view(NULL, F32, shape2(4, 6));
    const LinearForward right = {
        .x = x, .weight = weight, .pre = pre, .y = hidden, .activation = ACTIVATION_SWIGLU};
    LinearForward wrong[] = {right, right, right};
    wrong[0].y = pre;                                       // as wide as pre
    wrong[1].pre = hidden;                                  // as wide as y
    wrong[2].weight = tensor_view(NULL, F32, shape2(5, 8)); // no two halves
    wrong[2].pre = tensor_view(NULL, F32, shape2(4, 5));
    wrong[2].y = tensor_view(NULL, F32, shape2(4, 2));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Status status = linear_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula), ONCE(gradients_are_slopes),
                                       ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(form_follows_the_specification),
                                       ON_EACH_VARIANT(large_gates_stay_finite)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
