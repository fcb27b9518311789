/* adamw in two passes over the flat space: the norm, then everything else. */
#include "optim/adamw.h"
#include "kernels/simd.h"

#include <float.h>

enum { BLOCK = 1 << 16 }; // elements: the unit of the norm's partial sums and of the threads' work

/* Squares are summed in fp64: over a hundred million elements fp32 would lose the small ones. */
static double sum_of_squares(const float *x, int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Writes norm, factor and skipped to the state. The partial sums are added in order. */
static void clip_factor(const Adamw *a, const double *partial, int64_t blocks) {
    float *state = a->state.data;
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += partial[i];
    float norm = (float)sqrt(sum);
    bool finite = isfinite(norm) && isfinite(*(const float *)a->loss.data);
    float factor = a->clip > 0 ? fminf(1, (float)a->clip / (norm + 1e-6f)) : 1;
    state[ADAMW_NORM] = norm;
    state[ADAMW_FACTOR] = finite ? factor : 0;
    state[ADAMW_SKIPPED] = finite ? 0 : 1;
}

/* The numbers that are the same for all elements. */
typedef struct {
    float rest1, rest2; // 1 - beta, rounded from fp64: in fp32, 1 - 0.999 has lost three digits
    float factor, beta1, beta2, m_correction, v_correction, rate, decay, eps;
} Constants;

static Constants constants_of(const Adamw *a) {
    const float *state = a->state.data;
    double t = (double)state[ADAMW_UPDATES] + 1;
    return (Constants){.rest1 = (float)(1 - a->beta1),
                       .rest2 = (float)(1 - a->beta2),
                       .factor = state[ADAMW_FACTOR],
                       .beta1 = (float)a->beta1,
                       .beta2 = (float)a->beta2,
                       .m_correction = (float)(1 / (1 - pow(a->beta1, t))),
                       .v_correction = (float)(1 / (1 - pow(a->beta2, t))),
                       .rate = state[ADAMW_LEARNING_RATE],
                       .decay = state[ADAMW_LEARNING_RATE] * (float)a->weight_decay,
                       /* The zeros between parameters must not become 0/0. */
                       .eps = a->eps > 0 ? (float)a->eps : FLT_MIN};
}

/* Elements [first, last), all decayed by `decay` (which may be 0). */
static void update(const Adamw *a, Constants c, float decay, int64_t first, int64_t last) {
    float *weight = a->weight.data, *m = a->m.data, *v = a->v.data;
    const float *gradient = a->gradient.data;
#pragma omp simd
    for (int64_t i = first; i < last; i++) {
        float g = c.factor * gradient[i];
        m[i] = c.beta1 * m[i] + c.rest1 * g;
        v[i] = c.beta2 * v[i] + c.rest2 * g * g;
        float w = weight[i] - decay * weight[i];
        weight[i] = w - c.rate * (m[i] * c.m_correction) / (sqrtf(v[i] * c.v_correction) + c.eps);
    }
}

static Status adamw_update_cpu_fused(Ctx *ctx, const void *contract) {
    const Adamw *a = contract;
    int64_t elements = tensor_count(a->weight), blocks = (elements + BLOCK - 1) / BLOCK;
    Tensor partial; // (blocks) fp64
    TRY(take(ctx, ARENA_SCRATCH, "adamw.partial", F64, shape1(blocks), &partial));
    PRIMITIVE (ctx, "gradient norm") {
        double *sums = partial.data;
        const float *gradient = a->gradient.data;
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t first = b * BLOCK, rest = elements - first;
            sums[b] = sum_of_squares(gradient + first, rest < BLOCK ? rest : BLOCK);
        }
        clip_factor(a, sums, blocks);
    }
    PRIMITIVE (ctx, "update") {
        float *state = a->state.data;
        if (state[ADAMW_SKIPPED] == 0) {
            const Constants c = constants_of(a);
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
            for (int64_t b = 0; b < blocks; b++) {
                int64_t first = b * BLOCK, last = first + BLOCK < elements ? first + BLOCK : elements;
                int64_t middle = a->decayed < first ? first : a->decayed < last ? a->decayed : last;
                update(a, c, c.decay, first, middle);
                update(a, c, 0, middle, last);
            }
            state[ADAMW_UPDATES] += 1;
        }
    }
    return OK;
}
SLOT(ADAMW, UPDATE, CPU, FUSED, F32, adamw_update_cpu_fused);
