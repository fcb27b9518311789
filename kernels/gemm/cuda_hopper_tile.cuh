/* cuda_hopper_tile: how Hopper's product is divided among clusters, blocks and warpgroups.
 *
 * A block has three warpgroups. The producer fills a ring of stages, 64 of k each, by TMA copies. The two
 * consumers take alternate tiles of C, so that one stores its tile while the other multiplies: for a short k
 * storing is a third of the time. A cluster is two blocks that work on vertically adjacent tiles: each block
 * copies half of the shared columns' operand to both. */
#pragma once

#include "kernels/cuda/hopper.cuh"

namespace hopper_gemm {

using namespace gpu;

/* The epilogue of a tile. */
enum class Finish {
    BIAS,  // c = a b^T + bias; the bias is optional
    GELU,  // aux = a b^T + bias, c = gelu(aux); bias and aux are optional
    SLOPE, // c = a b * gelu'(aux)
    ADD,   // c = a b^T + bias + aux; the bias is optional
    ERF,   // GELU by erf
    ERF_SLOPE,
    GATE,       // aux = a b^T, c = silu(gate) * up, halves of aux; storing aux is optional
    GATE_SLOPE, // c = the gradients of gate and up, halves of aux, from the gradient a b of their gated
                // product
};

constexpr int CLUSTER = 2, CONSUMERS = 2, THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr int WARPS = 4;                                 // warps per warpgroup
constexpr int ROWS = 128, COLUMNS = 192;                 // sizes of a block's tile
constexpr int HALVES = ROWS / 64, ACROSS = COLUMNS / 64; // parts of 64 x 64
constexpr int DEPTH = 64;                                // size of a stage along k
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BYTES = COLUMNS * ROW_BYTES;
constexpr int PART_BYTES = 16 * ROW_BYTES; // a warp's 16 rows of a part, one store

template <Finish FINISH_>
struct Form {
    static constexpr Finish FINISH = FINISH_;
    static constexpr bool SLOPES = FINISH == Finish::SLOPE || FINISH == Finish::ERF_SLOPE;
    static constexpr bool GATE = FINISH == Finish::GATE, PAIRS = FINISH == Finish::GATE_SLOPE;
    static constexpr bool READS_AUX = SLOPES || FINISH == Finish::ADD || PAIRS;
    static constexpr bool TRANSPOSED_B = SLOPES || PAIRS; // b is (k, n), else (n, k)
    static constexpr int STAGES = PAIRS ? 4 : 5;
    static constexpr int BUFFERS = PAIRS ? 8 : GATE ? 6 : READS_AUX ? 3 : 2;  // buffers for parts
    static constexpr int TAKEN = PAIRS ? 2 : 1;                               // buffers used at once
    static constexpr int AUX_TILES = READS_AUX ? HALVES * ACROSS * TAKEN : 0; // tiles of aux

    struct Shared { // tiles start at multiples of 1024 bytes
        uint8_t a[STAGES][A_BYTES], b[STAGES][B_BYTES];
        // parts of c or aux being stored; parts of aux being loaded, too, if aux is read
        uint8_t parts[BUFFERS][WARPS][GATE ? PART_BYTES / 2 : PART_BYTES];
        uint64_t filled[STAGES], free[STAGES];
        uint64_t aux_filled[BUFFERS], aux_free[BUFFERS];
    };
    static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
};

struct Problem {
    int n, steps;     // steps of DEPTH along k
    int rows, group;  // rows of tiles, per cluster; number of these rows that are swept together over all
                      // columns
    int tiles;        // tiles per cluster
    const bf16 *bias; // (n), or NULL
    bool aux;         // GELU, GATE: whether aux is written
};

struct Maps {
    CUtensorMap a, b, c, aux;
    CUtensorMap second_c, second_aux; // second halves of c and aux, for a gated layer
};

/* A block's sequence of tiles. */
struct Walk {
    const Problem &p;
    int index;
    int row, column; // position in C of the tile's first element

    __device__ explicit Walk(const Problem &p) : p(p), index(int(blockIdx.x) / CLUSTER) { locate(); }
    __device__ bool more() const { return index < p.tiles; }
    __device__ void next() {
        index += int(gridDim.x) / CLUSTER;
        if (more()) locate();
    }
    __device__ void locate() {
        const int swept = p.group * (p.tiles / p.rows), sweep = index / swept, rest = index % swept;
        const int height = min(p.group, p.rows - sweep * p.group);
        row = ((sweep * p.group + rest % height) * CLUSTER + int(cluster_rank())) * ROWS;
        column = rest / height * COLUMNS;
    }
};

/* The two consumers take turns at a resource, the first one at the first tile. `id` selects one of two
 * barriers. */
__device__ inline void begin_turn(int id, int group) {
    named_wait(id + group, CONSUMERS * WARPGROUP);
}
__device__ inline void end_turn(int id, int group) {
    named_arrive(id + (group + 1) % CONSUMERS, CONSUMERS * WARPGROUP);
}
constexpr int MULTIPLY_TURN = 1, STORE_TURN = 3;

} // namespace hopper_gemm
