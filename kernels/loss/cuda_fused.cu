#include "kernels/loss/loss.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/gemm/gemm.h"

#include <math.h>

/* Logits exist for one chunk of rows at a time. Per chunk: the product; one kernel that computes each
 * row's loss and overwrites the row with its gradient; the two products of the backward pass. So
 * loss_backward has nothing left to do. Logits have the dtype of the computation, statistics are fp32. */
namespace {

/* A larger chunk updates dweight less often; a smaller one needs less memory. At CHUNK_LEAST rows, the
 * traffic of dweight takes an eighth of the time of the chunk's products. Short rows fill 512 MiB. */
constexpr int64_t CHUNK_BYTES = 512ll << 20, CHUNK_LEAST = 4096;
constexpr int64_t CHUNK_ROWS = 128; // chunks are a multiple of this: whole tiles of the products

constexpr int FEW_THREADS = 128, MANY_THREADS = 512; // threads per block, one block per row
constexpr int FEW_PACKS = 8 * FEW_THREADS;           // longer rows use MANY_THREADS
constexpr int BATCH = 4;                             // packs in flight per thread
constexpr int SUM_THREADS = 1024;
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); // relative error 2^-22
    return y;
}

template <typename T>
struct Rows {
    T *logits; // (rows, stride): the logits, then their gradient
    int64_t stride;
    const int32_t *targets; // (rows)
    float *losses;          // (rows)
    int vocab, columns;     // columns from vocab on are padding
    double factor;          // weight of one row's loss, before division by `count`
    const float *count;     // (1), or NULL
    const T *bias;          // (columns), or NULL
    float smoothing;

    __device__ __forceinline__ float scale() const {
        return (float)(!count ? factor : *count > 0.f ? factor / (double)*count : 0.);
    }
};

/* Running statistics of the logits x: the maximum `top`, and the sum of exp(x - top). The maximum is
 * subtracted before scaling to powers of 2; scaling first would leave a large logit's rounding error in
 * the loss. */
struct ExponentialSum {
    float top = -INFINITY, sum = 0.f;

    template <int N>
    __device__ __forceinline__ void add(const float (&x)[N]) {
        float largest = x[0];
#pragma unroll
        for (int e = 1; e < N; e++) largest = fmaxf(largest, x[e]);
        if (largest > top) {
            sum *= power_of_2((top - largest) * LOG2_E);
            top = largest;
        }
#pragma unroll
        for (int e = 0; e < N; e++) sum += power_of_2((x[e] - top) * LOG2_E);
    }
};

/* x += bias at the columns from `column` on */
template <typename T, int N>
__device__ __forceinline__ void add_bias(const Rows<T> &r, int64_t column, float (&x)[N]) {
    if (!r.bias) return;
    float bias[N];
    load_floats(r.bias + column, bias);
#pragma unroll
    for (int e = 0; e < N; e++) x[e] += bias[e];
}

template <typename T>
__device__ __forceinline__ float logit_at(const Rows<T> &r, const T *x, int column) {
    return to_float(x[column]) + (r.bias ? to_float(r.bias[column]) : 0.f);
}

/* Parameters of a row's gradient. */
struct Softmax {
    float top, log_sum; // log_sum: log2 of the sum of exp(x - top)

    __device__ __forceinline__ float operator()(float logit) const {
        return power_of_2(fmaf(logit - top, LOG2_E, -log_sum));
    }
};

/* Overwrites pack i of row x, whose words are given, with scale * (softmax - target). */
template <typename T>
__device__ __forceinline__ void write_pack(const Rows<T> &r, T *x, int i, const Words &words,
                                           const Softmax &softmax) {
    constexpr int WIDTH = VECTOR<T>;
    const float scale = r.scale(), everywhere = r.smoothing / (float)r.vocab; // the smoothed target
    float values[WIDTH];
    unpack<T>(words, values);
    add_bias(r, (int64_t)i * WIDTH, values);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) values[e] = scale * (softmax(values[e]) - everywhere);
    store_words(x + (int64_t)i * WIDTH, packed<T>(values));
}

/* The same for the elements after the last whole pack, and for the target. Thread `mine` of `threads`
 * writes only elements that it wrote before, so no barrier is needed. */
template <typename T>
__device__ __forceinline__ void write_ends(const Rows<T> &r, T *x, int mine, int threads, int target,
                                           float chosen, const Softmax &softmax) {
    constexpr int WIDTH = VECTOR<T>;
    const int whole = r.vocab / WIDTH;
    const float scale = r.scale(), everywhere = r.smoothing / (float)r.vocab;
    for (int c = whole * WIDTH + mine; c < r.columns; c += threads) {
        const float p = c < r.vocab ? softmax(logit_at(r, x, c)) - everywhere : 0.f;
        x[c] = from_float<T>(scale * p);
    }
    const int owner = target < whole * WIDTH ? target / WIDTH : target - whole * WIDTH;
    const float aim = 1.f - r.smoothing + everywhere;
    if (mine == owner % threads) x[target] = from_float<T>(scale * (softmax(chosen) - aim));
}

/* A row's loss; `mean` is the mean of its logits. */
template <typename T>
__device__ __forceinline__ float loss_of(const Rows<T> &r, const Softmax &softmax, float chosen, float mean) {
    return softmax.top - chosen + softmax.log_sum * LN_2 + r.smoothing * (chosen - mean);
}

/* Adds a pack to the exponentials and, if needed, to the sum of the logits. */
template <typename T>
__device__ __forceinline__ void add_pack(const Rows<T> &r, int i, const Words &words,
                                         ExponentialSum &exponentials, float &logits) {
    constexpr int WIDTH = VECTOR<T>;
    float values[WIDTH];
    unpack<T>(words, values);
    add_bias(r, (int64_t)i * WIDTH, values);
    exponentials.add(values);
    if (r.smoothing > 0.f)
#pragma unroll
        for (int e = 0; e < WIDTH; e++) logits += values[e];
}

/* Adds the elements after the last whole pack. */
template <typename T>
__device__ __forceinline__ void add_end(const Rows<T> &r, const T *x, int mine, int threads,
                                        ExponentialSum &exponentials, float &logits) {
    for (int c = r.vocab / VECTOR<T> * VECTOR<T> + mine; c < r.vocab; c += threads) {
        const float logit = logit_at(r, x, c);
        exponentials.add({logit});
        logits += logit;
    }
}

/* Adds this thread's packs of [first, end), every THREADS-th with BATCH in flight, to `exponentials` and,
 * if needed, to the sum of the logits. */
template <typename T, int THREADS>
__device__ __forceinline__ void add_packs(const Rows<T> &r, const Words *from, int first, int end,
                                          ExponentialSum &exponentials, float &logits) {
    for (int start = first + (int)threadIdx.x; start < end; start += BATCH * THREADS) {
        Words words[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (start + b * THREADS < end) words[b] = from[start + b * THREADS];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (start + b * THREADS < end) add_pack(r, start + b * THREADS, words[b], exponentials, logits);
        }
    }
}

/* Starts the copies of these packs to shared memory. */
template <int THREADS>
__device__ __forceinline__ void copy_packs(Words *to, const Words *from, int first, int end) {
    for (int i = first + (int)threadIdx.x; i < end; i += THREADS) gpu::copy_async_16(to + i, from + i, true);
    gpu::copy_async_commit();
}

/* A block computes the loss of a row of logits and, with GRADIENT, overwrites the row with scale * (softmax -
 * target). CACHED copies the whole row to shared memory asynchronously, so it is read once; of two blocks per
 * multiprocessor, one computes while the other's row arrives. A thread reads only its own copies, so no
 * barrier is needed. Floor: rows * columns * sizeof(T) bytes read, and as many written with GRADIENT. */
/* Anatomy. Parallel: over rows of logits, a block each. Launch: rows blocks of 128, or of 512 for rows over
 * 1024 packs. Holds: 44 to 55 registers, in training the row in shared memory where it fits. Occupancy:
 * shared memory in training, where two of GPT-2's rows fit a multiprocessor; else its bounds, 1024 threads.
 * Reads: 16 bytes per load, coalesced, each row once; in training by asynchronous copies. Syncs: the sums'
 * barriers, two each. Fusion: with the logits' product, tile by tile, at the price of a second pass for the
 * gradient. */
template <typename T, int THREADS, bool GRADIENT, bool CACHED>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) softmax_rows(const Rows<T> r) {
    constexpr int WIDTH = VECTOR<T>;
    extern __shared__ Words cache[]; // (whole) if CACHED
    T *x = r.logits + blockIdx.x * r.stride;
    const int target = r.targets[blockIdx.x], whole = r.vocab / WIDTH;
    if (target < 0) { // ignored: no loss, no gradient
        if (threadIdx.x == 0) r.losses[blockIdx.x] = 0.f;
        if constexpr (GRADIENT)
            for (int c = threadIdx.x; c < r.columns; c += THREADS) x[c] = from_float<T>(0.f);
        return;
    }

    ExponentialSum mine;
    float logits = 0.f; // the sum of the logits
    const Words *const packs = reinterpret_cast<const Words *>(x);
    if constexpr (CACHED) {
        // processes the first half while the second is in flight
        const int half = (int)divide_up(whole, 2 * THREADS) * THREADS;
        copy_packs<THREADS>(cache, packs, 0, half < whole ? half : whole);
        copy_packs<THREADS>(cache, packs, half, whole);
        gpu::copy_async_wait_group<1>();
        add_packs<T, THREADS>(r, cache, 0, half < whole ? half : whole, mine, logits);
        gpu::copy_async_wait_group<0>();
        add_packs<T, THREADS>(r, cache, half, whole, mine, logits);
    } else {
        add_packs<T, THREADS>(r, packs, 0, whole, mine, logits);
    }
    add_end(r, x, threadIdx.x, THREADS, mine, logits);
    const float chosen = logit_at(r, x, target); // read before any thread overwrites it
    const float top = block_max<THREADS>(mine.top);
    const float sum = block_sum<THREADS>(mine.sum * power_of_2((mine.top - top) * LOG2_E));
    const float mean = r.smoothing > 0.f ? block_sum<THREADS>(logits) / (float)r.vocab : chosen;
    const Softmax softmax = {top, log2f(sum)};
    if (threadIdx.x == 0) r.losses[blockIdx.x] = loss_of(r, softmax, chosen, mean);
    if constexpr (GRADIENT) {
#pragma unroll 4
        for (int i = threadIdx.x; i < whole; i += THREADS)
            write_pack(r, x, i, CACHED ? cache[i] : load_words(x + (int64_t)i * WIDTH), softmax);
        write_ends(r, x, threadIdx.x, THREADS, target, chosen, softmax);
    }
}

/* loss[0] += scale * sum of losses, in one block for a fixed order. */
/* Anatomy. Parallel: over rows. Launch: one block of 1024. Holds: 24 registers, 128 bytes shared. Occupancy:
 * one block: its latency counts. Reads: 4 bytes a thread, coalesced, 4 in flight. Syncs: two barriers of the
 * block in the sum. Fusion: with softmax_rows, by the last block to finish. */
__global__ void __launch_bounds__(SUM_THREADS)
    add_losses(const float *losses, int64_t rows, double factor, const float *count, float *loss) {
    const float scale = (float)(!count ? factor : *count > 0.f ? factor / (double)*count : 0.);
    float sum = 0.f;
#pragma unroll 4
    for (int64_t n = threadIdx.x; n < rows; n += SUM_THREADS) sum += losses[n];
    sum = block_sum<SUM_THREADS>(sum);
    if (threadIdx.x == 0) loss[0] += scale * sum;
}

template <typename T, int THREADS>
Status launch_rows(Ctx *ctx, const Rows<T> &r, int64_t rows) {
    const size_t row_bytes = (size_t)(r.vocab / VECTOR<T>)*sizeof(Words),
                 own = 1024; // own: bytes of the reductions' scratch
    if (!ctx->training)
        return LAUNCH(ctx, (softmax_rows<T, THREADS, false, false>), (unsigned)rows, THREADS, 0, r);
    if (row_bytes + own > cuda_device(ctx)->shared_bytes)
        return LAUNCH(ctx, (softmax_rows<T, THREADS, true, false>), (unsigned)rows, THREADS, 0, r);
    return LAUNCH(ctx, (softmax_rows<T, THREADS, true, true>), (unsigned)rows, THREADS, row_bytes, r);
}

/* Rows of a tensor from `first` on. */
Tensor rows_from(Tensor t, int64_t first, int64_t count) {
    t.data = (char *)t.data + (size_t)(first * t.stride) * dtype_size(t.dtype);
    t.shape = shape2(count, tensor_width(t));
    return t;
}

int64_t most_rows(int64_t row_bytes) {
    const int64_t most = CHUNK_BYTES / row_bytes / CHUNK_ROWS * CHUNK_ROWS;
    return most < CHUNK_LEAST ? CHUNK_LEAST : most;
}

int64_t chunk_rows(int64_t rows, int64_t most) {
    if (rows <= most) return rows;
    const int64_t even = divide_up(rows, divide_up(rows, most)); // chunks of nearly equal size
    return divide_up(even, CHUNK_ROWS) * CHUNK_ROWS;
}

/* The head's padding rows take part in the products, to keep their shapes whole tiles. Their logits are
 * not read, and their gradients are zero. */
template <typename T>
Status chunk(Ctx *ctx, const Loss *l, Tensor logits, int64_t first) {
    const int64_t rows = tensor_rows(logits);
    const Tensor hidden = rows_from(l->hidden, first, rows);
    const Rows<T> r = {data_of<T>(logits),
                       logits.stride,
                       data_of<const int32_t>(l->targets) + first,
                       data_of<float>(l->losses) + first,
                       (int)l->vocab,
                       (int)tensor_rows(l->weight),
                       l->scale,
                       data_of<const float>(l->count),
                       data_of<const T>(l->bias),
                       (float)l->smoothing};
    PRIMITIVE (ctx, "logits product", MATRIX, torch_call("aten::mm")) {
        const Gemm product = gemm_forward(hidden, l->weight, logits, 0);
        TRY(gemm(ctx, &product));
    }
    PRIMITIVE_OF (ctx, ctx->pass, "softmax cross-entropy", CATEGORY_LOSS, ARITHMETIC_SOFTMAX) {
        if (r.vocab <= FEW_PACKS * VECTOR<T>)
            TRY((launch_rows<T, FEW_THREADS>(ctx, r, rows)));
        else
            TRY((launch_rows<T, MANY_THREADS>(ctx, r, rows)));
    }
    if (!ctx->training) return OK;
    if (!tensor_empty(l->dbias)) {
        Tensor partials;
        TRY(columns_take(ctx, logits, &partials));
        PRIMITIVE_OF (ctx, PASS_BACKWARD, "bias gradient", CATEGORY_LOSS, ARITHMETIC_PLAIN)
            TRY(columns_add(ctx, logits, partials, l->dbias));
    }
    PRIMITIVE_OF (ctx, PASS_BACKWARD, "hidden gradient", CATEGORY_MATRIX, ARITHMETIC_PLAIN,
                  torch_call("aten::mm")) {
        const Gemm product = gemm_dinput(logits, l->weight, rows_from(l->dhidden, first, rows), 0);
        TRY(gemm(ctx, &product));
    }
    PRIMITIVE_OF (ctx, PASS_BACKWARD, "weight gradient", CATEGORY_MATRIX, ARITHMETIC_PLAIN,
                  torch_call("aten::mm")) {
        const Gemm product = gemm_dweight(logits, hidden, l->dweight, 1);
        TRY(gemm(ctx, &product));
    }
    return OK;
}

template <typename T>
Status forward(Ctx *ctx, const Loss *l) {
    const int64_t rows = tensor_rows(l->hidden), columns = tensor_rows(l->weight);
    const int64_t stride = divide_up(columns, VECTOR<T>) * VECTOR<T>; // rows start at 16-byte addresses
    const int64_t most = most_rows(stride * (int64_t)sizeof(T)), size = chunk_rows(rows, most);
    const int64_t room = rows < most ? rows : most; // a shorter batch needs a single, possibly larger chunk
    Tensor logits;                                  // (room, columns)
    TRY(take(ctx, ARENA_SCRATCH, "loss.logits", DtypeOf<T>::value, shape2(room, stride), &logits));
    for (int64_t first = 0; first < rows; first += size) {
        const int64_t count = rows - first < size ? rows - first : size;
        logits.shape = shape2(count, columns);
        TRY(chunk<T>(ctx, l, logits, first));
    }
    PRIMITIVE (ctx, "sum", LOSS) {
        TRY(LAUNCH(ctx, add_losses, 1, SUM_THREADS, 0, data_of<float>(l->losses), rows, l->scale,
                   data_of<const float>(l->count), data_of<float>(l->loss)));
    }
    return OK;
}

} // namespace

template <class T>
static Status loss_forward_cuda_fused(Ctx *ctx, const void *contract) {
    return forward<T>(ctx, (const Loss *)contract);
}
SLOT(LOSS, FORWARD, CUDA, FUSED, F32, loss_forward_cuda_fused<float>);
SLOT(LOSS, FORWARD, CUDA, FUSED, BF16, loss_forward_cuda_fused<bf16>);

/* The forward pass has written dhidden and added to dweight. */
static Status loss_backward_cuda_fused(Ctx *, const void *) {
    return OK;
}
SLOT(LOSS, BACKWARD, CUDA, FUSED, F32, loss_backward_cuda_fused);
SLOT(LOSS, BACKWARD, CUDA, FUSED, BF16, loss_backward_cuda_fused);
