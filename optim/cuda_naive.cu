/* adamw as eager frameworks run it: tensor by tensor, each elementwise step its own kernel. Whether the
 * update is skipped is known on the device only: every step looks at the state and returns where it is, so
 * the host never waits. */
#include "optim/adamw.h"

#include "kernels/device/cuda.cuh"

static constexpr int THREADS = 256, FACTOR_THREADS = 1024, MOST_PARTS = 512;

__device__ static bool skipped(const float *state) {
    return state[ADAMW_SKIPPED] != 0.0f;
}

/* ---- the norm ---- */

/* partials[block] = sum of the squares that the block reads. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) sum_squares(const T *x, int64_t count, double *partials) {
    float sum = 0.0f;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N];
        load_floats(x + i, value);
#pragma unroll
        for (int e = 0; e < N; e++) sum += value[e] * value[e];
    }
    double total = block_sum<THREADS>((double)sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

struct Rule {
    double beta1, beta2, clip;
};

/* One block. Writes norm, factor and skipped to the state; 1 / (1 - beta^t) of this update to corrections. */
static __global__ void __launch_bounds__(FACTOR_THREADS)
    clip_factor(const double *partials, int64_t parts, const float *loss, Rule rule, float *state,
                float *corrections) {
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < parts; i += FACTOR_THREADS) sum += partials[i];
    sum = block_sum<FACTOR_THREADS>(sum);
    if (threadIdx.x != 0) return;
    float norm = (float)sqrt(sum);
    bool finite = isfinite(norm) && isfinite(*loss);
    float factor = rule.clip > 0 ? fminf(1.0f, (float)rule.clip / (norm + 1e-6f)) : 1.0f;
    state[ADAMW_NORM] = norm;
    state[ADAMW_FACTOR] = finite ? factor : 0.0f;
    state[ADAMW_SKIPPED] = finite ? 0.0f : 1.0f;
    double t = (double)state[ADAMW_UPDATES] + 1.0;
    corrections[0] = (float)(1.0 / (1.0 - pow(rule.beta1, t)));
    corrections[1] = (float)(1.0 / (1.0 - pow(rule.beta2, t)));
}

static __global__ void count_update(float *state) {
    if (!skipped(state)) state[ADAMW_UPDATES] += 1.0f;
}

/* ---- elementwise steps of one tensor ---- */

/* y = *factor * x: the clipping, and the bias corrections */
template <class T, int N>
static __global__ void scale(const T *x, const float *factor, const float *state, int64_t count, T *y) {
    if (skipped(state)) return;
    float by = *factor;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N];
        load_floats(x + i, value);
#pragma unroll
        for (int e = 0; e < N; e++) value[e] *= by;
        store_floats(y + i, value);
    }
}

/* m = keep * m + (1 - keep) * g */
template <class T, int N>
static __global__ void first_moment(const T *g, const float *state, int64_t count, float keep, float rest,
                                    T *m) {
    if (skipped(state)) return;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float moment[N], gradient[N];
        load_floats(m + i, moment);
        load_floats(g + i, gradient);
#pragma unroll
        for (int e = 0; e < N; e++) moment[e] = keep * moment[e] + rest * gradient[e];
        store_floats(m + i, moment);
    }
}

/* v = keep * v + (1 - keep) * g^2 */
template <class T, int N>
static __global__ void second_moment(const T *g, const float *state, int64_t count, float keep, float rest,
                                     T *v) {
    if (skipped(state)) return;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float moment[N], gradient[N];
        load_floats(v + i, moment);
        load_floats(g + i, gradient);
#pragma unroll
        for (int e = 0; e < N; e++) moment[e] = keep * moment[e] + rest * gradient[e] * gradient[e];
        store_floats(v + i, moment);
    }
}

/* w = w - lr * decay * w */
template <class T, int N>
static __global__ void decay(const float *state, int64_t count, float weight_decay, T *w) {
    if (skipped(state)) return;
    float factor = state[ADAMW_LEARNING_RATE] * weight_decay;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float weight[N];
        load_floats(w + i, weight);
#pragma unroll
        for (int e = 0; e < N; e++) weight[e] -= factor * weight[e];
        store_floats(w + i, weight);
    }
}

/* w = w - lr * m_hat / (sqrt(v_hat) + eps) */
template <class T, int N>
static __global__ void update(const T *m_hat, const T *v_hat, const float *state, int64_t count, float eps,
                              T *w) {
    if (skipped(state)) return;
    float learning_rate = state[ADAMW_LEARNING_RATE];
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float m[N], v[N], weight[N];
        load_floats(m_hat + i, m);
        load_floats(v_hat + i, v);
        load_floats(w + i, weight);
#pragma unroll
        for (int e = 0; e < N; e++) weight[e] -= learning_rate * m[e] / (sqrtf(v[e]) + eps);
        store_floats(w + i, weight);
    }
}

/* The bf16 weight is the rounding of the fp32 master. */
template <class T, int N>
static __global__ void round_weight(const float *master, const float *state, int64_t count, T *weight) {
    if (skipped(state)) return;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N];
        load_floats(master + i, value);
        store_floats(weight + i, value);
    }
}

/* ---- one tensor ---- */

struct Slice {
    int64_t first, count, decayed;  // elements; the first `decayed` of the count decay
    float *weight, *m, *v;          // weight: the fp32 master where there is one
    const float *gradient;          // not changed
    float *clipped, *m_hat, *v_hat; // scratch
    bool packed;
};

struct Scratch {
    Tensor partials, corrections; // fp64 (parts), fp32 (2)
    Tensor clipped, m_hat, v_hat; // fp32 (largest parameter)
};

static Slice slice_of(const Adamw *a, int parameter, const Scratch *scratch) {
    Slice s = {};
    s.first = a->offsets[parameter];
    s.count = a->counts[parameter];
    int64_t decayed = a->decayed - s.first;
    s.decayed = decayed < 0 ? 0 : decayed < s.count ? decayed : s.count;
    s.weight = data_of<float>(tensor_empty(a->master) ? a->weight : a->master) + s.first;
    s.m = data_of<float>(a->m) + s.first;
    s.v = data_of<float>(a->v) + s.first;
    s.gradient = data_of<float>(a->gradient) + s.first;
    s.clipped = data_of<float>(scratch->clipped);
    s.m_hat = data_of<float>(scratch->m_hat);
    s.v_hat = data_of<float>(scratch->v_hat);
    s.packed = walks_in_packs(VECTOR<float>, {s.count, s.decayed}, {s.weight, s.m, s.v, s.gradient});
    return s;
}

static Status step(Ctx *ctx, const Adamw *a, const Slice &s, const float *state, const float *corrections) {
    PRIMITIVE (ctx, "clip")
        TRY(LAUNCH_ELEMENTS(ctx, scale, float, s.packed, s.count, s.gradient, state + ADAMW_FACTOR, state,
                            s.count, s.clipped));
    PRIMITIVE (ctx, "first moment")
        TRY(LAUNCH_ELEMENTS(ctx, first_moment, float, s.packed, s.count, s.clipped, state, s.count, a->beta1,
                            1 - a->beta1, s.m));
    PRIMITIVE (ctx, "second moment")
        TRY(LAUNCH_ELEMENTS(ctx, second_moment, float, s.packed, s.count, s.clipped, state, s.count, a->beta2,
                            1 - a->beta2, s.v));
    PRIMITIVE (ctx, "bias correction") {
        TRY(LAUNCH_ELEMENTS(ctx, scale, float, s.packed, s.count, s.m, corrections, state, s.count, s.m_hat));
        TRY(LAUNCH_ELEMENTS(ctx, scale, float, s.packed, s.count, s.v, corrections + 1, state, s.count,
                            s.v_hat));
    }
    PRIMITIVE (ctx, "decay")
        TRY(LAUNCH_ELEMENTS(ctx, decay, float, s.packed, s.decayed, state, s.decayed, a->weight_decay,
                            s.weight));
    PRIMITIVE (ctx, "update")
        TRY(LAUNCH_ELEMENTS(ctx, update, float, s.packed, s.count, s.m_hat, s.v_hat, state, s.count, a->eps,
                            s.weight));
    if (tensor_empty(a->master)) return OK;
    bf16 *rounded = data_of<bf16>(a->weight) + s.first;
    bool packed = walks_in_packs(VECTOR<bf16>, {s.count}, {s.weight, rounded});
    PRIMITIVE (ctx, "round")
        TRY(LAUNCH_ELEMENTS(ctx, round_weight, bf16, packed, s.count, s.weight, state, s.count, rounded));
    return OK;
}

/* ---- all tensors ---- */

/* Blocks, and so partial sums, that a tensor's norm is spread over: by its size alone. */
static int64_t parts_of(int64_t count) {
    int64_t parts = divide_up(count, THREADS * 16);
    return parts < MOST_PARTS ? parts : MOST_PARTS;
}

static Status gradient_norms(Ctx *ctx, const Adamw *a, const Scratch *scratch) {
    double *partials = data_of<double>(scratch->partials);
    for (int i = 0; i < a->count; i++) {
        int64_t count = a->counts[i], parts = parts_of(count);
        const float *gradient = data_of<float>(a->gradient) + a->offsets[i];
        bool packed = walks_in_packs(VECTOR<float>, {count}, {gradient});
        PRIMITIVE (ctx, "gradient norm")
            TRY(LAUNCH_PACKED(ctx, sum_squares, float, packed, (unsigned)parts, THREADS, gradient, count,
                              partials));
        partials += parts;
    }
    return OK;
}

static Status take_scratch(Ctx *ctx, const Adamw *a, Scratch *scratch) {
    int64_t largest = 0, parts = 0;
    for (int i = 0; i < a->count; i++) {
        largest = a->counts[i] > largest ? a->counts[i] : largest;
        parts += parts_of(a->counts[i]);
    }
    TRY(take(ctx, ARENA_SCRATCH, "adamw.partials", F64, shape1(parts), &scratch->partials));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.corrections", F32, shape1(2), &scratch->corrections));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.clipped", F32, shape1(largest), &scratch->clipped));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.m_hat", F32, shape1(largest), &scratch->m_hat));
    return take(ctx, ARENA_SCRATCH, "adamw.v_hat", F32, shape1(largest), &scratch->v_hat);
}

static Status adamw_update_cuda_naive(Ctx *ctx, const void *contract) {
    const Adamw *a = static_cast<const Adamw *>(contract);
    Scratch scratch;
    TRY(take_scratch(ctx, a, &scratch));
    float *state = data_of<float>(a->state), *corrections = data_of<float>(scratch.corrections);
    Rule rule = {a->beta1, a->beta2, a->clip};
    TRY(gradient_norms(ctx, a, &scratch));
    PRIMITIVE (ctx, "clip factor")
        TRY(LAUNCH(ctx, clip_factor, 1, FACTOR_THREADS, 0, data_of<double>(scratch.partials),
                   tensor_count(scratch.partials), data_of<float>(a->loss), rule, state, corrections));
    for (int i = 0; i < a->count; i++) {
        TRY(step(ctx, a, slice_of(a, i, &scratch), state, corrections));
    }
    PRIMITIVE (ctx, "count update") TRY(LAUNCH(ctx, count_update, 1, 1, 0, state));
    return OK;
}
SLOT(ADAMW, UPDATE, CUDA, NAIVE, F32, adamw_update_cuda_naive);
SLOT(ADAMW, UPDATE, CUDA, NAIVE, BF16, adamw_update_cuda_naive);
