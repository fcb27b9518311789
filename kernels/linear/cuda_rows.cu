#include "kernels/linear/cuda_fused.cuh"

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"

/* A warp computes a few outputs, each the dot product of a row of weights with every row of x. It prefetches
 * the first round of weights before the kernel that writes x has finished, because weights do not depend on
 * it. */
namespace {

constexpr int FEW = LINEAR_FEW_ROWS; // at most this many rows per block
constexpr int WARP = 32, WARPS = 4;
constexpr int MANY_OUTPUTS = 16384; // from this number on a warp computes more than one output, so that x is
                                    // read less often; and for many rows

template <typename T, typename Y>
struct Layer {
    const T *x, *weight, *bias; // (rows, in), (out, in), (out) or NULL
    const T *skip;              // (rows, out) or NULL
    T *pre;                     // (rows, out) or NULL
    Y *y;                       // (rows, out)
    int rows, in, out;
    Activation activation;
};

/* Floor: out * in * sizeof(T) bytes. ROUND 16-byte words of each row of weights are in flight at once. */
/* Anatomy. Parallel: over outputs, one or four per warp, and groups of up to 4 rows; lanes over the inputs.
 * Launch: groups x outputs / 4 or / 16 blocks of 32 x 4. Holds: 62 to 108 registers, no shared memory.
 * Occupancy: registers; 25 to 50% of the warps. Reads: 16 bytes per load, coalesced, 12 loads of weights in
 * flight before the wait; x from the caches. Syncs: warp shuffles only. Fusion: nothing left but the next
 * layer: bias, skip and activation are in it. */
template <typename T, typename Y, int ROWS, int OUTPUTS, int ROUND>
__global__ void __launch_bounds__(WARP *WARPS) multiply_rows(const Layer<T, Y> l) {
    constexpr int N = VECTOR<T>;
    const int lane = threadIdx.x, vectors = l.in / N;
    const int first = (blockIdx.y * WARPS + threadIdx.y) * OUTPUTS;
    const int64_t above = ROWS > 1 ? (int64_t)blockIdx.x * ROWS : 0; // rows of earlier groups
    const int rows = l.rows - (int)above;
    const T *const rows_of_x = l.x + above * l.in;
    float sum[OUTPUTS][ROWS] = {};
    for (int start = lane; start - lane < vectors; start += ROUND * WARP) {
        Words words[OUTPUTS][ROUND];
#pragma unroll
        for (int o = 0; o < OUTPUTS; o++)
#pragma unroll
            for (int i = 0; i < ROUND; i++) {
                const int v = start + i * WARP;
                words[o][i] = {};
                if (v < vectors && first + o < l.out)
                    words[o][i] = load_words(l.weight + (int64_t)(first + o) * l.in + v * N);
            }
        if (start == lane) {
            wait_for_previous();
            let_next_start();
        }
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            const int v = start + i * WARP;
            if (v >= vectors) break;
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                if (m >= rows) break;
                float x[N];
                unpack<T>(load_words(rows_of_x + (int64_t)m * l.in + v * N), x);
#pragma unroll
                for (int o = 0; o < OUTPUTS; o++) {
                    float w[N];
                    unpack<T>(words[o][i], w);
#pragma unroll
                    for (int e = 0; e < N; e++) sum[o][m] = fmaf(x[e], w[e], sum[o][m]);
                }
            }
        }
    }
#pragma unroll
    for (int o = 0; o < OUTPUTS; o++)
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            const float total = warp_sum(sum[o][m]);
            if (lane != o * ROWS + m || m >= rows || first + o >= l.out) continue;
            const int64_t at = (above + m) * l.out + first + o;
            float z = total + (l.bias ? to_float(l.bias[first + o]) : 0.f);
            if (l.skip) z += to_float(l.skip[at]);
            if (l.pre) l.pre[at] = from_float<T>(z);
            l.y[at] = from_float<Y>(activated_by(l.activation, z));
        }
}

template <typename T, typename Y, int ROWS>
Status launch(Ctx *ctx, const Layer<T, Y> &l) {
    constexpr int OUTPUTS = 4, ROUND = 12; // registers: 4 * ROUND, for one row of weights or for four
    const dim3 block(WARP, WARPS);
    const unsigned groups = (unsigned)divide_up(l.rows, ROWS);
    if (l.out >= MANY_OUTPUTS || groups > 1)
        return LAUNCH_EARLY(ctx, (multiply_rows<T, Y, ROWS, OUTPUTS, ROUND / OUTPUTS>),
                            dim3(groups, (unsigned)divide_up(l.out, WARPS * OUTPUTS)), block, 0, l);
    return LAUNCH_EARLY(ctx, (multiply_rows<T, Y, ROWS, 1, ROUND>),
                        dim3(groups, (unsigned)divide_up(l.out, WARPS)), block, 0, l);
}

template <typename T, typename Y>
Status multiply(Ctx *ctx, const LinearForward *l) {
    const Layer<T, Y> layer = {
        data_of<T>(l->x),       data_of<T>(l->weight),        data_of<T>(l->bias),
        data_of<T>(l->skip),    data_of<T>(l->pre),           data_of<Y>(l->y),
        (int)tensor_rows(l->x), (int)tensor_width(l->weight), (int)tensor_rows(l->weight),
        l->activation};
    return layer.rows == 1 ? launch<T, Y, 1>(ctx, layer) : launch<T, Y, FEW>(ctx, layer);
}

} // namespace

bool linear_rows_suit(const Ctx *ctx, const LinearForward *l) {
    const int64_t in = tensor_width(l->weight), out = tensor_rows(l->weight), most = INT32_MAX / 2;
    const int64_t rows = tensor_rows(l->x), most_outputs = 65535 * WARPS; // of a grid
    if (rows > FEW && !(ctx->fuses & FUSE_INVARIANT)) return false;
    return rows < most && in > 0 && in < most && out < 4 * most_outputs &&
           walks_in_packs(16 / (int)dtype_size(l->x.dtype), {in}, {l->x.data, l->weight.data});
}

Status linear_rows(Ctx *ctx, const LinearForward *l) {
    if (l->x.dtype == F32) return multiply<float, float>(ctx, l);
    return l->y.dtype == F32 ? multiply<bf16, float>(ctx, l) : multiply<bf16, bf16>(ctx, l);
}
