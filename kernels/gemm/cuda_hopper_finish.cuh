/* cuda_hopper_finish: the epilogue of a tile, run by the four warps that hold it in registers. bf16 results
 * are stored through shared memory: a warp writes 16 rows of 64 columns, and TMA stores them, clipped at C's
 * edges, while the warp continues. */
#pragma once

#include "kernels/gemm/cuda_hopper_tile.cuh"

namespace hopper_gemm {

/* gelu(z) = z s with s = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (z + 0.044715 z^3), linear.h's tanh form, in
 * seven instructions. -2u is in powers of 2; if that overflows to infinity, s = 0. Absolute error z 2^-22. */
constexpr float POWER = -2.f * 0.7978845608028654f * 1.4426950408889634f, SLOPE = 2.f * 0.7978845608028654f;
constexpr float CUBIC = 0.044715f;

__device__ inline float gelu_sigmoid(float z) {
    return reciprocal(1.f + power_of_two(z * fmaf(POWER * CUBIC * z, z, POWER)));
}
__device__ inline float gelu(float z) {
    return z * gelu_sigmoid(z);
}
/* s + z s (1 - s) 2 du/dz. */
__device__ inline float gelu_slope(float z) {
    const float s = gelu_sigmoid(z);
    return fmaf(z * s * (1.f - s), fmaf(3.f * SLOPE * CUBIC * z, z, SLOPE), s);
}

/* The upper tail of the standard normal distribution at u >= 0: exp(-u^2/2) times a polynomial in 1 / (1 +
 * 3u/8), fitted to a relative error of 2.7e-5 for any u, 1/70 of bf16's rounding. `e` is exp(-u^2/2). */
__device__ inline float normal_tail(float u, float e) {
    const float t = reciprocal(fmaf(0.375f, u, 1.f));
    float p = fmaf(t, -0.09135102f, 0.20185678f);
    p = fmaf(t, p, 0.08234267f);
    p = fmaf(t, p, 0.15812018f);
    return e * t * fmaf(t, p, 0.14901955f);
}
__device__ inline float normal_exponential(float z) {
    return power_of_two(-0.5f * 1.4426950408889634f * z * z);
}
/* GELU by erf: z Phi(z). */
__device__ inline float gelu_erf(float z) {
    return fmaxf(z, 0.f) - fabsf(z) * normal_tail(fabsf(z), normal_exponential(z));
}
/* Phi(z) + z exp(-z^2/2) / sqrt(2 pi). */
__device__ inline float gelu_erf_slope(float z) {
    const float e = normal_exponential(z), tail = normal_tail(fabsf(z), e);
    return fmaf(0.3989422804014327f * z, e, z > 0.f ? 1.f - tail : tail);
}

template <class F>
__device__ inline float activated(float z) {
    return F::FINISH == Finish::ERF ? gelu_erf(z) : gelu(z);
}
template <class F>
__device__ inline float slope(float z) {
    return F::FINISH == Finish::ERF_SLOPE ? gelu_erf_slope(z) : gelu_slope(z);
}

/* A tile's slice of the bias: lane l has columns 2l and 2l + 1 of every 64. */
struct Bias {
    uint32_t words[ACROSS];

    __device__ void load(const Problem &p, int column) {
        column += int(threadIdx.x) % 32 * 2;
#pragma unroll
        for (uint32_t &word : words) {
            word = p.bias && column < p.n ? __ldg(reinterpret_cast<const uint32_t *>(p.bias + column)) : 0;
            column += 64;
        }
    }
    /* Adds the bias to the 64 columns of part i. */
    __device__ void add(float (&c)[COLUMNS / 8][4], int i) const {
        const int t = int(threadIdx.x) % 4;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const uint32_t word = __shfl_sync(~0u, words[i], 4 * n + t);
#pragma unroll
            for (int j = 0; j < 4; j++)
                c[8 * i + n][j] += __uint_as_float(j % 2 ? word & 0xffff0000u : word << 16);
        }
    }
};

/* A warp's buffers of parts in shared memory. The consumers take turns at them. */
template <class F>
struct Parts {
    typename F::Shared &shared;
    const int warp, lane;
    Ring<F::BUFFERS> ring; // READS_AUX: a producer fills the buffers with aux
    int sending = -1;      // READS_AUX: the first buffer from which a part of c is being stored, or -1

    __device__ explicit Parts(typename F::Shared &shared)
        : shared(shared), warp(uniform(int(threadIdx.x) % WARPGROUP / 32)), lane(int(threadIdx.x) % 32) {}

    /* The start of this lane's row of a 16 x 16 matrix, at columns from `column` on. */
    __device__ int offset(int column) const { return swizzled(lane % 16, column + lane / 16 * 8); }

    /* Stores the 64 columns of part i, rounded, to the matrix of `map`. */
    __device__ void store(const CUtensorMap &map, const float (&c)[COLUMNS / 8][4], int i, int row,
                          int column) {
        uint8_t *const through = shared.parts[ring.stage][warp];
        if constexpr (!F::READS_AUX) {
            if (lane == 0) wait_stores_read<F::BUFFERS - 1>(); // the previous store from this buffer
            __syncwarp();
            ring.advance();
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float(&left)[4] = c[8 * i + 2 * j], (&right)[4] = c[8 * i + 2 * j + 1];
            const uint32_t words[4] = {pack(left[0], left[1]), pack(left[2], left[3]),
                                       pack(right[0], right[1]), pack(right[2], right[3])};
            store_matrices(words, through + offset(16 * j));
        }
        fence_async();
        __syncwarp();
        if (lane == 0) {
            store_block_async(map, row + 16 * warp, column + 64 * i, through);
            commit_stores();
        }
    }

    /* SLOPE: multiplies the 64 columns of part i by the derivative of GELU at aux. ADD: adds aux to them. */
    __device__ void take_aux(float (&c)[COLUMNS / 8][4], int i) const {
        const uint8_t *const from = shared.parts[ring.stage][warp];
        wait(&shared.aux_filled[ring.stage], ring.parity);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t words[4];
            load_matrices(words, from + offset(16 * j));
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float(&sums)[4] = c[8 * i + 2 * j + k / 2];
                const float even = __uint_as_float(words[k] << 16);
                const float odd = __uint_as_float(words[k] & 0xffff0000u);
                if constexpr (F::FINISH == Finish::ADD) {
                    sums[k % 2 * 2] += even;
                    sums[k % 2 * 2 + 1] += odd;
                } else {
                    sums[k % 2 * 2] *= slope<F>(even);
                    sums[k % 2 * 2 + 1] *= slope<F>(odd);
                }
            }
        }
        __syncwarp();
    }
    /* READS_AUX: releases all buffers but the last, or at the end of a tile the last. */
    __device__ void sent() {
        if (lane == 0 && sending >= 0) {
            wait_stores_read<1>();
            give_back();
        }
        sending = ring.stage;
        ring.skip(F::TAKEN);
    }
    __device__ void give_back() const {
#pragma unroll
        for (int i = 0; i < F::TAKEN; i++) arrive(&shared.aux_free[sending + i]);
    }
    __device__ void all_sent() {
        if (lane == 0) {
            wait_stores_read();
            if (sending >= 0) give_back();
        }
        sending = -1;
        __syncwarp();
    }
};

/* Finishes 64 rows of a tile. */
template <class F>
__device__ inline void finish_rows(Parts<F> &parts, const Bias &bias, const Problem &p, const Maps &maps,
                                   float (&c)[COLUMNS / 8][4], int row, int column) {
#pragma unroll
    for (int i = 0; i < ACROSS; i++) {
        if constexpr (F::READS_AUX) {
            if (F::FINISH == Finish::ADD) bias.add(c, i);
            parts.take_aux(c, i);
            parts.store(maps.c, c, i, row, column);
            parts.sent();
            continue;
        }
        bias.add(c, i);
        if constexpr (F::FINISH == Finish::GELU || F::FINISH == Finish::ERF) {
            if (p.aux) parts.store(maps.aux, c, i, row, column);
#pragma unroll
            for (int n = 8 * i; n < 8 * i + 8; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) c[n][j] = activated<F>(c[n][j]);
        }
        parts.store(maps.c, c, i, row, column);
    }
}

} // namespace hopper_gemm
