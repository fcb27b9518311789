/* cuda_hopper_gate: the epilogue of a tile before or after a gated layer (SwiGLU, linear.h).
 *
 *     GATE        aux = a b^T, c = silu(gate) * up          gate and up are the halves of aux's columns
 *     GATE_SLOPE  d = a b, dgate = d * up * silu'(gate), dup = d * silu(gate)
 *
 * GATE's tiles are 96 columns of the gate and the same 96 of up, so that one thread holds both of a unit. Its
 * parts are stored 32 columns at a time. For GATE_SLOPE gate and up are loaded to pairs of buffers, and their
 * gradients are stored from the same buffers. */
#pragma once

#include "kernels/gemm/cuda_hopper_finish.cuh"

namespace hopper_gemm {

/* The start of this lane's row of a 16 x 16 matrix in a part of 32 columns (the 64-byte swizzle). */
__device__ inline int narrow_offset(int column) {
    const int lane = int(threadIdx.x) % 32, row = lane % 16, vector = (column + lane / 16 * 8) / 8;
    return row * NARROW_BYTES + (vector ^ (row / 2 % 4)) * 16;
}

/* Stores the 32 columns from accumulator n on, rounded, to the matrix of `map`. */
template <class F>
__device__ inline void store_narrow(Parts<F> &parts, const CUtensorMap &map, const float (&c)[COLUMNS / 8][4],
                                    int n, int row, int column) {
    uint8_t *const through = parts.shared.parts[parts.ring.stage][parts.warp];
    if (parts.lane == 0) wait_stores_read<F::BUFFERS - 1>(); // waits for the previous store from this buffer
    __syncwarp();
    parts.ring.advance();
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float(&left)[4] = c[n + 2 * j], (&right)[4] = c[n + 2 * j + 1];
        const uint32_t words[4] = {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]),
                                   pack(right[2], right[3])};
        store_matrices(words, through + narrow_offset(16 * j));
    }
    fence_async();
    __syncwarp();
    if (parts.lane == 0) {
        store_block_async(map, row + 16 * parts.warp, column, through);
        commit_stores();
    }
}

/* GATE: finishes 64 rows of a tile whose first unit is `unit`. */
template <class F>
__device__ inline void finish_gate(Parts<F> &parts, const Problem &p, const Maps &maps,
                                   float (&c)[COLUMNS / 8][4], int row, int unit) {
    constexpr int UP = COLUMNS / 16; // distance from a gate's accumulator to its up's
#pragma unroll
    for (int n = 0; n < UP; n += 4, unit += 32) {
        if (p.aux) {
            store_narrow(parts, maps.aux, c, n, row, unit);
            store_narrow(parts, maps.second_aux, c, n + UP, row, unit);
        }
#pragma unroll
        for (int i = n; i < n + 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) c[i][j] = gated(c[i][j], c[i + UP][j]);
        store_narrow(parts, maps.c, c, n, row, unit);
    }
}

/* Replaces a pair of neighbours of `gate` and `up` by their gradients. */
__device__ inline void gate_slope(float first, float second, uint32_t &gate, uint32_t &up) {
    const float d[2] = {first, second};
    const float z[2] = {__uint_as_float(gate << 16), __uint_as_float(gate & 0xffff0000u)};
    const float u[2] = {__uint_as_float(up << 16), __uint_as_float(up & 0xffff0000u)};
    float dgate[2], dup[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float s = sigmoid(z[e]), silu = z[e] * s;
        dup[e] = d[e] * silu;
        dgate[e] = d[e] * u[e] * fmaf(silu, 1.f - s, s);
    }
    gate = pack(dgate[0], dgate[1]);
    up = pack(dup[0], dup[1]);
}

/* GATE_SLOPE: finishes 64 rows of a tile. */
template <class F>
__device__ inline void finish_gate_slope(Parts<F> &parts, const Maps &maps, const float (&c)[COLUMNS / 8][4],
                                         int row, int column) {
#pragma unroll
    for (int i = 0; i < ACROSS; i++) {
        Ring<F::BUFFERS> second = parts.ring;
        second.advance();
        uint8_t *const gate = parts.shared.parts[parts.ring.stage][parts.warp];
        uint8_t *const up = parts.shared.parts[second.stage][parts.warp];
        wait(&parts.shared.aux_filled[parts.ring.stage], parts.ring.parity);
        wait(&parts.shared.aux_filled[second.stage], second.parity);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = parts.offset(16 * j);
            uint32_t gates[4], ups[4];
            load_matrices(gates, gate + at);
            load_matrices(ups, up + at);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float(&sums)[4] = c[8 * i + 2 * j + k / 2];
                gate_slope(sums[k % 2 * 2], sums[k % 2 * 2 + 1], gates[k], ups[k]);
            }
            store_matrices(gates, gate + at);
            store_matrices(ups, up + at);
        }
        fence_async();
        __syncwarp();
        if (parts.lane == 0) {
            store_block_async(maps.c, row + 16 * parts.warp, column + 64 * i, gate);
            store_block_async(maps.second_c, row + 16 * parts.warp, column + 64 * i, up);
            commit_stores();
        }
        parts.sent();
    }
}

} // namespace hopper_gemm
