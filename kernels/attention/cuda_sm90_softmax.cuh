/* cuda_sm90_softmax: the online softmaxes of Hopper's forward kernel (cuda_sm90_forward.cu), which differ in
 * the order of sums. */
#pragma once

#include "kernels/attention/cuda_order.cuh"
#include "kernels/cuda/reduce.cuh"

namespace attention {
namespace hopper_forward {

using namespace gpu;

template <int N>
__device__ inline void scale_rows(float (&o)[N][4], const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[n][i] *= factor[i / 2];
}

/* Online softmax of the query rows g and g + 8 of a warp that this thread holds. Until the end `sum` covers
 * only this thread's columns. The base that is subtracted from scores is updated only when it is GROWTH
 * powers of two below the maximum: exponentials stay below 2^GROWTH, and most steps need no rescaling (Dao
 * 2025, FlashAttention-4). */
template <int COLUMNS>
struct Softmax {
    typedef float Output[COLUMNS / 8][4];
    static constexpr float GROWTH = 8.0f;
    static constexpr bool ADDS = true; // whether a product is added to its target
    float base[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, correction[2];
    bool rescaled; // for the whole warp: the output before this step must be multiplied by `correction`

    /* Replaces scores by 2^(score * scale - base). Maxima and sums run in two independent chains, to hide
     * latency. */
    template <int N>
    __device__ inline void step(float (&s)[N][4], float scale) {
        float largest[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
            for (int n = 0; n < N; n++)
                most[n % 2] = fmaxf(most[n % 2], fmaxf(s[n][2 * half], s[n][2 * half + 1]));
            const float top = fmaxf(most[0], most[1]);
            largest[half] = quad_max(top) * scale;
        }
        const bool behind = largest[0] > base[0] + GROWTH || largest[1] > base[1] + GROWTH;
        rescaled = __any_sync(~0u, behind);
        if (rescaled) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float higher = fmaxf(base[half], largest[half]);
                correction[half] = higher == -INFINITY ? 1.0f : power_of_two(base[half] - higher);
                sum[half] *= correction[half];
                base[half] = higher;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // a row that has seen no key has base -inf, and all its exponentials must be 0
            const float off = base[half] == -INFINITY ? 0.0f : base[half];
            float total[2] = {sum[half], 0.0f};
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &score = s[n][2 * half + i];
                    score = power_of_two(score * scale - off);
                    total[i] += score;
                }
            sum[half] = total[0] + total[1];
        }
    }
    /* The accumulators of a product with the values. When it has completed, the output must be settled:
     * before the next step's product, or after the last. */
    __device__ inline Output &target(Output &o) {
        return o;
    }
    __device__ inline void settle(Output &o) {
        if (rescaled) scale_rows(o, correction);
    }
    __device__ inline void settle_last(Output &) {}
};

/* The same in the order of cuda_order.cuh: a tile's sums begin at 0, and are merged with those before. */
template <int COLUMNS>
struct OrderedSoftmax {
    typedef float Output[COLUMNS / 8][4];
    static constexpr bool ADDS = false;
    float base[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}; // of the merged tiles
    float of_tile[2][2], of_step[2][2]; // base and sum of the tile that is multiplied, and of the last step's
    Output product;                     // of the tile that is multiplied

    template <int N>
    __device__ inline void step(float (&s)[N][4], float scale) {
        static_assert(8 * N == ORDER_KEYS, "a tile");
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float maximum = -INFINITY;
#pragma unroll
            for (int n = 0; n < N; n++) maximum = fmaxf(maximum, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
            const float tile_base = base_of(quad_max(maximum), scale);
            float tile_sum = 0.0f;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++)
                    s[n][i] = probability(s[n][i], scale, tile_base);
#pragma unroll
            for (int first = 0; first < N; first += N / 4) tile_sum += quarter_sum(s, first, N / 4, half);
            of_tile[half][0] = of_step[half][0], of_tile[half][1] = of_step[half][1];
            of_step[half][0] = tile_base, of_step[half][1] = tile_sum;
        }
    }
    __device__ inline Output &target(Output &) {
        return product;
    }
    __device__ inline void settle(Output &o) {
        merge(o, of_tile);
    }
    __device__ inline void settle_last(Output &o) {
        merge(o, of_step);
    }
    __device__ inline void merge(Output &o, const float (&tile)[2][2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Merge both(base[half], tile[half][0]);
            sum[half] = both(sum[half], tile[half][1]);
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) o[n][i] = both(o[n][i], product[n][i]);
        }
    }
};

} // namespace hopper_forward
} // namespace attention
