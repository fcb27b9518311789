#include "tests/support/compare.h"

#include <math.h>
#include <stdio.h>

Units units_of(const Variant *variant) {
    static const double unit[DTYPE_COUNT] = {[F32] = 0x1p-24, [F64] = 0x1p-53, [BF16] = 0x1p-8};
    double storage = unit[variant->dtype];
    return (Units){.storage = storage,
                   .product = variant->tf32 ? 0x1p-10 : storage, // tf32 may truncate instead of rounding
                   .wide = variant->dtype == F64 ? 0x1p-53 : 0x1p-24};
}

double sum_error(double unit, int64_t n) {
    return unit * fmin((double)n, 6 * sqrt((double)n));
}

double product_error(Units u, int64_t k) {
    return 2 * u.product + sum_error(u.wide, k);
}

void expect_close(const double *got, const double *want, const double *bound, int64_t count,
                  const char *format, ...) {
    /* Below the smallest normal number of fp32 and bf16 there is no relative accuracy. */
    const double tiny = 0x1p-126;
    double worst = 1;
    int64_t at = -1;
    for (int64_t i = 0; i < count; i++) {
        double excess = got[i] == want[i] ? 0 : fabs(got[i] - want[i]) / (bound[i] + tiny);
        if (excess <= worst) continue; // false for a NaN
        worst = isnan(excess) ? INFINITY : excess;
        at = i;
    }
    if (at < 0) return;
    char name[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    fail_msg("%s: element %lld of %lld is %.9g, but must be within %.3g of %.9g", name, (long long)at,
             (long long)count, got[at], bound[at], want[at]);
}

void expect_equal(const double *got, const double *want, int64_t count, const char *name) {
    for (int64_t i = 0; i < count; i++)
        if (!(got[i] == want[i]))
            fail_msg("%s: element %lld is %.17g, but must be %.17g", name, (long long)i, got[i], want[i]);
}

typedef struct {
    const Differentiable *d;
    const void *what;
    double **inputs, **outputs, **cotangents;
} Probe;

/* The scalar whose gradient is compared: L = sum of cotangent * output; and the sum of magnitudes. */
static double scalar(const Probe *p, double *magnitude) {
    rig_run_once(&specification, p->d->forward, p->what, p->inputs, p->outputs);
    double sum = 0;
    *magnitude = 0;
    for (int o = 0; o < p->d->outputs; o++)
        for (int64_t i = 0; i < p->d->output_counts[o]; i++) {
            double term = p->cotangents[o][i] * p->outputs[o][i];
            sum += term;
            *magnitude += fabs(term);
        }
    return sum;
}

/* (L(x + h d) - L(x - h d)) / 2h */
static double central(const Probe *p, int input, const double *direction, double h, double *magnitude) {
    int64_t count = p->d->input_counts[input];
    double *point = p->inputs[input], *moved = zeros(count), value[2];
    p->inputs[input] = moved;
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++) moved[i] = point[i] + (side ? -h : h) * direction[i];
        value[side] = scalar(p, magnitude);
    }
    p->inputs[input] = point;
    return (value[0] - value[1]) / (2 * h);
}

/* Central differences at h and 2h, extrapolated (Richardson 1911): D(h) = L' + c3 h^2 + c5 h^4 + ..., so
 * (4 D(h) - D(2h)) / 3 = L' - 4 c5 h^4, and D(2h) - D(h) = 3 c3 h^2. With h = 2^-10 and a unit direction, h^4
 * is 1e-12 of what the fifth derivative amounts to, and rounding gives up to 1000 u |L| / h = 1e-10 |L|: 1e-9
 * of the terms' magnitudes covers both; a hundredth of the h^2 term covers points of strong curvature. */
static void expect_slope(const Probe *p, int input, const double *direction, double slope, const char *name) {
    const double h = 0x1p-10;
    double magnitude;
    double near = central(p, input, direction, h, &magnitude);
    double far = central(p, input, direction, 2 * h, &magnitude);
    double estimate = (4 * near - far) / 3;
    double tolerance = 1e-9 * magnitude + 0.01 * fabs(far - near);
    if (!(fabs(slope - estimate) <= tolerance))
        fail_msg("%s: the slope along input %d is %.12g, but central differences say %.12g within %.3g", name,
                 input, slope, estimate, tolerance);
}

static void expect_input_gradient(const Probe *p, int input, const double *gradient, const char *name) {
    int64_t count = p->d->input_counts[input];
    if (count <= 24) {
        for (int64_t i = 0; i < count; i++) {
            double *unit = zeros(count);
            unit[i] = 1;
            expect_slope(p, input, unit, gradient[i], name);
        }
        return;
    }
    for (int probe = 0; probe < 4; probe++) {
        double *direction = normals(count, 1, F64), squares = 0, slope = 0;
        for (int64_t i = 0; i < count; i++) squares += direction[i] * direction[i];
        for (int64_t i = 0; i < count; i++) {
            direction[i] /= sqrt(squares);
            slope += direction[i] * gradient[i];
        }
        expect_slope(p, input, direction, slope, name);
    }
}

void expect_gradients(const Differentiable *d, const void *what, double *const *inputs, const char *name) {
    double *in[12], *outputs[4], *gradients[8];
    for (int i = 0; i < d->inputs; i++) {
        in[i] = inputs[i];
        gradients[i] = zeros(d->input_counts[i]);
    }
    for (int o = 0; o < d->outputs; o++) {
        outputs[o] = zeros(d->output_counts[o]);
        in[d->inputs + o] = normals(d->output_counts[o], 1, F64);
    }
    rig_run_once(&specification, d->backward, what, in, gradients);
    Probe p = {d, what, in, outputs, in + d->inputs};
    for (int i = 0; i < d->inputs; i++) expect_input_gradient(&p, i, gradients[i], name);
}
