#include "optim/adamw.h"

#include "kernels/device/cuda.cuh"

/* Three launches over the flat parameter space, and the host never waits: partial sums of g^2; one block that
 * finishes the norm, judges it and works out the step's factors; the update itself. */
namespace {

constexpr int NORM_BLOCKS = 132 * 8; // a fixed number, so that the order of the sum is fixed
constexpr int NORM_THREADS = 512;
constexpr int UPDATE_THREADS = 256;
constexpr int WIDTH = 4; // elements a thread: 16 bytes of fp32

/* What the update needs of the step, made on the device. */
struct Step {
    float factor;  // of the gradient
    float decay;   // learning rate * weight decay
    float rate;    // learning rate / (1 - beta1^t)
    float root;    // 1 / sqrt(1 - beta2^t)
    float skipped; // not 0: leave everything alone
};

struct Hyperparameters {
    double beta1, beta2, weight_decay, clip;
};

struct Moments {
    float beta1, beta2, rest1, rest2; // rest = 1 - beta, rounded from fp64
    float eps;
};

/* Squares of four neighbours are summed in fp32, everything beyond in fp64: 124M terms lose nothing.
 * Floor: 4 * P bytes. */
__global__ void __launch_bounds__(NORM_THREADS)
    sum_squares(const float *gradient, int64_t count, double *partials) {
    let_next_start();
    const int64_t stride = (int64_t)gridDim.x * NORM_THREADS;
    const int64_t first = (int64_t)blockIdx.x * NORM_THREADS + threadIdx.x;
    double sum = 0;
#pragma unroll 4
    for (int64_t i = first; i < count / WIDTH; i += stride) {
        float g[WIDTH];
        load_floats<WIDTH>(gradient + i * WIDTH, g);
        sum += (double)(g[0] * g[0] + g[1] * g[1] + (g[2] * g[2] + g[3] * g[3]));
    }
    for (int64_t i = count / WIDTH * WIDTH + first; i < count; i += stride)
        sum += (double)gradient[i] * (double)gradient[i];
    sum = block_sum<NORM_THREADS>(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/* One block. Everything that depends on the step as a whole, once. */
__global__ void __launch_bounds__(NORM_THREADS)
    prepare_step(const double *partials, int blocks, const float *loss, const Hyperparameters h, float *state,
                 Step *step) {
    wait_for_previous();
    let_next_start();
    double sum = 0;
    for (int i = threadIdx.x; i < blocks; i += NORM_THREADS) sum += partials[i];
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
    step->factor = (float)factor;
    step->decay = (float)(rate * h.weight_decay);
    step->rate = (float)(rate / (1 - pow(h.beta1, updates)));
    step->root = (float)(1 / sqrt(1 - pow(h.beta2, updates)));
    step->skipped = skipped ? 1.f : 0.f;
}

template <typename T>
struct Parameters {
    T *weight;     // (P)
    float *master; // (P): weight itself where that is fp32
    const float *gradient;
    float *m, *v;
    int64_t count, decayed;
};

/* N elements from `first` on. */
template <typename T, int N>
__device__ __forceinline__ void update(const Parameters<T> &p, int64_t first, const Step &step,
                                       const Moments &c) {
    float g[N], m[N], v[N], w[N];
    load_floats<N>(p.gradient + first, g);
    load_floats<N>(p.m + first, m);
    load_floats<N>(p.v + first, v);
    load_floats<N>(p.master + first, w);
#pragma unroll
    for (int e = 0; e < N; e++) {
        g[e] *= step.factor;
        m[e] = c.beta1 * m[e] + c.rest1 * g[e];
        v[e] = c.beta2 * v[e] + c.rest2 * g[e] * g[e];
        if (first + e < p.decayed) w[e] -= step.decay * w[e];
        w[e] -= step.rate * m[e] / (sqrtf(v[e]) * step.root + c.eps);
    }
    store_floats<N>(p.m + first, m);
    store_floats<N>(p.v + first, v);
    store_floats<N>(p.master + first, w);
    if constexpr (sizeof(T) != sizeof(float)) store_floats<N>(p.weight + first, w);
}

/* Floor: read g, m, v, master, write m, v, master, weight: 28 * P bytes, and 2 * P more with bf16 weights. */
template <typename T>
__global__ void __launch_bounds__(UPDATE_THREADS)
    update_parameters(const Parameters<T> p, const Step *prepared, const Moments moments) {
    wait_for_previous();
    const Step step = *prepared;
    if (step.skipped != 0.f) return;
    const int64_t thread = (int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x, whole = p.count / WIDTH;
    if (thread < whole)
        update<T, WIDTH>(p, thread * WIDTH, step, moments);
    else if (whole * WIDTH + (thread - whole) < p.count)
        update<T, 1>(p, whole * WIDTH + (thread - whole), step, moments);
}

template <typename T>
Status update_all(Ctx *ctx, const Adamw *a) {
    const int64_t count = tensor_count(a->gradient);
    float *master = data_of<float>(tensor_empty(a->master) ? a->weight : a->master);
    const Parameters<T> p = {data_of<T>(a->weight),
                             master,
                             data_of<float>(a->gradient),
                             data_of<float>(a->m),
                             data_of<float>(a->v),
                             count,
                             a->decayed};
    const Hyperparameters h = {a->beta1, a->beta2, a->weight_decay, a->clip};
    const Moments moments = {(float)a->beta1, (float)a->beta2, (float)(1 - a->beta1), (float)(1 - a->beta2),
                             (float)a->eps};
    const int64_t needed = divide_up(count, (int64_t)WIDTH * NORM_THREADS);
    const int blocks = (int)(needed < NORM_BLOCKS ? needed : NORM_BLOCKS);

    Tensor partials, prepared;
    TRY(take(ctx, ARENA_SCRATCH, "adamw.partials", F64, shape1(NORM_BLOCKS), &partials));
    TRY(take(ctx, ARENA_SCRATCH, "adamw.step", F32, shape1(sizeof(Step) / sizeof(float)), &prepared));
    Step *step = data_of<Step>(prepared);
    PRIMITIVE (ctx, "gradient norm") {
        TRY(LAUNCH(ctx, sum_squares, blocks, NORM_THREADS, 0, p.gradient, count, data_of<double>(partials)));
        TRY(LAUNCH_EARLY(ctx, prepare_step, 1, NORM_THREADS, 0, data_of<double>(partials), blocks,
                         data_of<float>(a->loss), h, data_of<float>(a->state), step));
    }
    PRIMITIVE (ctx, "update") {
        const int64_t threads = count / WIDTH + count % WIDTH;
        TRY(LAUNCH_EARLY(ctx, update_parameters<T>, (unsigned)divide_up(threads, UPDATE_THREADS),
                         UPDATE_THREADS, 0, p, step, moments));
    }
    return OK;
}

} // namespace

template <class T>
static Status adamw_update_cuda_fused(Ctx *ctx, const void *contract) {
    return update_all<T>(ctx, (const Adamw *)contract);
}
SLOT(ADAMW, UPDATE, CUDA, FUSED, F32, adamw_update_cuda_fused<float>);
SLOT(ADAMW, UPDATE, CUDA, FUSED, BF16, adamw_update_cuda_fused<bf16>);
