#include "base/bfloat16.h"
#include "kernels/real.h"
#include "optim/adamw.h"

#include <tgmath.h>

/* Data of one parameter: a slice of each tensor, and scratch of its size. */
typedef struct {
    int64_t count;
    real *weight, *m, *v; // weight: the master if there is one
    stored *rounded;      // the weight if there is a master, else NULL
    const real *gradient;
    real *clipped, *m_hat, *v_hat; // scratch, as are m and v with bf16 moments
    uint16_t *narrow_m, *narrow_v; // bf16, or NULL
    int64_t first;                 // offset in the flat space
} Slice;

enum { SCRATCH = 5, WIDE_M = 3, WIDE_V };

static Slice slice_of(const Adamw *a, AdamwParameter part, const Tensor scratch[SCRATCH]) {
    bool narrow = a->m.dtype == BF16;
    bool mastered = !tensor_empty(a->master);
    return (Slice){.count = part.count,
                   .weight = (real *)(mastered ? a->master.data : a->weight.data) + part.first,
                   .rounded = mastered ? (stored *)a->weight.data + part.first : NULL,
                   .m = narrow ? scratch[WIDE_M].data : (real *)a->m.data + part.first,
                   .v = narrow ? scratch[WIDE_V].data : (real *)a->v.data + part.first,
                   .gradient = (const real *)a->gradient.data + part.first,
                   .clipped = scratch[0].data,
                   .m_hat = scratch[1].data,
                   .v_hat = scratch[2].data,
                   .narrow_m = narrow ? (uint16_t *)a->m.data + part.first : NULL,
                   .narrow_v = narrow ? (uint16_t *)a->v.data + part.first : NULL,
                   .first = a->first + part.first};
}

static double sum_of_squares(const real *x, int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* In fp64, because an fp32 sum of equal terms stops growing after 2^24 of them, and GPT-2's token table
 * has twice as many. In units, because a plain fp64 sum of 32,768 terms would also lose digits. */
static void sums_of_squares(const Ctx *ctx, const Adamw *a) {
    double *squares = a->squares.data;
    EACH (ctx, b, tensor_count(a->squares), ADAMW_BLOCK) {
        AdamwParameter block = adamw_block(a, b);
        const real *g = (const real *)a->gradient.data + block.first;
        squares[b] = 0;
        for (int64_t i = 0; i < block.count; i += ADAMW_UNIT) squares[b] += sum_of_squares(g + i, ADAMW_UNIT);
    }
}

/* Writes norm, factor and skipped to the state. */
static void clip_factor(const Adamw *a) {
    real *state = a->state.data, loss = *(const real *)a->loss.data;
    double sum = 0;
    for (int64_t b = 0; b < tensor_count(a->squares); b++) sum += ((const double *)a->squares.data)[b];
    real norm = (real)sqrt(sum);
    bool finite = isfinite(norm) && isfinite(loss);
    state[ADAMW_NORM] = norm;
    state[ADAMW_FACTOR] = !finite ? 0 : a->clip > 0 ? fmin(1, (real)a->clip / (norm + (real)1e-6)) : 1;
    state[ADAMW_SKIPPED] = finite ? 0 : 1;
}

static void scale(const Ctx *ctx, const real *x, real factor, int64_t count, real *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = factor * x[i];
}

/* 1 - beta is computed in fp64: in fp32, 1 - 0.999 loses three digits. */
static void first_moment(const Ctx *ctx, const Slice *s, double beta) {
    const real keep = (real)beta, take_in = (real)(1 - beta);
    EACH_ELEMENT (ctx, i, s->count) s->m[i] = keep * s->m[i] + take_in * s->clipped[i];
}

static void second_moment(const Ctx *ctx, const Slice *s, double beta) {
    const real keep = (real)beta, take_in = (real)(1 - beta);
    EACH_ELEMENT (ctx, i, s->count) s->v[i] = keep * s->v[i] + take_in * s->clipped[i] * s->clipped[i];
}

static void decay(const Ctx *ctx, const Slice *s, real factor) {
    EACH_ELEMENT (ctx, i, s->count) s->weight[i] -= factor * s->weight[i];
}

static void update(const Ctx *ctx, const Slice *s, real learning_rate, real eps) {
    EACH_ELEMENT (ctx, i, s->count) s->weight[i] -= learning_rate * s->m_hat[i] / (sqrt(s->v_hat[i]) + eps);
}

static void widen(const Ctx *ctx, const uint16_t *narrow, int64_t count, real *x) {
    EACH_ELEMENT (ctx, i, count) x[i] = (real)bfloat16_to_float(narrow[i]);
}

static void round_moments(const Ctx *ctx, const Slice *s, uint32_t updates) {
    EACH (ctx, i, s->count, 1) {
        RandomBlock random = random_philox(adamw_counter((s->first + i) / 4, updates), 0, 0);
        uint32_t word = random.word[(s->first + i) % 4];
        s->narrow_m[i] = bfloat16_stochastic((float)s->m[i], word & 0xFFFF);
        s->narrow_v[i] = bfloat16_stochastic((float)s->v[i], word >> 16);
    }
}

static void round_weights(const Ctx *ctx, const Slice *s) {
    EACH_ELEMENT (ctx, i, s->count) s->rounded[i] = store(s->weight[i]);
}

static void step(Ctx *ctx, const Adamw *a, const Slice *s, bool decays) {
    const real *state = a->state.data;
    if (s->narrow_m)
        PRIMITIVE (ctx, "widen moments", OPTIMIZER, torch_call("aten::_to_copy")) {
            widen(ctx, s->narrow_m, s->count, s->m);
            widen(ctx, s->narrow_v, s->count, s->v);
        }
    PRIMITIVE (ctx, "clip", OPTIMIZER, torch_call("aten::mul_"))
        scale(ctx, s->gradient, state[ADAMW_FACTOR], s->count, s->clipped);
    PRIMITIVE (ctx, "first moment", OPTIMIZER, torch_call("aten::lerp_")) first_moment(ctx, s, a->beta1);
    PRIMITIVE (ctx, "second moment", OPTIMIZER, torch_call("aten::addcmul_")) second_moment(ctx, s, a->beta2);
    PRIMITIVE (ctx, "bias correction", OPTIMIZER, torch_call("aten::div")) {
        double t = (double)state[ADAMW_UPDATES];
        scale(ctx, s->m, (real)(1 / (1 - pow(a->beta1, t))), s->count, s->m_hat);
        scale(ctx, s->v, (real)(1 / (1 - pow(a->beta2, t))), s->count, s->v_hat);
    }
    if (decays)
        PRIMITIVE (ctx, "decay", OPTIMIZER, torch_call("aten::mul_"))
            decay(ctx, s, state[ADAMW_LEARNING_RATE] * (real)a->weight_decay);
    PRIMITIVE (ctx, "update", OPTIMIZER, torch_call("aten::addcdiv_"))
        update(ctx, s, state[ADAMW_LEARNING_RATE], (real)a->eps);
    if (s->narrow_m)
        PRIMITIVE (ctx, "round moments", OPTIMIZER, torch_call("aten::_to_copy"))
            round_moments(ctx, s, (uint32_t)state[ADAMW_UPDATES]);
    if (s->rounded)
        PRIMITIVE (ctx, "round", OPTIMIZER, torch_call("aten::_to_copy")) round_weights(ctx, s);
}

static Status apply(Ctx *ctx, const Adamw *a) {
    static const char *const names[SCRATCH] = {"adamw.clipped", "adamw.m_hat", "adamw.v_hat", "adamw.m",
                                               "adamw.v"};
    int64_t largest = 0;
    for (int i = 0; i < a->count; i++) {
        int64_t count = adamw_part(a, i).count;
        largest = count > largest ? count : largest;
    }
    Tensor scratch[SCRATCH] = {0}; // (largest)
    for (int k = 0; k < (a->m.dtype == BF16 ? SCRATCH : WIDE_M); k++)
        TRY(take(ctx, ARENA_SCRATCH, names[k], a->state.dtype, shape1(largest), &scratch[k]));
    if (ctx->measuring || ((const real *)a->state.data)[ADAMW_SKIPPED] != 0) return OK;
    for (int i = 0; i < a->count; i++) {
        AdamwParameter part = adamw_part(a, i);
        Slice s = slice_of(a, part, scratch);
        if (part.count > 0) step(ctx, a, &s, part.decays);
    }
    return OK;
}

static Status adamw_update_cpu_naive(Ctx *ctx, const void *contract) {
    const Adamw *a = contract;
    real *state = a->state.data;
    if (a->steps & ADAMW_SUM)
        PRIMITIVE (ctx, "gradient norm", OPTIMIZER, torch_call("aten::linalg_vector_norm"))
            sums_of_squares(ctx, a);
    if (a->steps & ADAMW_CLIP) {
        PRIMITIVE (ctx, "clip factor", OPTIMIZER, torch_call("aten::clamp")) clip_factor(a);
        PRIMITIVE (ctx, "count update", OPTIMIZER, torch_call("aten::add_"))
            state[ADAMW_UPDATES] += state[ADAMW_SKIPPED] != 0 ? 0 : 1;
    }
    return a->steps & ADAMW_APPLY ? apply(ctx, a) : OK;
}
SLOT(ADAMW, UPDATE, CPU, NAIVE, STORED_DTYPE, adamw_update_cpu_naive);
