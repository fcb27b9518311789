/* Hopper's product: one kernel for all variants, and the check of which products it supports. */
#include "kernels/gemm/cuda_hopper.cuh"

#include "kernels/gemm/cuda_hopper_gate.cuh"

#include <climits>

namespace hopper_gemm {
namespace {

/* ---- the producers: one thread for the operands, one of another warp for aux ---- */

/* Loads this block's half of the operand that the cluster shares (half of the columns, or of k) to both
 * blocks. */
template <class F>
__device__ inline void load_b(const Problem &p, const Maps &maps, uint8_t *to, int column, int k,
                              uint64_t *filled) {
    constexpr uint16_t EVERY = (1 << CLUSTER) - 1;
    const int rank = int(cluster_rank());
    if constexpr (F::TRANSPOSED_B) {
        const int first = rank * (DEPTH / CLUSTER);
        for (int i = 0; i < COLUMNS; i += BLOCK_COLUMNS)
            load_block_to_cluster(to + (i + first) * ROW_BYTES, maps.b, k + first, column + i, filled, EVERY);
    } else {
        const int first = rank * (COLUMNS / CLUSTER);
        const int row = F::GATE ? column / 2 + rank * (p.n / 2) : column + first; // a row of gate or of up
        load_block_to_cluster(to + first * ROW_BYTES, maps.b, row, k, filled, EVERY);
    }
}

template <class F>
__device__ inline void produce(const Problem &p, const Maps &maps, typename F::Shared &shared) {
    Ring<F::STAGES> ring;
    for (Walk walk(p); walk.more(); walk.next()) {
        for (int step = 0; step < p.steps; step++, ring.advance()) {
            uint64_t *const filled = &shared.filled[ring.stage];
            wait(&shared.free[ring.stage], ring.parity ^ 1);
            arrive_expecting(filled, A_BYTES + B_BYTES);
            load_block_async(shared.a[ring.stage], maps.a, walk.row, step * DEPTH, filled);
            load_b<F>(p, maps, shared.b[ring.stage], walk.column, step * DEPTH, filled);
        }
    }
}

template <class F>
__device__ inline void produce_aux(const Problem &p, const Maps &maps, typename F::Shared &shared) {
    Ring<F::BUFFERS> ring;
    for (Walk walk(p); walk.more(); walk.next()) {
        for (int taken = 0; taken < F::AUX_TILES; taken++, ring.advance()) {
            const int i = taken / F::TAKEN;
            const CUtensorMap &map = taken % F::TAKEN ? maps.second_aux : maps.aux;
            uint64_t *const filled = &shared.aux_filled[ring.stage];
            wait(&shared.aux_free[ring.stage], ring.parity ^ 1);
            arrive_expecting(filled, WARPS * PART_BYTES);
            load_block_async(shared.parts[ring.stage], map, walk.row + i / ACROSS * 64,
                             walk.column + i % ACROSS * 64, filled);
        }
    }
}

/* ---- the consumers: a warpgroup each ---- */

template <class F>
struct Consumer {
    typename F::Shared &shared;
    Ring<F::STAGES> ring;
    const int group, lane;

    __device__ explicit Consumer(typename F::Shared &shared)
        : shared(shared), group(uniform(int(threadIdx.x) / WARPGROUP)), lane(int(threadIdx.x) % 32) {}

    /* Releases the stage in every block of the cluster, because each block's producer writes to all. */
    __device__ void release(int stage) const {
        if (lane < CLUSTER) arrive_at(&shared.free[stage], uint32_t(lane));
    }

    /* Issues the products of a stage, 16 of its k at a time. */
    __device__ void issue(float (&c)[HALVES][COLUMNS / 8][4], int stage, bool add) const {
        constexpr int SIDEWAYS = 16 * 2, DOWN = 16 * ROW_BYTES; // byte offsets of the next 16 columns, or 16
                                                                // rows, of a tile
        const uint8_t *const b = shared.b[stage];
        const uint64_t left = rows_operand(shared.a[stage]);
        const uint64_t right = F::TRANSPOSED_B ? columns_operand(b, DEPTH * ROW_BYTES) : rows_operand(b);
        products_begin();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                multiply_async<false, F::TRANSPOSED_B>(
                    c[half], advance(left, half * 64 * ROW_BYTES + k * SIDEWAYS),
                    advance(right, k * (F::TRANSPOSED_B ? DOWN : SIDEWAYS)), add || k > 0);
        products_commit();
    }

    /* Sums up a tile. Stages are waited for strictly in order: a barrier's parity distinguishes a round from
     * the next one, but not from the one after that. */
    __device__ void multiply(float (&c)[HALVES][COLUMNS / 8][4], int steps) {
        int previous = 0;
        begin_turn(MULTIPLY_TURN, group);
        for (int step = 0; step < steps; step++, ring.advance()) {
            wait(&shared.filled[ring.stage], ring.parity);
            issue(c, ring.stage, step > 0);
            if (step > 0) {
                products_wait<1>();
                release(previous);
            }
            previous = ring.stage;
        }
        end_turn(MULTIPLY_TURN, group);
        products_wait<0>();
        release(previous);
#pragma unroll
        for (int half = 0; half < HALVES; half++) hold(c[half]);
    }
};

template <class F>
__device__ inline void consume(const Problem &p, const Maps &maps, typename F::Shared &shared) {
    Consumer<F> own(shared);
    Parts<F> parts(shared);
    int turn = 0;
    if (own.group == CONSUMERS - 1) { // passes the turn to the first consumer
        end_turn(MULTIPLY_TURN, own.group);
        end_turn(STORE_TURN, own.group);
    }
    for (Walk walk(p); walk.more(); walk.next()) {
        if (turn++ % CONSUMERS != own.group) { // this tile is the other consumer's
            own.ring.skip(p.steps);
            parts.ring.skip(F::AUX_TILES);
            continue;
        }
        float c[HALVES][COLUMNS / 8][4];
        Bias bias;
        bias.load(p, walk.column);
        own.multiply(c, p.steps);
        begin_turn(STORE_TURN, own.group);
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const int row = walk.row + 64 * half;
            if constexpr (F::GATE)
                finish_gate(parts, p, maps, c[half], row, walk.column / 2);
            else if constexpr (F::PAIRS)
                finish_gate_slope(parts, maps, c[half], row, walk.column);
            else
                finish_rows(parts, bias, p, maps, c[half], row, walk.column);
        }
        parts.all_sent();
        end_turn(STORE_TURN, own.group);
    }
    if (turn % CONSUMERS == own.group) { // waits for the turn from the last consumer
        begin_turn(MULTIPLY_TURN, own.group);
        begin_turn(STORE_TURN, own.group);
    }
}

template <class F>
__device__ inline void init_barriers(typename F::Shared &shared) {
    for (int s = 0; s < F::STAGES; s++) {
        barrier_init(&shared.filled[s], 1);
        barrier_init(&shared.free[s], WARPS * CLUSTER);
    }
    for (int s = 0; s < F::BUFFERS; s++) {
        barrier_init(&shared.aux_filled[s], 1);
        barrier_init(&shared.aux_free[s], WARPS);
    }
    fence_barrier_init();
}

/* Anatomy. Parallel: over tiles of 128 x 192 of C, two blocks of a cluster one above the other; two consumers
 * in turns. Launch: at most one block per multiprocessor, of 384, in clusters of 2. Holds: 168 registers, 216
 * to 224 KiB shared; then producers 24, consumers 240 registers, some spill. Occupancy: shared memory and its
 * bounds: one block per multiprocessor, 12 warps. Reads: whole tiles by the copy engine (TMA), B shared by
 * the cluster, 4 or 5 stages ahead. Syncs: barriers in shared memory between producers and 2 consumers; the
 * cluster at begin and end. Fusion: a norm of its input, or a sum of its output's columns. */
template <class F>
__global__ void __launch_bounds__(THREADS, 1)
    product_kernel(const __grid_constant__ Problem p, const __grid_constant__ Maps maps) {
    if constexpr (HOPPER) {
        extern __shared__ __align__(1024) uint8_t shared_memory[]; // swizzled groups of 8 rows are 1024 bytes
        typename F::Shared &shared = *reinterpret_cast<typename F::Shared *>(shared_memory);
        if (threadIdx.x == 0) init_barriers<F>(shared);
        cluster_wait();
        wait_for_previous();
        let_next_start();
        if (threadIdx.x >= CONSUMERS * WARPGROUP) {
            fewer_registers<24>();
            if (threadIdx.x == CONSUMERS * WARPGROUP) produce<F>(p, maps, shared);
            if (F::READS_AUX && threadIdx.x == CONSUMERS * WARPGROUP + 32) produce_aux<F>(p, maps, shared);
        } else {
            more_registers<240>();
            consume<F>(p, maps, shared);
        }
        __syncwarp();
        cluster_wait(); // the other block may still release stages here
    }
}

/* ---- the launch ---- */

/* Tensor maps of C and aux, and of the second halves of a gated layer's. */
template <class F>
Status output_maps(const Gemm *g, const GemmEpilogue *e, void *c, Maps *maps) {
    constexpr int TILE = F::GATE ? BLOCK_COLUMNS / 2 : BLOCK_COLUMNS, AUX_ROWS = F::READS_AUX ? 64 : 16;
    const int64_t width = F::GATE ? g->n / 2 : g->n;
    const bf16 *const aux = static_cast<const bf16 *>(F::FINISH == Finish::ADD ? e->added : e->aux);
    const int64_t aux_ld = F::FINISH == Finish::ADD ? g->ldc : e->aux_ld;
    TRY(matrix_map_encode(c, g->m, width, g->ldc, 16, &maps->c, TILE));
    if (F::PAIRS)
        TRY(matrix_map_encode(static_cast<bf16 *>(c) + width, g->m, width, g->ldc, 16, &maps->second_c,
                              TILE));
    if (!aux) return OK;
    TRY(matrix_map_encode(aux, g->m, width, aux_ld, AUX_ROWS, &maps->aux, TILE));
    if (!F::PAIRS && !F::GATE) return OK;
    return matrix_map_encode(aux + width, g->m, width, aux_ld, AUX_ROWS, &maps->second_aux, TILE);
}

/* How many clusters' tiles of rows keep their rows of A, 8 MiB in all, in L2 while the columns are swept. */
int rows_swept(int64_t k, int rows) {
    const int64_t group = (int64_t(8) << 20) / (k * CLUSTER * ROWS * int64_t(sizeof(bf16)));
    return int(group < 1 ? 1 : group > rows ? rows : group);
}

template <Finish FINISH>
Status launch(Ctx *ctx, const Gemm *g, const GemmEpilogue *e, void *c) {
    typedef Form<FINISH> F;
    Maps maps = {};
    TRY(matrix_map_encode(g->a, g->m, g->k, g->lda, ROWS, &maps.a));
    TRY(F::TRANSPOSED_B ? matrix_map_encode(g->b, g->k, g->n, g->ldb, DEPTH / CLUSTER, &maps.b)
                        : matrix_map_encode(g->b, g->n, g->k, g->ldb, COLUMNS / CLUSTER, &maps.b));
    TRY(output_maps<F>(g, e, c, &maps));
    Problem p = {};
    p.n = int(g->n);
    p.steps = int(divide_up(g->k, DEPTH));
    p.rows = int(divide_up(g->m, CLUSTER * ROWS));
    p.group = rows_swept(g->k, p.rows);
    p.tiles = p.rows * int(divide_up(g->n, COLUMNS));
    p.bias = static_cast<const bf16 *>(e->bias);
    p.aux = e->aux != nullptr;
    const int clusters = cuda_device(ctx)->multiprocessors / CLUSTER;
    return LAUNCH_CLUSTERS(ctx, CLUSTER, product_kernel<F>,
                           CLUSTER * (p.tiles < clusters ? p.tiles : clusters), THREADS,
                           sizeof(typename F::Shared), p, maps);
}

} // namespace
} // namespace hopper_gemm

static bool knows(const Gemm *g, const GemmEpilogue *e) {
    switch (e->kind) {
    case EPILOGUE_NONE:
    case EPILOGUE_BIAS:
        return !g->transpose_a && g->transpose_b && (g->beta == 0 || (g->beta == 1 && e->added));
    case EPILOGUE_GELU_BIAS:
    case EPILOGUE_GELU_AUX_BIAS:
    case EPILOGUE_ERF_BIAS:
    case EPILOGUE_ERF_AUX_BIAS: return !g->transpose_a && g->transpose_b && g->beta == 0;
    case EPILOGUE_DERF:
    case EPILOGUE_DGELU: return !g->transpose_a && !g->transpose_b && g->beta == 0;
    case EPILOGUE_SWIGLU: return !g->transpose_a && g->transpose_b && g->beta == 0 && g->n % 16 == 0;
    case EPILOGUE_DSWIGLU: return !g->transpose_a && !g->transpose_b && g->beta == 0;
    }
    return false;
}

bool gemm_hopper_suits(const CudaDevice *device, const Gemm *g, const GemmEpilogue *e) {
    if (g->a_dtype != BF16 || g->b_dtype != BF16 || g->c_dtype != BF16 || g->batch > 1) return false;
    if (g->alpha != 1 || !knows(g, e)) return false;
    if (g->m > INT_MAX / 2 || g->n > INT_MAX / 2 || g->k > INT_MAX / 2 || g->k == 0) return false;
    // TMA needs rows at 16-byte addresses, and clips stores to 16 bytes
    return walks_in_packs(8, {g->n, g->k, g->lda, g->ldb, g->ldc}, {g->a, g->b, g->c, e->added}) &&
           (!e->aux || walks_in_packs(8, {e->aux_ld}, {e->aux})) && (uintptr_t)e->bias % 4 == 0 &&
           device->hopper;
}

Status gemm_hopper_run(Ctx *ctx, const Gemm *g, const GemmEpilogue *e, void *c) {
    using namespace hopper_gemm;
    switch (e->kind) {
    case EPILOGUE_NONE:
    case EPILOGUE_BIAS:
        return g->beta == 0 ? launch<Finish::BIAS>(ctx, g, e, c) : launch<Finish::ADD>(ctx, g, e, c);
    case EPILOGUE_DGELU: return launch<Finish::SLOPE>(ctx, g, e, c);
    case EPILOGUE_GELU_BIAS:
    case EPILOGUE_GELU_AUX_BIAS: return launch<Finish::GELU>(ctx, g, e, c);
    case EPILOGUE_DERF: return launch<Finish::ERF_SLOPE>(ctx, g, e, c);
    case EPILOGUE_ERF_BIAS:
    case EPILOGUE_ERF_AUX_BIAS: return launch<Finish::ERF>(ctx, g, e, c);
    case EPILOGUE_SWIGLU: return launch<Finish::GATE>(ctx, g, e, c);
    case EPILOGUE_DSWIGLU: return launch<Finish::GATE_SLOPE>(ctx, g, e, c);
    }
    return fail(ERROR_INTERNAL, "no such epilogue: %d", (int)e->kind);
}
