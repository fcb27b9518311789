/* adamw as eager frameworks compute it: tensor by tensor, each elementwise step a kernel. */
#include "optim/adamw.h"

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "optim/cuda_rounding.cuh"

/* Only the device knows whether the update is skipped, so every kernel reads the state and exits early; the
 * host never waits. */

static constexpr int THREADS = 256, FACTOR_THREADS = 1024;

/* Elements of the state: 1 / (1 - beta^t). */
enum { M_CORRECTION = ADAMW_PREPARED, V_CORRECTION };

__device__ static bool skipped(const float *state) {
    return state[ADAMW_SKIPPED] != 0.0f;
}

/* ---- the norm ---- */

/* One block per block of the flat space. gradient (count) begins at element `first` of the flat space. */
/* Anatomy. Parallel: over ADAMW_BLOCK elements of the flat space, a block each. Launch: blocks of 256. Holds:
 * 32 registers, 64 bytes shared. Occupancy: not limited: all warps fit. Reads: 4 bytes a thread, coalesced.
 * Syncs: two barriers of the block in the sum. Fusion: wider loads, as the fused form has them. */
static __global__ void __launch_bounds__(THREADS)
    sum_squares(const float *gradient, int64_t first, int64_t count, double *squares) {
    const int64_t block = (first / ADAMW_BLOCK + blockIdx.x) * ADAMW_BLOCK - first;
    const int64_t begin = block > 0 ? block : 0;
    const int64_t end = block + ADAMW_BLOCK < count ? block + ADAMW_BLOCK : count;
    double sum = 0.0;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        sum += (double)gradient[i] * (double)gradient[i];
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

struct Rule {
    double beta1, beta2, clip;
};

/* One block. Writes norm, factor, skipped and bias corrections to the state. */
/* Anatomy. Parallel: over the partial sums; then one thread. Launch: one block of 1024. Holds: 30 registers,
 * 256 bytes shared. Occupancy: one block: its latency counts. Reads: 8 bytes a thread, coalesced. Syncs: two
 * barriers of the block in the sum. Fusion: with count_update, as the fused form does. */
static __global__ void __launch_bounds__(FACTOR_THREADS)
    clip_factor(const double *squares, int64_t blocks, const float *loss, Rule rule, float *state) {
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < blocks; i += FACTOR_THREADS) sum += squares[i];
    sum = block_sum<FACTOR_THREADS>(sum);
    if (threadIdx.x != 0) return;
    float norm = (float)sqrt(sum);
    bool finite = isfinite(norm) && isfinite(*loss);
    float factor = rule.clip > 0 ? fminf(1.0f, (float)rule.clip / (norm + 1e-6f)) : 1.0f;
    state[ADAMW_NORM] = norm;
    state[ADAMW_FACTOR] = finite ? factor : 0.0f;
    state[ADAMW_SKIPPED] = finite ? 0.0f : 1.0f;
    double t = (double)state[ADAMW_UPDATES] + 1.0;
    state[M_CORRECTION] = (float)(1.0 / (1.0 - pow(rule.beta1, t)));
    state[V_CORRECTION] = (float)(1.0 / (1.0 - pow(rule.beta2, t)));
}

/* Anatomy. Parallel: not at all. Launch: one thread. Holds: 8 registers, no shared memory. Occupancy: one
 * thread: its latency counts. Reads: one scalar. Syncs: none. Fusion: with clip_factor, as the fused form
 * does. */
static __global__ void count_update(float *state) {
    if (!skipped(state)) state[ADAMW_UPDATES] += 1.0f;
}

/* ---- elementwise steps of one tensor ---- */

/* y = *factor * x: clipping and bias corrections. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 21 to 28 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all elementwise steps into update_parameters of the fused form. */
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
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 28 registers, no shared memory. Occupancy: not limited: all warps
 * fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none. Fusion: all
 * elementwise steps into update_parameters of the fused form. */
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
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 28 to 30 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all elementwise steps into update_parameters of the fused form. */
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
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 28 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all elementwise steps into update_parameters of the fused form. */
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
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 31 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all elementwise steps into update_parameters of the fused form. */
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
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 13 to 24 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all elementwise steps into update_parameters of the fused form. */
template <class T, int N>
static __global__ void round_weight(const float *master, const float *state, int64_t count, T *weight) {
    if (skipped(state)) return;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N];
        load_floats(master + i, value);
        store_floats(weight + i, value);
    }
}

/* x = narrow */
/* Anatomy. Parallel: over elements, one per thread and iteration. Launch: grid stride, at most 32 blocks of
 * 256 per multiprocessor. Holds: 14 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: one scalar per thread, coalesced. Syncs: none. Fusion: all elementwise steps into update_parameters
 * of the fused form. */
static __global__ void widen(const bf16 *narrow, const float *state, int64_t count, float *x) {
    if (skipped(state)) return;
    for (int64_t i = thread_index(); i < count; i += thread_count()) x[i] = to_float(narrow[i]);
}

/* Rounds both moments, starting at element `first` of the flat space. */
/* Anatomy. Parallel: over elements, one per thread and iteration. Launch: grid stride, at most 32 blocks of
 * 256 per multiprocessor. Holds: 29 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: one scalar per thread, coalesced. Syncs: none. Fusion: all elementwise steps into update_parameters
 * of the fused form. */
static __global__ void round_moments(const float *m, const float *v, const float *state, int64_t first,
                                     int64_t count, bf16 *narrow_m, bf16 *narrow_v) {
    if (skipped(state)) return;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const uint4 words = rounding_words((first + i) / 4, state[ADAMW_UPDATES]);
        const uint32_t all[4] = {words.x, words.y, words.z, words.w};
        uint32_t word = all[0];
        for (int e = 1; e < 4; e++) word = (first + i) % 4 == e ? all[e] : word;
        narrow_m[i] = round_stochastic(m[i], word & 0xFFFF);
        narrow_v[i] = round_stochastic(v[i], word >> 16);
    }
}

/* ---- one tensor ---- */

struct Slice {
    int64_t first, count;           // elements of the range
    float *weight, *m, *v;          // weight: the fp32 master if there is one
    const float *gradient;          // not modified
    float *clipped, *m_hat, *v_hat; // scratch, as are m and v with bf16 moments
    bf16 *narrow_m, *narrow_v;      // or NULL
    bool packed;
};

struct Scratch {
    Tensor clipped, m_hat, v_hat, m, v; // fp32 (largest parameter); m and v only with bf16 moments
};

static Slice slice_of(const Adamw *a, AdamwParameter part, const Scratch *scratch) {
    Slice s = {};
    s.first = part.first;
    s.count = part.count;
    s.weight = data_of<float>(tensor_empty(a->master) ? a->weight : a->master) + s.first;
    const bool narrow = a->m.dtype == BF16;
    s.m = narrow ? data_of<float>(scratch->m) : data_of<float>(a->m) + s.first;
    s.v = narrow ? data_of<float>(scratch->v) : data_of<float>(a->v) + s.first;
    s.narrow_m = narrow ? data_of<bf16>(a->m) + s.first : nullptr;
    s.narrow_v = narrow ? data_of<bf16>(a->v) + s.first : nullptr;
    s.gradient = data_of<float>(a->gradient) + s.first;
    s.clipped = data_of<float>(scratch->clipped);
    s.m_hat = data_of<float>(scratch->m_hat);
    s.v_hat = data_of<float>(scratch->v_hat);
    s.packed = walks_in_packs(VECTOR<float>, {s.count}, {s.weight, s.m, s.v, s.gradient});
    return s;
}

static Status step(Ctx *ctx, const Adamw *a, const Slice &s, bool decays) {
    const float *state = data_of<float>(a->state);
    const unsigned blocks = grid_stride_blocks(ctx, s.count, THREADS);
    if (s.narrow_m)
        PRIMITIVE (ctx, "widen moments", OPTIMIZER, torch_call("aten::_to_copy")) {
            TRY(LAUNCH(ctx, widen, blocks, THREADS, 0, s.narrow_m, state, s.count, s.m));
            TRY(LAUNCH(ctx, widen, blocks, THREADS, 0, s.narrow_v, state, s.count, s.v));
        }
    PRIMITIVE (ctx, "clip", OPTIMIZER, torch_call("aten::mul_"))
        TRY(LAUNCH_ELEMENTS(ctx, scale, float, s.packed, s.count, s.gradient, state + ADAMW_FACTOR, state,
                            s.count, s.clipped));
    PRIMITIVE (ctx, "first moment", OPTIMIZER, torch_call("aten::lerp_"))
        TRY(LAUNCH_ELEMENTS(ctx, first_moment, float, s.packed, s.count, s.clipped, state, s.count, a->beta1,
                            1 - a->beta1, s.m));
    PRIMITIVE (ctx, "second moment", OPTIMIZER, torch_call("aten::addcmul_"))
        TRY(LAUNCH_ELEMENTS(ctx, second_moment, float, s.packed, s.count, s.clipped, state, s.count, a->beta2,
                            1 - a->beta2, s.v));
    PRIMITIVE (ctx, "bias correction", OPTIMIZER, torch_call("aten::div")) {
        TRY(LAUNCH_ELEMENTS(ctx, scale, float, s.packed, s.count, s.m, state + M_CORRECTION, state, s.count,
                            s.m_hat));
        TRY(LAUNCH_ELEMENTS(ctx, scale, float, s.packed, s.count, s.v, state + V_CORRECTION, state, s.count,
                            s.v_hat));
    }
    if (decays)
        PRIMITIVE (ctx, "decay", OPTIMIZER, torch_call("aten::mul_"))
            TRY(LAUNCH_ELEMENTS(ctx, decay, float, s.packed, s.count, state, s.count, a->weight_decay,
                                s.weight));
    PRIMITIVE (ctx, "update", OPTIMIZER, torch_call("aten::addcdiv_"))
        TRY(LAUNCH_ELEMENTS(ctx, update, float, s.packed, s.count, s.m_hat, s.v_hat, state, s.count, a->eps,
                            s.weight));
    if (s.narrow_m)
        PRIMITIVE (ctx, "round moments", OPTIMIZER, torch_call("aten::_to_copy"))
            TRY(LAUNCH(ctx, round_moments, blocks, THREADS, 0, s.m, s.v, state, a->first + s.first, s.count,
                       s.narrow_m, s.narrow_v));
    if (tensor_empty(a->master)) return OK;
    bf16 *rounded = data_of<bf16>(a->weight) + s.first;
    bool packed = walks_in_packs(VECTOR<bf16>, {s.count}, {s.weight, rounded});
    PRIMITIVE (ctx, "round", OPTIMIZER, torch_call("aten::_to_copy"))
        TRY(LAUNCH_ELEMENTS(ctx, round_weight, bf16, packed, s.count, s.weight, state, s.count, rounded));
    return OK;
}

/* ---- all tensors ---- */

static Status apply(Ctx *ctx, const Adamw *a) {
    int64_t largest = 0;
    for (int i = 0; i < a->count; i++) {
        int64_t count = adamw_part(a, i).count;
        largest = count > largest ? count : largest;
    }
    Scratch scratch = {};
    TRY(take(ctx, ARENA_SCRATCH, "adamw.clipped", F32, shape1(largest), &scratch.clipped));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.m_hat", F32, shape1(largest), &scratch.m_hat));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.v_hat", F32, shape1(largest), &scratch.v_hat));
    if (a->m.dtype == BF16) {
        TRY(take(ctx, ARENA_SCRATCH, "adamw.m", F32, shape1(largest), &scratch.m));
        TRY(take(ctx, ARENA_SCRATCH, "adamw.v", F32, shape1(largest), &scratch.v));
    }
    for (int i = 0; i < a->count; i++) {
        AdamwParameter part = adamw_part(a, i);
        if (part.count > 0) TRY(step(ctx, a, slice_of(a, part, &scratch), part.decays));
    }
    return OK;
}

static Status adamw_update_cuda_naive(Ctx *ctx, const void *contract) {
    const Adamw *a = static_cast<const Adamw *>(contract);
    const int64_t blocks = tensor_count(a->squares);
    double *squares = data_of<double>(a->squares);
    float *state = data_of<float>(a->state);
    if (a->steps & ADAMW_SUM)
        PRIMITIVE (ctx, "gradient norm", OPTIMIZER, torch_call("aten::linalg_vector_norm"))
            TRY(LAUNCH(ctx, sum_squares, (unsigned)blocks, THREADS, 0, data_of<float>(a->gradient), a->first,
                       tensor_count(a->gradient), squares));
    if (a->steps & ADAMW_CLIP) {
        Rule rule = {a->beta1, a->beta2, a->clip};
        PRIMITIVE (ctx, "clip factor", OPTIMIZER, torch_call("aten::clamp"))
            TRY(LAUNCH(ctx, clip_factor, 1, FACTOR_THREADS, 0, squares, blocks, data_of<float>(a->loss), rule,
                       state));
        PRIMITIVE (ctx, "count update", OPTIMIZER, torch_call("aten::add_"))
            TRY(LAUNCH(ctx, count_update, 1, 1, 0, state));
    }
    return a->steps & ADAMW_APPLY ? apply(ctx, a) : OK;
}
SLOT(ADAMW, UPDATE, CUDA, NAIVE, F32, adamw_update_cuda_naive);
SLOT(ADAMW, UPDATE, CUDA, NAIVE, BF16, adamw_update_cuda_naive);
