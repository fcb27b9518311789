#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"

namespace decode {
namespace {

constexpr int WARP = 32, WARPS = 4;

/* A warp's rows of weights: `of_warp` rows from `first` on, `stride` rows apart. */
template <int ROWS, bool GATED>
struct Share {
    int first, stride;

    __device__ explicit Share(int out)
        : first((int(blockIdx.x) * WARPS + int(threadIdx.x) / WARP) * (GATED ? 1 : ROWS)),
          stride(GATED ? out : 1) {}
};

/* Loads ROUND words of 16 bytes: `start`, start + WARP, ... of a row; beyond its end they are zero. */
template <class T, int ROUND>
__device__ inline void load_round(const T *row, int start, int vectors, Words (&words)[ROUND]) {
#pragma unroll
    for (int i = 0; i < ROUND; i++) {
        const int v = start + i * WARP;
        words[i] = {};
        if (v < vectors) words[i] = load_words(row + v * VECTOR<T>);
    }
}

/* Floor: out * in * sizeof(T) bytes. ROWS rows of weights per warp, two per unit if GATED; of each row, ROUND
 * words per lane are in flight. */
/* Anatomy. Parallel: over outputs, 1, 2 or 4 rows of weights per warp; lanes over the inputs. Launch: outputs
 * / (4 x rows of a warp) blocks of 128. Holds: 44 to 128 registers, no shared memory. Occupancy: registers;
 * 25 to 62% of the warps. Reads: 16 bytes per load, coalesced, 4 or 8 of each row in flight before the wait;
 * x from the caches. Syncs: warp shuffles only. Fusion: the next product, by a barrier of the grid. */
template <class T, int ROWS, int ROUND, bool NORM, bool GATED>
__global__ void __launch_bounds__(WARP *WARPS) product_kernel(const __grid_constant__ Product<T> p) {
    constexpr int N = VECTOR<T>;
    const Share<ROWS, GATED> share(p.out);
    const int lane = threadIdx.x % WARP, vectors = p.in / N, last = (GATED ? 2 : 1) * p.out - 1;
    const T *rows[ROWS];
    Words weights[ROWS][ROUND], norms[ROUND];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        rows[r] = p.weight + int64_t(min(share.first + r * share.stride, last)) * p.in;
        load_round(rows[r], lane, vectors, weights[r]);
    }
    if (NORM) load_round(p.norm, lane, vectors, norms);
    const int own = share.first + lane * share.stride; // the row whose bias and skip this lane adds
    const bool adds = lane < ROWS && own <= last;
    float added = adds && p.bias ? to_float(p.bias[own]) : 0.f;
    const bool inside = !p.id && !p.logits; // neither the first nor the last kernel of the token
    if (inside) let_next_start();
    wait_for_previous();
    if (!inside) let_next_start();
    const T *const x = p.x + (p.id ? int64_t(*p.id) * p.in : 0);
    if (!GATED && adds && p.skip)
        added += to_float(p.skip[(p.skip_id ? int64_t(*p.skip_id) * p.out : 0) + own]);
    float sums[ROWS] = {}, squares = 0.f;
    for (int start = lane; start - lane < vectors; start += ROUND * WARP) {
        Words columns[ROUND];
        load_round(x, start, vectors, columns);
        if (start != lane) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) load_round(rows[r], start, vectors, weights[r]);
            if (NORM) load_round(p.norm, start, vectors, norms);
        }
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            float values[N], factors[N];
            unpack<T>(columns[i], values);
            if (NORM) {
                unpack<T>(norms[i], factors);
#pragma unroll
                for (int e = 0; e < N; e++) {
                    squares = fmaf(values[e], values[e], squares);
                    values[e] *= factors[e];
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                unpack<T>(weights[r][i], factors);
#pragma unroll
                for (int e = 0; e < N; e++) sums[r] = fmaf(values[e], factors[e], sums[r]);
            }
        }
    }
    const float rstd = NORM ? rsqrtf(warp_sum(squares) / float(p.in) + p.eps) : 1.f;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float sum = warp_sum(sums[r]);
        sums[0] = lane == r ? sum : sums[0];
    }
    const float y = fmaf(sums[0], rstd, added);
    if constexpr (GATED) {
        const float gate = to_float(from_float<T>(y)), up = __shfl_sync(~0u, gate, 1);
        if (lane == 0 && share.first < p.out) p.y[share.first] = from_float<T>(silu(gate) * up);
    } else if (adds) {
        if (p.logits)
            p.logits[own] = y;
        else
            p.y[own] = from_float<T>(y);
    }
}

template <class T, int ROWS, int ROUND, bool GATED>
Status launch_as(Ctx *ctx, const Product<T> &p) {
    const unsigned blocks = unsigned(divide_up(p.out, WARPS * (GATED ? 1 : ROWS)));
    if (p.norm)
        return LAUNCH_EARLY(ctx, (product_kernel<T, ROWS, 4, true, GATED>), blocks, WARP * WARPS, 0, p);
    return LAUNCH_EARLY(ctx, (product_kernel<T, ROWS, ROUND, false, GATED>), blocks, WARP * WARPS, 0, p);
}

/* A longer row is in fewer rounds if more of it is in flight, for which one row per warp leaves registers. */
template <class T, int ROWS, bool GATED>
Status launch(Ctx *ctx, const Product<T> &p) {
    constexpr int WIDER = ROWS == 1 ? 8 : 4;
    if (p.in > 4 * WARP * VECTOR<T>) return launch_as<T, ROWS, WIDER, GATED>(ctx, p);
    return launch_as<T, ROWS, 4, GATED>(ctx, p);
}

/* Selects the rows per warp: more rows read x less often, fewer rows keep more warps busy. */
template <class T>
Status choose(Ctx *ctx, const Product<T> &p, bool gated) {
    constexpr int WARPS_EACH = 8; // minimum of warps per multiprocessor
    const int least = cuda_device(ctx)->multiprocessors * WARPS_EACH;
    if (gated) return launch<T, 2, true>(ctx, p);
    if (p.out >= 16 * least) return launch<T, 4, false>(ctx, p);
    return p.out >= 2 * least ? launch<T, 2, false>(ctx, p) : launch<T, 1, false>(ctx, p);
}

} // namespace

Status product(Ctx *ctx, const Product<float> &p, bool gated) {
    return p.codes ? product_by_groups(ctx, p, gated) : choose(ctx, p, gated);
}
Status product(Ctx *ctx, const Product<bf16> &p, bool gated) {
    return p.codes ? product_by_groups(ctx, p, gated) : choose(ctx, p, gated);
}

} // namespace decode
