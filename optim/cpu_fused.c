/* adamw in two passes over the range: the norm, then everything else. */
#include "base/bfloat16.h"
#include "kernels/real.h"
#include "kernels/simd.h"
#include "optim/adamw.h"

#include <float.h>

/* AHEAD: prefetch distance in elements. LARGE: size in bytes above which rounded weights are stored past
 * the caches. */
enum { AHEAD = 512, LARGE = 8 << 20 };

/* Squares are summed in fp64, because fp32 would lose small terms among a hundred million. Two halves are
 * read concurrently with prefetching, at 1.6 times the rate of a single stream. */
static double sum_of_squares(const float *x, int64_t count) {
    typedef double Wide __attribute__((vector_size(LANES * sizeof(double))));
    const int64_t half = count / 2;
    Wide sums[2] = {{0}};
    double sum = 0;
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES)
        for (int h = 0; h < 2; h++) {
            const float *at = x + h * half + i;
            __builtin_prefetch(at + AHEAD);
            const Wide wide = __builtin_convertvector(*(const LanesView *)at, Wide);
            sums[h] += wide * wide;
        }
    sums[0] += sums[1];
    for (int l = 0; l < LANES; l++) sum += sums[0][l];
    for (; i < half; i++) sum += (double)x[i] * (double)x[i] + (double)x[half + i] * (double)x[half + i];
    return count % 2 ? sum + (double)x[count - 1] * (double)x[count - 1] : sum;
}

static void gradient_norm(const Ctx *ctx, const Adamw *a) {
    int64_t blocks = tensor_count(a->squares);
    double *squares = a->squares.data;
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        AdamwParameter block = adamw_block(a, b);
        squares[b] = sum_of_squares((const float *)a->gradient.data + block.first, block.count);
    }
}

static void clip_factor(const Adamw *a) {
    float *state = a->state.data;
    const double *squares = a->squares.data;
    double sum = 0;
    for (int64_t b = 0; b < tensor_count(a->squares); b++) sum += squares[b];
    float norm = (float)sqrt(sum);
    bool finite = isfinite(norm) && isfinite(*(const float *)a->loss.data);
    float factor = a->clip > 0 ? fminf(1, (float)a->clip / (norm + 1e-6f)) : 1;
    state[ADAMW_NORM] = norm;
    state[ADAMW_FACTOR] = finite ? factor : 0;
    state[ADAMW_SKIPPED] = finite ? 0 : 1;
    if (finite) state[ADAMW_UPDATES] += 1;
}

/* Values common to all elements. */
typedef struct {
    float rest1, rest2; // 1 - beta, rounded from fp64: in fp32, 1 - 0.999 loses three digits
    float factor, beta1, beta2, m_correction, v_correction, rate, decay, eps;
} Constants;

static Constants constants_of(const Adamw *a) {
    const float *state = a->state.data;
    double t = (double)state[ADAMW_UPDATES];
    return (Constants){.rest1 = (float)(1 - a->beta1),
                       .rest2 = (float)(1 - a->beta2),
                       .factor = state[ADAMW_FACTOR],
                       .beta1 = (float)a->beta1,
                       .beta2 = (float)a->beta2,
                       .m_correction = (float)(1 / (1 - pow(a->beta1, t))),
                       .v_correction = (float)(1 / (1 - pow(a->beta2, t))),
                       .rate = state[ADAMW_LEARNING_RATE],
                       .decay = state[ADAMW_LEARNING_RATE] * (float)a->weight_decay,
                       // avoids 0/0 in the gaps between parameters
                       .eps = a->eps > 0 ? (float)a->eps : FLT_MIN};
}

static inline void fetch_unit(const float *x) {
    for (int64_t i = AHEAD; i < AHEAD + ADAMW_UNIT; i += CACHE_LINE_FLOATS) __builtin_prefetch(x + i);
}

/* Updates one unit, with weight decay `decay` (which may be 0). */
static inline void update_unit(Constants c, float decay, const float *gradient, float *m, float *v,
                               float *weight) {
#pragma omp simd
    for (int64_t i = 0; i < ADAMW_UNIT; i++) {
        float g = c.factor * gradient[i];
        m[i] = c.beta1 * m[i] + c.rest1 * g;
        v[i] = c.beta2 * v[i] + c.rest2 * g * g;
        float w = weight[i] - decay * weight[i];
        weight[i] = w - c.rate * (m[i] * c.m_correction) / (sqrtf(v[i] * c.v_correction) + c.eps);
    }
}

/* The same with moments in bf16; `first` is the unit's first element in the flat space. */
static inline void update_narrow_unit(Constants c, float decay, uint32_t updates, int64_t first,
                                      const float *gradient, uint16_t *m, uint16_t *v, float *weight) {
    float wide_m[ADAMW_UNIT], wide_v[ADAMW_UNIT];
    for (int i = 0; i < ADAMW_UNIT; i++) wide_m[i] = bfloat16_to_float(m[i]);
    for (int i = 0; i < ADAMW_UNIT; i++) wide_v[i] = bfloat16_to_float(v[i]);
    update_unit(c, decay, gradient, wide_m, wide_v, weight);
    for (int i = 0; i < ADAMW_UNIT; i += 4) {
        RandomBlock random = random_philox(adamw_counter((first + i) / 4, updates), 0, 0);
        for (int e = 0; e < 4; e++) {
            m[i + e] = bfloat16_stochastic(wide_m[i + e], random.word[e] & 0xFFFF);
            v[i + e] = bfloat16_stochastic(wide_v[i + e], random.word[e] >> 16);
        }
    }
}

static void update(const Ctx *ctx, const Adamw *a) {
    if (((const float *)a->state.data)[ADAMW_SKIPPED] != 0) return;
    const Constants c = constants_of(a);
    const uint32_t updates = (uint32_t)((const float *)a->state.data)[ADAMW_UPDATES];
    const float *gradient = a->gradient.data;
    const bool mastered = !tensor_empty(a->master);
    float *weight = mastered ? a->master.data : a->weight.data;
    stored *rounded = mastered ? a->weight.data : NULL;
    const int64_t elements = tensor_count(a->gradient);
    const bool large = mastered && tensor_bytes(a->weight) >= LARGE && (uintptr_t)a->weight.data % 64 == 0;
#pragma omp parallel num_threads(cpu_threads(ctx))
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < elements; i += ADAMW_UNIT) {
            float decay = adamw_decays(a->decays.data, (a->first + i) / ADAMW_UNIT) ? c.decay : 0;
            fetch_unit(gradient + i);
            fetch_unit(weight + i);
            if (a->m.dtype == BF16) {
                update_narrow_unit(c, decay, updates, a->first + i, gradient + i, (uint16_t *)a->m.data + i,
                                   (uint16_t *)a->v.data + i, weight + i);
            } else {
                fetch_unit((const float *)a->m.data + i);
                fetch_unit((const float *)a->v.data + i);
                update_unit(c, decay, gradient + i, (float *)a->m.data + i, (float *)a->v.data + i,
                            weight + i);
            }
            if (large)
                stream_run(weight + i, ADAMW_UNIT, rounded + i);
            else if (mastered)
                store_run(weight + i, ADAMW_UNIT, rounded + i);
        }
        simd_streamed();
    }
}

static Status adamw_update_cpu_fused(Ctx *ctx, const void *contract) {
    const Adamw *a = contract;
    if (a->steps & ADAMW_SUM)
        PRIMITIVE (ctx, "gradient norm", OPTIMIZER, torch_call("aten::linalg_vector_norm"))
            gradient_norm(ctx, a);
    if (a->steps & ADAMW_CLIP)
        PRIMITIVE (ctx, "clip factor", OPTIMIZER, torch_call("aten::clamp")) clip_factor(a);
    if (a->steps & ADAMW_APPLY)
        PRIMITIVE (ctx, "update", OPTIMIZER) update(ctx, a);
    return OK;
}
SLOT(ADAMW, UPDATE, CPU, FUSED, STORED_DTYPE, adamw_update_cpu_fused);
