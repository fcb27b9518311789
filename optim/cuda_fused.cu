#include "optim/adamw.h"

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "optim/cuda_rounding.cuh"

/* Three launches over the range, without waiting on the host: partial sums of g^2; one block that computes
 * norm, skipping and the step's factors; the update. */
namespace {

constexpr int NORM_THREADS = 512;
constexpr int UPDATE_THREADS = 256;
constexpr int WIDTH = 4; // elements per thread: 16 bytes of fp32

/* Factors of the update, computed on the device. */
constexpr int STEP_DECAY = ADAMW_PREPARED;    // learning rate * weight decay
constexpr int STEP_RATE = ADAMW_PREPARED + 1; // learning rate / (1 - beta1^t)
constexpr int STEP_ROOT = ADAMW_PREPARED + 2; // 1 / sqrt(1 - beta2^t)
static_assert(WIDTH == 4, "elements of a block of random words");
static_assert(STEP_ROOT < ADAMW_STATE_SIZE, "the state has room for the step");

struct Hyperparameters {
    double beta1, beta2, weight_decay, clip;
};

struct Moments {
    float beta1, beta2, rest1, rest2; // rest = 1 - beta, rounded from fp64
    float eps;
};

/* One block per block of the flat space. Squares of four neighbours are summed in fp32, the rest in fp64,
 * so 124M terms lose no accuracy. gradient (count) begins at element `first` of the flat space. Floor: 4 *
 * P bytes. */
/* Anatomy. Parallel: over ADAMW_BLOCK elements of the flat space, a block each. Launch: blocks of 512. Holds:
 * 30 registers, 128 bytes shared. Occupancy: not limited: all warps fit. Reads: 16 bytes of fp32 a load,
 * coalesced, 4 in flight. Syncs: two barriers of the block in the sum. Fusion: with what writes the
 * gradients, at the price of an order of sums that hangs on them. */
__global__ void __launch_bounds__(NORM_THREADS)
    sum_squares(const float *gradient, int64_t first, int64_t count, double *squares) {
    wait_for_previous();
    let_next_start();
    const int64_t block = (first / ADAMW_BLOCK + blockIdx.x) * ADAMW_BLOCK - first;
    const int64_t begin = block > 0 ? block : 0;
    const int64_t end = block + ADAMW_BLOCK < count ? block + ADAMW_BLOCK : count;
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x * WIDTH; i < end; i += NORM_THREADS * WIDTH) {
        float g[WIDTH];
        load_floats<WIDTH>(gradient + i, g);
        sum += (double)(g[0] * g[0] + g[1] * g[1] + (g[2] * g[2] + g[3] * g[3]));
    }
    sum = block_sum<NORM_THREADS>(sum);
    if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

/* One block computes the values of the whole step. */
/* Anatomy. Parallel: over the partial sums; then one thread. Launch: one block of 512. Holds: 30 registers,
 * 128 bytes shared. Occupancy: one block: its latency counts. Reads: 8 bytes a thread, coalesced. Syncs: two
 * barriers of the block in the sum. Fusion: with the last block of sum_squares to finish. */
__global__ void __launch_bounds__(NORM_THREADS)
    prepare_step(const double *squares, int blocks, const float *loss, const Hyperparameters h,
                 float *state) {
    wait_for_previous();
    let_next_start();
    double sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < blocks; i += NORM_THREADS) sum += squares[i];
    sum = block_sum<NORM_THREADS>(sum);
    if (threadIdx.x != 0) return;
    const float norm = (float)sqrt(sum);
    const bool skipped = !isfinite(norm) || !isfinite(*loss);
    const double clipped = h.clip / ((double)norm + 1e-6);
    const double factor = skipped ? 0 : h.clip > 0 && clipped < 1 ? clipped : 1;
    const double updates = (double)state[ADAMW_UPDATES] + (skipped ? 0 : 1);
    const double rate = (double)state[ADAMW_LEARNING_RATE];
    state[ADAMW_UPDATES] = (float)updates;
    state[ADAMW_NORM] = norm;
    state[ADAMW_FACTOR] = (float)factor;
    state[ADAMW_SKIPPED] = skipped ? 1.f : 0.f;
    state[STEP_DECAY] = (float)(rate * h.weight_decay);
    state[STEP_RATE] = (float)(rate / (1 - pow(h.beta1, updates)));
    state[STEP_ROOT] = (float)(1 / sqrt(1 - pow(h.beta2, updates)));
}

template <typename T, typename M>
struct Range {
    T *weight;     // (count)
    float *master; // (count): equals weight if that is fp32
    const float *gradient;
    M *m, *v;
    const int32_t *decays;
    int64_t first, count; // first: offset of the range in the flat space
};

/* Loads and stores moments: floats, or bf16 rounded by words of a random block, of which `half` (0 or 1)
 * selects two. */
template <typename M>
__device__ inline void store_moments(const float (&x)[WIDTH], const uint4 &words, int half, M *to) {
    if constexpr (sizeof(M) == sizeof(float)) {
        store_floats<WIDTH>(to, x);
    } else {
        const uint32_t word[WIDTH] = {words.x, words.y, words.z, words.w};
        Pack<bf16, WIDTH> pack;
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            pack.e[e] = round_stochastic(x[e], half ? word[e] >> 16 : word[e] & 0xFFFF);
        store_pack<WIDTH>(to, pack);
    }
}

/* WIDTH elements per thread, all in one unit. Floor: read g, m, v, master; write m, v, master, weight: 28
 * * P bytes, 2 * P more with bf16 weights, 8 * P less with bf16 moments. */
/* Anatomy. Parallel: over 4 neighbouring elements, one quartet a thread. Launch: blocks of 256, count / 1024
 * of them. Holds: 38 to 43 registers, no shared memory. Occupancy: registers; 62 to 75% of the warps. Reads:
 * 16 bytes of fp32 a load, 8 of bf16 moments, coalesced. Syncs: none. Fusion: nothing left: every tensor is
 * read and written once. */
template <typename T, typename M>
__global__ void __launch_bounds__(UPDATE_THREADS)
    update_parameters(const Range<T, M> p, const float *state, const Moments c) {
    wait_for_previous();
    let_next_start();
    if (state[ADAMW_SKIPPED] != 0.f) return;
    const float factor = state[ADAMW_FACTOR], rate = state[STEP_RATE], root = state[STEP_ROOT];
    const int64_t first = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) * WIDTH;
    if (first >= p.count) return;
    const int64_t unit = (p.first + first) / ADAMW_UNIT;
    const bool decays = (uint32_t)p.decays[unit / 32] >> unit % 32 & 1;
    const float decay = state[STEP_DECAY];
    float g[WIDTH], m[WIDTH], v[WIDTH], w[WIDTH];
    load_floats<WIDTH>(p.gradient + first, g);
    load_floats<WIDTH>(p.m + first, m);
    load_floats<WIDTH>(p.v + first, v);
    load_floats<WIDTH>(p.master + first, w);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        g[e] *= factor;
        m[e] = c.beta1 * m[e] + c.rest1 * g[e];
        v[e] = c.beta2 * v[e] + c.rest2 * g[e] * g[e];
        if (decays) w[e] -= decay * w[e];
        w[e] -= rate * m[e] / (sqrtf(v[e]) * root + c.eps);
    }
    uint4 words = {};
    if constexpr (sizeof(M) != sizeof(float))
        words = rounding_words((p.first + first) / WIDTH, state[ADAMW_UPDATES]);
    store_moments(m, words, 0, p.m + first);
    store_moments(v, words, 1, p.v + first);
    store_floats<WIDTH>(p.master + first, w);
    if constexpr (sizeof(T) != sizeof(float)) store_floats<WIDTH>(p.weight + first, w);
}

template <typename T, typename M>
Status update(Ctx *ctx, const Adamw *a) {
    const Range<T, M> p = {data_of<T>(a->weight),
                           data_of<float>(tensor_empty(a->master) ? a->weight : a->master),
                           data_of<float>(a->gradient),
                           data_of<M>(a->m),
                           data_of<M>(a->v),
                           data_of<int32_t>(a->decays),
                           a->first,
                           tensor_count(a->gradient)};
    const Moments moments = {(float)a->beta1, (float)a->beta2, (float)(1 - a->beta1), (float)(1 - a->beta2),
                             (float)a->eps};
    const unsigned blocks = (unsigned)divide_up(p.count, UPDATE_THREADS * WIDTH);
    PRIMITIVE (ctx, "update", OPTIMIZER)
        TRY(LAUNCH_EARLY(ctx, (update_parameters<T, M>), blocks, UPDATE_THREADS, 0, p,
                         data_of<float>(a->state), moments));
    return OK;
}

} // namespace

template <class T>
static Status adamw_update_cuda_fused(Ctx *ctx, const void *contract) {
    const Adamw *a = static_cast<const Adamw *>(contract);
    const unsigned blocks = (unsigned)tensor_count(a->squares);
    double *squares = data_of<double>(a->squares);
    if (a->steps & ADAMW_SUM)
        PRIMITIVE (ctx, "gradient norm", OPTIMIZER, torch_call("aten::linalg_vector_norm"))
            TRY(LAUNCH_EARLY(ctx, sum_squares, blocks, NORM_THREADS, 0, data_of<float>(a->gradient), a->first,
                             tensor_count(a->gradient), squares));
    if (a->steps & ADAMW_CLIP)
        PRIMITIVE (ctx, "clip factor", OPTIMIZER, torch_call("aten::clamp")) {
            const Hyperparameters h = {a->beta1, a->beta2, a->weight_decay, a->clip};
            TRY(LAUNCH_EARLY(ctx, prepare_step, 1, NORM_THREADS, 0, squares, blocks, data_of<float>(a->loss),
                             h, data_of<float>(a->state)));
        }
    if (!(a->steps & ADAMW_APPLY)) return OK;
    return a->m.dtype == BF16 ? update<T, bf16>(ctx, a) : update<T, float>(ctx, a);
}
SLOT(ADAMW, UPDATE, CUDA, FUSED, F32, adamw_update_cuda_fused<float>);
SLOT(ADAMW, UPDATE, CUDA, FUSED, BF16, adamw_update_cuda_fused<bf16>);
