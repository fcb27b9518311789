#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/norm/cuda_row.cuh"

namespace decode {
namespace {

constexpr int WARP = 32;

/* Loads ROUND words of 16 bytes: `start`, start + WARP, ... of a row; beyond its end they are zero. */
template <int ROUND>
__device__ inline void load_round(const float *row, int start, int vectors, Words (&words)[ROUND]) {
#pragma unroll
    for (int i = 0; i < ROUND; i++) {
        const int v = start + i * WARP;
        words[i] = {};
        if (v < vectors) words[i] = load_words(row + v * VECTOR<float>);
    }
}

/* A sum in CHAINS parts (a power of 2), so that an addition need not wait for the one before it. */
template <int CHAINS>
struct SplitSum {
    float parts[CHAINS] = {};

    __device__ void add(int e, float a, float b) { parts[e % CHAINS] = fmaf(a, b, parts[e % CHAINS]); }
    __device__ float all() const {
        float sums[CHAINS];
#pragma unroll
        for (int i = 0; i < CHAINS; i++) sums[i] = parts[i];
#pragma unroll
        for (int half = CHAINS / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; i++) sums[i] += sums[i + half];
        return sums[0];
    }
};

__device__ inline float mean_of(const float *x, int in, float inverse) {
    constexpr int N = VECTOR<float>, ROUND = 4;
    const int lane = threadIdx.x % WARP, vectors = in / N;
    SplitSum<4> sum;
    for (int start = lane; start - lane < vectors; start += ROUND * WARP) {
        Words words[ROUND];
        load_round(x, start, vectors, words);
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            float values[N];
            unpack<float>(words[i], values);
#pragma unroll
            for (int e = 0; e < N; e++) sum.add(e, values[e], 1.f);
        }
    }
    return warp_sum(sum.all()) * inverse;
}

/* Writes norm(x), which is the stream after a branch with the norm after it. */
__device__ inline void keep(const Product<float> &p, float mean, float rstd) {
    constexpr int N = VECTOR<float>;
    for (int v = threadIdx.x % WARP; v < p.in / N; v += WARP) {
        float x[N], weight[N], bias[N];
        load_floats<N>(p.x + v * N, x);
        load_floats<N>(p.norm + v * N, weight);
        load_floats<N>(p.norm_bias + v * N, bias);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = fmaf((x[e] - mean) * rstd, weight[e], bias[e]);
        store_floats(p.kept + v * N, x);
    }
}

/* Floor: out * in * sizeof(float) bytes. A warp has ROWS rows of weights, or with GATED the two of a unit; of
 * each row, ROUND words per lane are in flight. */
/* Anatomy. Parallel: over outputs, 1, 2 or 4 rows of weights per warp; lanes over the inputs. Launch: outputs
 * / (rows of a block) blocks of 128 or 256. Holds: 52 to 122 registers, no shared memory. Occupancy:
 * registers; 25 to 56% of the warps. Reads: 16 bytes per load, coalesced, 4 or 8 of each row in flight before
 * the wait; x from the caches. Syncs: warp shuffles only. Fusion: the next product, by a barrier of the grid.
 */
template <int WARPS, int ROWS, int ROUND, Norming NORM, bool GATED>
__global__ void __launch_bounds__(WARP *WARPS, NORM == LAYER ? 16 / WARPS : 0)
    product_kernel(const __grid_constant__ Product<float> p) {
    constexpr int N = VECTOR<float>, CHAINS = 4 / ROWS;
    const int lane = threadIdx.x % WARP, vectors = p.in / N;
    const int first = (int(blockIdx.x) * WARPS + int(threadIdx.x) / WARP) * (GATED ? 1 : ROWS);
    const int stride = GATED ? p.out : 1, last = (GATED ? 2 : 1) * p.out - 1;
    const float *rows[ROWS];
    Words weights[ROWS][ROUND], norms[ROUND], norm_biases[ROUND];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        rows[r] = p.weight + int64_t(min(first + r * stride, last)) * p.in;
        load_round(rows[r], lane, vectors, weights[r]);
    }
    if (NORM) load_round(p.norm, lane, vectors, norms);
    if (NORM == LAYER) load_round(p.norm_bias, lane, vectors, norm_biases);
    const int own = first + lane * stride; // the row whose bias and skip this lane adds
    const bool adds = lane < ROWS && own <= last;
    const float bias = adds && p.bias ? p.bias[own] : 0.f;
    if (!p.last_to_start()) let_next_start();

    float shifts[ROWS] = {}; // sums of w b
    const auto add_shifts = [&] {
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            float b[N], w[N];
            unpack<float>(norm_biases[i], b);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                unpack<float>(weights[r][i], w);
#pragma unroll
                for (int e = 0; e < N; e++) shifts[r] = fmaf(w[e], b[e], shifts[r]);
            }
        }
    };
    if (NORM == LAYER) add_shifts();
    wait_for_previous();
    if (p.last_to_start()) let_next_start();
    const float skip = !GATED && adds && p.skip ? p.skip[own] : 0.f;
    Words columns[ROUND];
    load_round(p.x, lane, vectors, columns); // inside the loop it would be slower
    const float mean = NORM == LAYER ? mean_of(p.x, p.in, p.inverse) : 0.f;
    SplitSum<CHAINS> sums[ROWS];
    SplitSum<2> squares;
    for (int start = lane; start - lane < vectors; start += ROUND * WARP) {
        if (start != lane) {
            load_round(p.x, start, vectors, columns);
#pragma unroll
            for (int r = 0; r < ROWS; r++) load_round(rows[r], start, vectors, weights[r]);
            if (NORM) load_round(p.norm, start, vectors, norms);
            if (NORM == LAYER) load_round(p.norm_bias, start, vectors, norm_biases);
            if (NORM == LAYER) add_shifts();
        }
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            float values[N], factors[N];
            if (start - lane + i * WARP >= vectors) break;
            unpack<float>(columns[i], values);
            if (NORM) {
                const bool inside = NORM == RMS || start + i * WARP < vectors;
                unpack<float>(norms[i], factors);
#pragma unroll
                for (int e = 0; e < N; e++) {
                    const float off = inside ? values[e] - mean : 0.f;
                    squares.add(e, off, off);
                    values[e] = off * factors[e];
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                unpack<float>(weights[r][i], factors);
#pragma unroll
                for (int e = 0; e < N; e++) sums[r].add(e, values[e], factors[e]);
            }
        }
    }
    const float rstd = NORM ? norm_row::rstd_of(warp_sum(squares.all()), p.inverse, p.eps) : 1.f;
    float sum = 0.f, shift = bias; // of the lane's own row
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float of_row = warp_sum(sums[r].all());
        sum = lane == r ? of_row : sum;
        if (NORM != LAYER) continue;
        const float of_bias = warp_sum(shifts[r]);
        shift += lane == r ? of_bias : 0.f;
    }
    float y = fmaf(sum, rstd, shift);
    if constexpr (GATED) {
        const float up = __shfl_sync(~0u, y, 1);
        if (lane == 0 && first < p.out) p.y[first] = silu(y) * up;
    } else if (adds) {
        y = activated_by(p.activation, y) + skip;
        if (p.logits)
            p.logits[own] = y;
        else
            p.y[own] = y;
    }
    if (NORM == LAYER && p.kept && blockIdx.x == 0 && threadIdx.x < WARP) keep(p, mean, rstd);
}

template <int WARPS, int ROWS, int ROUND, Norming NORM, bool GATED = false>
Status launch(Ctx *ctx, const Product<float> &p) {
    const unsigned blocks = unsigned(divide_up(p.out, WARPS * (GATED ? 1 : ROWS)));
    return LAUNCH_EARLY(ctx, (product_kernel<WARPS, ROWS, ROUND, NORM, GATED>), blocks, WARP * WARPS, 0, p);
}

/* A long row is in fewer rounds if more of it is in flight, for which one row per warp leaves registers. */
template <int WARPS, int ROWS>
Status launch_rows(Ctx *ctx, const Product<float> &p) {
    if (p.norm_bias) return launch<WARPS, ROWS, 4, LAYER>(ctx, p);
    if (p.norm) return launch<WARPS, ROWS, 4, RMS>(ctx, p);
    if constexpr (ROWS == 1)
        if (p.in > 4 * WARP * VECTOR<float>) return launch<WARPS, ROWS, 8, PLAIN>(ctx, p);
    return launch<WARPS, ROWS, 4, PLAIN>(ctx, p);
}

/* Selects the rows per warp: more rows read x less often, fewer rows keep more warps busy. */
template <int WARPS>
Status choose_rows(Ctx *ctx, const Product<float> &p, bool gated) {
    constexpr int WARPS_EACH = 8; // minimum of warps per multiprocessor
    const int least = cuda_device(ctx)->multiprocessors * WARPS_EACH;
    if (gated) return launch<WARPS, 2, 4, RMS, true>(ctx, p);
    if (p.out >= 16 * least && !p.norm) return launch<WARPS, 4, 4, PLAIN>(ctx, p);
    return p.out >= 2 * least ? launch_rows<WARPS, 2>(ctx, p) : launch_rows<WARPS, 1>(ctx, p);
}

constexpr int EMBEDDED = 256; // columns of a block

/* Floor: the latency of three loads. */
/* Anatomy. Parallel: over columns. Launch: width / 256 blocks of 256. Holds: 16 registers, no shared memory.
 * Occupancy: a few warps: its latency counts. Reads: 2 or 4 bytes per load, coalesced. Syncs: none. Fusion:
 * the drawing of the token before it. */
template <class T>
__global__ void __launch_bounds__(EMBEDDED) embed_kernel(const __grid_constant__ Embed<T> e) {
    let_next_start();
    wait_for_previous();
    const int column = int(blockIdx.x) * EMBEDDED + int(threadIdx.x);
    if (column >= e.width) return;
    float r = __fmul_rn(e.token_scale, to_float(e.token[int64_t(*e.id) * e.width + column]));
    if (e.position) r += to_float(e.position[int64_t(e.past ? *e.past : e.rows) * e.width + column]);
    e.r[column] = from_float<T>(r);
}

template <class T>
Status launch_embed(Ctx *ctx, const Embed<T> &e) {
    const unsigned blocks = unsigned(divide_up(e.width, EMBEDDED));
    return LAUNCH_EARLY(ctx, (embed_kernel<T>), blocks, EMBEDDED, 0, e);
}

} // namespace

Status embed(Ctx *ctx, const Embed<float> &e) {
    return launch_embed(ctx, e);
}
Status embed(Ctx *ctx, const Embed<bf16> &e) {
    return launch_embed(ctx, e);
}

/* A small matrix takes fewer, larger blocks, which are sooner launched. */
Status product(Ctx *ctx, const Product<float> &p, bool gated) {
    constexpr int64_t SMALL = 5 << 20; // bytes
    if (p.codes) return product_by_groups(ctx, p, gated);
    if (int64_t(p.in) * p.out * (gated ? 2 : 1) * int64_t(sizeof(float)) < SMALL)
        return choose_rows<8>(ctx, p, gated);
    return choose_rows<4>(ctx, p, gated);
}
Status product(Ctx *ctx, const Product<bf16> &p, bool gated) {
    return p.codes ? product_by_groups(ctx, p, gated) : product_in_order(ctx, p, gated);
}

} // namespace decode
