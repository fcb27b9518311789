#include "kernels/real.h"
#include "optim/adamw.h"

#include <tgmath.h>

/* What one parameter's primitives work on: a slice of each flat tensor, and scratch of its size. */
typedef struct {
    int64_t first, count;
    real *weight, *m, *v;
    const real *gradient;
    real *clipped, *m_hat, *v_hat; // scratch
} Slice;

static Slice slice_of(const Adamw *a, int parameter, const Tensor scratch[3]) {
    int64_t first = a->offsets[parameter];
    return (Slice){.first = first,
                   .count = a->counts[parameter],
                   .weight = (real *)a->weight.data + first,
                   .m = (real *)a->m.data + first,
                   .v = (real *)a->v.data + first,
                   .gradient = (const real *)a->gradient.data + first,
                   .clipped = scratch[0].data,
                   .m_hat = scratch[1].data,
                   .v_hat = scratch[2].data};
}

/* In fp64: past 2^24 equal terms an fp32 sum stands still, and GPT-2's token table has twice as many. */
static real sum_of_squares(const real *x, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return (real)sum;
}

/* Writes norm, factor and skipped to the state. */
static void clip_factor(const Adamw *a, const real *squares) {
    real *state = a->state.data, sum = 0, loss = *(const real *)a->loss.data;
    for (int i = 0; i < a->count; i++) sum += squares[i];
    real norm = sqrt(sum);
    bool finite = isfinite(norm) && isfinite(loss);
    state[ADAMW_NORM] = norm;
    state[ADAMW_FACTOR] = !finite ? 0 : a->clip > 0 ? fmin(1, (real)a->clip / (norm + (real)1e-6)) : 1;
    state[ADAMW_SKIPPED] = finite ? 0 : 1;
}

static void scale(const real *x, real factor, int64_t count, real *y) {
    for (int64_t i = 0; i < count; i++) y[i] = factor * x[i];
}

/* 1 - beta comes from fp64: in fp32, 1 - 0.999 has lost three digits. */
static void first_moment(const Slice *s, double beta) {
    const real keep = (real)beta, take_in = (real)(1 - beta);
    for (int64_t i = 0; i < s->count; i++) s->m[i] = keep * s->m[i] + take_in * s->clipped[i];
}

static void second_moment(const Slice *s, double beta) {
    const real keep = (real)beta, take_in = (real)(1 - beta);
    for (int64_t i = 0; i < s->count; i++) s->v[i] = keep * s->v[i] + take_in * s->clipped[i] * s->clipped[i];
}

static void decay(const Slice *s, real factor, int64_t decayed) {
    for (int64_t i = 0; i < s->count && s->first + i < decayed; i++) s->weight[i] -= factor * s->weight[i];
}

static void update(const Slice *s, real learning_rate, real eps) {
    for (int64_t i = 0; i < s->count; i++)
        s->weight[i] -= learning_rate * s->m_hat[i] / (sqrt(s->v_hat[i]) + eps);
}

static void step(Ctx *ctx, const Adamw *a, const Slice *s) {
    const real *state = a->state.data;
    PRIMITIVE (ctx, "clip") scale(s->gradient, state[ADAMW_FACTOR], s->count, s->clipped);
    PRIMITIVE (ctx, "first moment") first_moment(s, a->beta1);
    PRIMITIVE (ctx, "second moment") second_moment(s, a->beta2);
    PRIMITIVE (ctx, "bias correction") {
        double t = (double)state[ADAMW_UPDATES] + 1;
        scale(s->m, (real)(1 / (1 - pow(a->beta1, t))), s->count, s->m_hat);
        scale(s->v, (real)(1 / (1 - pow(a->beta2, t))), s->count, s->v_hat);
    }
    PRIMITIVE (ctx, "decay") decay(s, state[ADAMW_LEARNING_RATE] * (real)a->weight_decay, a->decayed);
    PRIMITIVE (ctx, "update") update(s, state[ADAMW_LEARNING_RATE], (real)a->eps);
}

static Status adamw_update_cpu_naive(Ctx *ctx, const void *contract) {
    const Adamw *a = contract;
    int64_t largest = 0;
    for (int i = 0; i < a->count; i++) largest = a->counts[i] > largest ? a->counts[i] : largest;
    Tensor squares, scratch[3]; // (count), 3 of (largest)
    TRY(take(ctx, ARENA_SCRATCH, "adamw.squares", a->state.dtype, shape1(a->count), &squares));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.clipped", a->state.dtype, shape1(largest), &scratch[0]));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.m_hat", a->state.dtype, shape1(largest), &scratch[1]));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.v_hat", a->state.dtype, shape1(largest), &scratch[2]));
    bool skipped = true; // also while measuring, when there is nothing to look at
    for (int i = 0; i < a->count; i++)
        PRIMITIVE (ctx, "gradient norm")
            ((real *)squares.data)[i] =
                sum_of_squares((const real *)a->gradient.data + a->offsets[i], a->counts[i]);
    PRIMITIVE (ctx, "clip factor") {
        clip_factor(a, squares.data);
        skipped = ((const real *)a->state.data)[ADAMW_SKIPPED] != 0;
    }
    if (skipped) return OK;
    for (int i = 0; i < a->count; i++) {
        Slice s = slice_of(a, i, scratch);
        step(ctx, a, &s);
    }
    PRIMITIVE (ctx, "count update") ((real *)a->state.data)[ADAMW_UPDATES] += 1;
    return OK;
}
SLOT(ADAMW, UPDATE, CPU, NAIVE, REAL_DTYPE, adamw_update_cpu_naive);
