#include "kernels/linear/cuda_fused.cuh"

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/gemm/cuda_hopper.cuh"
#include "kernels/linear/cuda_activation.cuh"

#include <type_traits>

/* A block computes 64 to 192 outputs of up to 128 rows of x: weights are the product's rows and rows of x its
 * columns, so that 8 rows of x fill an instruction. One warp copies tiles of both into a ring of stages
 * (TMA); it copies the first weights before the kernel that writes x has finished. Warpgroups multiply
 * (wgmma).
 *
 * The order of a sum depends only on the size of the weights: the inputs are divided into slices, the inputs
 * of a slice are added from the first to the last, and the slices are added in order. The blocks of a cluster
 * take a slice each; where the tiles fill the device anyway, a block takes one slice after another. So the
 * bits of a row of y do not depend on the number of rows, which FUSE_INVARIANT requires.
 *
 * A block runs once through most of its code, which has to be fetched: longer code was slower. */
namespace tile_products { // a named namespace, because much of it is unused in builds for other GPUs

using namespace gpu;

constexpr int WARP = 32, WARPS = WARPGROUP / WARP;
constexpr int DEPTH = LINEAR_SLICE_STEP, OUTPUTS = 64; // inputs per stage; outputs per warpgroup
static_assert(DEPTH == BLOCK_COLUMNS, "a stage is a tile of the copy engine");
constexpr int UNIT = OUTPUTS / WARPS;           // outputs per warp, or 8 of the gate and the same 8 of up
constexpr int TOKENS_MOST = 64;                 // rows of x in a block with one warpgroup
constexpr int SLICES_MOST = 4, SLICE_STEPS = 2; // slices of the inputs; fewest stages in a slice
constexpr int BLOCKS = 128;                     // a layer with fewer tiles of outputs is cut into slices

struct Tiles {
    int rows, out, steps, slices; // steps: stages of all inputs
    int blocks;                   // of a cluster: slices, or 1
    const bf16 *bias, *skip;      // (out), (rows, out) or NULL
    bf16 *pre;                    // (rows, out) or NULL
    void *y;                      // (rows, out), gated: (rows, out / 2)
    bool wide, vectors;           // y is fp32; rows of all are whole vectors of 8
    Activation activation;
};

template <int TOKENS_, int GROUPS_>
struct Form {
    static constexpr int TOKENS = TOKENS_, GROUPS = GROUPS_; // warpgroups
    static constexpr bool ALONE = GROUPS > 1;                // a block takes all slices
    static constexpr int N = TOKENS / 8;
    static constexpr int WEIGHT_BYTES = GROUPS * OUTPUTS * ROW_BYTES, X_BYTES = TOKENS * ROW_BYTES;
    static constexpr int STAGES = (ALONE ? 200 : 97) * 1024 / (WEIGHT_BYTES + X_BYTES);
    static constexpr int THREADS = GROUPS * WARPGROUP + WARP;

    typedef float Sums[TOKENS * UNIT]; // of a warp, in the order of place_of

    struct Stages { // tiles start at multiples of 1024 bytes
        uint8_t weight[STAGES][WEIGHT_BYTES], x[STAGES][X_BYTES];
    };
    struct Separate { // parts: all slices of the outputs that this block finishes
        Stages ring;
        Sums parts[GROUPS * WARPS];
    };
    struct InTurn {
        union {
            Stages ring;
            Sums parts[GROUPS * WARPS];
        };
    };
    struct Shared : std::conditional_t<ALONE, InTurn, Separate> {
        uint64_t filled[STAGES], free[STAGES], received;
    };
    static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");
};

/* Blocks that share a tile of outputs. */
template <class F>
__device__ inline int blocks_of(const Tiles &l) {
    return F::ALONE ? 1 : l.blocks;
}

/* This block's place: its first row of x, output and stage of the inputs, the number of its stages, and that
 * of a slice's. */
template <class F>
struct Place {
    int token, output, slice, first, count, each;

    __device__ explicit Place(const Tiles &l) {
        const int blocks = blocks_of<F>(l);
        each = (l.steps + l.slices - 1) / l.slices;
        slice = int(blockIdx.x) % blocks;
        token = int(blockIdx.x) / blocks * F::TOKENS;
        output = int(blockIdx.y) * F::GROUPS * OUTPUTS;
        first = slice * each;
        count = F::ALONE ? l.steps : max(0, min(each, l.steps - first));
    }
};

/* A gated weight is copied as 8 rows of the gate and the same 8 of up in turns: a thread gets both. */
template <bool GATED>
__device__ inline void load_weight(void *to, const CUtensorMap &map, int output, int column,
                                   uint64_t *barrier) {
    if (GATED)
        load_block_4d_async(to, map, output / 16, column, barrier);
    else
        load_block_async(to, map, output, column, barrier);
}

template <class F, bool GATED>
__device__ inline void produce(const Place<F> &mine, const CUtensorMap &weight, const CUtensorMap &x,
                               typename F::Shared &shared) {
    const int ahead = min(mine.count, F::STAGES);
    for (int i = 0; i < ahead; i++) {
        arrive_expecting(&shared.filled[i], F::WEIGHT_BYTES + F::X_BYTES);
        load_weight<GATED>(shared.ring.weight[i], weight, mine.output, (mine.first + i) * DEPTH,
                           &shared.filled[i]);
    }
    wait_for_previous();
    let_next_start();
    for (int i = 0; i < ahead; i++)
        load_block_async(shared.ring.x[i], x, mine.token, (mine.first + i) * DEPTH, &shared.filled[i]);
    Ring<F::STAGES> ring;
    for (int i = ahead; i < mine.count; i++, ring.advance()) {
        uint64_t *const filled = &shared.filled[ring.stage];
        wait(&shared.free[ring.stage], ring.parity);
        arrive_expecting(filled, F::WEIGHT_BYTES + F::X_BYTES);
        load_weight<GATED>(shared.ring.weight[ring.stage], weight, mine.output, (mine.first + i) * DEPTH,
                           filled);
        load_block_async(shared.ring.x[ring.stage], x, mine.token, (mine.first + i) * DEPTH, filled);
    }
}

/* c = the products of stages [first, end), counted from this block's first. */
template <class F>
__device__ inline void multiply_stages(int first, int end, int group, typename F::Shared &shared,
                                       Ring<F::STAGES> &ring, int &last, float (&c)[F::N][4]) {
    for (int i = first; i < end; i++, ring.advance()) {
        const uint64_t a = rows_operand(shared.ring.weight[ring.stage] + group * OUTPUTS * ROW_BYTES);
        const uint64_t b = rows_operand(shared.ring.x[ring.stage]);
        wait(&shared.filled[ring.stage], ring.parity);
        hold(c);
        products_begin();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            multiply_async<false, false>(c, advance(a, 32 * k), advance(b, 32 * k), i > first || k > 0);
        products_commit();
        products_wait<1>();
        if (i > 0 && threadIdx.x % WARP == 0) arrive(&shared.free[last]);
        last = ring.stage;
    }
    products_wait<0>();
    hold(c);
}

/* c = the sums over this block's slice, or over all slices in order. c is zero before. */
template <class F>
__device__ inline void multiply_slices(const Place<F> &mine, int group, typename F::Shared &shared,
                                       float (&c)[F::N][4]) {
    Ring<F::STAGES> ring;
    int last = 0; // the stage that the previous step read
    if constexpr (!F::ALONE) return multiply_stages<F>(0, mine.count, group, shared, ring, last, c);
    float sums[F::N][4] = {}; // of a slice
    for (int first = 0; first < mine.count; first += mine.each) {
        multiply_stages<F>(first, min(first + mine.each, mine.count), group, shared, ring, last, sums);
#pragma unroll
        for (int n = 0; n < F::N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[n][i] += sums[n][i];
    }
}

/* The place of an output of a row of x among a warp's sums: all lanes store to different banks. */
__device__ inline int place_of(int token, int output) {
    return (token ^ token / 4 % 2) * UNIT + (output ^ token / 2 % 2 * 8);
}

/* Puts a warp's sums in shared memory. */
template <class F>
__device__ inline void store_sums(const float (&c)[F::N][4], typename F::Sums &to) {
    const int lane = int(threadIdx.x) % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float *const first = to + place_of(lane % 4 * 2 + i % 2, lane / 4 + i / 2 * 8);
#pragma unroll
        for (int n = 0; n < F::N; n++) first[n * 8 * UNIT] = c[n][i];
    }
}

/* Puts each warp's sums in `parts` of the block that adds the slices of its outputs, and waits until all
 * slices of this block's outputs are there. */
template <class F>
__device__ inline void meet_slices(const Tiles &l, const Place<F> &mine, int warp, const float (&c)[F::N][4],
                                   typename F::Shared &shared) {
    typedef typename F::Sums Sums;
    const int lane = int(threadIdx.x) % WARP, adds = warp % l.blocks;
    Sums *const to = &shared.parts[mine.slice * (F::GROUPS * WARPS / l.blocks) + warp / l.blocks];
    Sums *const own = adds == mine.slice ? to : reinterpret_cast<Sums *>(shared.ring.weight) + warp;
    if (l.blocks > 1) named_wait(1, F::GROUPS * WARPGROUP); // until no warp needs the ring
    store_sums<F>(c, *own);
    if (adds != mine.slice) {
        fence_async();
        __syncwarp();
        if (lane == 0) send_bytes_async(to, own, sizeof(Sums), &shared.received, uint32_t(adds));
    }
    __syncwarp(); // or else the warp's other lanes would wait here without the first
    named_wait(1, F::GROUPS * WARPGROUP);
    wait(&shared.received, 0);
}

/* EIGHT neighbours of a row, of which `count` are inside. */
constexpr int EIGHT = VECTOR<bf16>;
__device__ inline void add_eight(const bf16 *from, int count, bool vectors, float (&z)[EIGHT]) {
    float x[EIGHT];
    load_columns<EIGHT>(from, count, vectors, x);
#pragma unroll
    for (int e = 0; e < EIGHT; e++) z[e] += x[e];
}
template <class T>
__device__ inline void store_eight(T *to, int count, bool vectors, const float (&x)[EIGHT]) {
    if (vectors && count >= EIGHT) return store_floats<EIGHT>(to, x);
    for (int e = 0; e < EIGHT; e++)
        if (e < count) to[e] = from_float<T>(x[e]);
}

/* pre of eight outputs of a row: the slices' sums in order, bias and skip. Only `count` are inside. `place`:
 * of the first sum. */
template <class F>
__device__ inline void finish(const Tiles &l, const typename F::Sums *parts, int place, int64_t row,
                              int output, int count, float (&z)[EIGHT]) {
    const int blocks = blocks_of<F>(l), units = F::GROUPS * WARPS / blocks;
    const int64_t at = row * l.out + output;
#pragma unroll
    for (int e = 0; e < EIGHT; e++) z[e] = parts[0][place + e];
    for (int s = 1; s < blocks; s++)
#pragma unroll
        for (int e = 0; e < EIGHT; e++) z[e] += parts[s * units][place + e];
    if (l.bias) add_eight(l.bias + output, count, l.vectors, z);
    if (l.skip) add_eight(l.skip + at, count, l.vectors, z);
    if (l.pre) store_eight(l.pre + at, count, l.vectors, z);
}

/* Writes the outputs whose slices this block adds, eight of a row at a time. */
template <class F, bool GATED>
__device__ inline void write(const Tiles &l, const Place<F> &mine, const typename F::Shared &shared) {
    constexpr int EACH = GATED ? 1 : UNIT / EIGHT; // eights per row of x and unit
    constexpr int ALL = F::GROUPS * WARPS, PER_UNIT = F::TOKENS * EACH;
    const int blocks = blocks_of<F>(l);
    const int width = GATED ? l.out / 2 : l.out;
#pragma unroll 1
    for (int i = int(threadIdx.x); i < ALL / blocks * PER_UNIT; i += ALL * WARP) {
        const int unit = i / PER_UNIT, token = i % PER_UNIT / EACH, column = i % EACH * EIGHT;
        const int first = (mine.output + UNIT * (unit * blocks + mine.slice)) / (GATED ? 2 : 1);
        const typename F::Sums *const parts = &shared.parts[unit];
        const int64_t row = mine.token + token, at = row * width + first + column;
        const int count = width - first - column;
        if (row >= l.rows || count <= 0) continue;
        float z[EIGHT];
        finish<F>(l, parts, place_of(token, column), row, first + column, count, z);
        if (GATED) {
            float up[EIGHT];
            finish<F>(l, parts, place_of(token, EIGHT), row, width + first, count, up);
#pragma unroll
            for (int e = 0; e < EIGHT; e++) z[e] = gated(z[e], up[e]);
        } else if (l.activation != ACTIVATION_NONE) {
#pragma unroll
            for (int e = 0; e < EIGHT; e++) z[e] = activated_by(l.activation, z[e]);
        }
        if (l.wide)
            store_eight(static_cast<float *>(l.y) + at, count, l.vectors, z);
        else
            store_eight(static_cast<bf16 *>(l.y) + at, count, l.vectors, z);
    }
}

/* Floor: out * in * sizeof(bf16) bytes for few rows, 2 * rows * out * in FLOPs for many. */
/* Anatomy. Parallel: over tiles of 64 to 192 outputs and 8 to 128 rows; few tiles: over up to 4 slices of the
 * inputs. Launch: tiles, or clusters of their slices, of 160 to 416. Holds: 75 to 140 registers, some spill
 * in the largest, 92 to 200 KiB shared. Occupancy: shared memory: two blocks per multiprocessor, one for many
 * rows. Reads: whole tiles by the copy engine (TMA), 5 to 10 stages ahead, the first before the wait. Syncs:
 * barriers in shared memory; slices meet in one block's. Fusion: nothing left but the next layer: bias, skip
 * and activation are in it. */
template <class F, bool GATED>
__global__ void __launch_bounds__(F::THREADS, F::GROUPS == 1 ? 2 : 1)
    multiply_tiles(const __grid_constant__ Tiles l, const __grid_constant__ CUtensorMap weight,
                   const __grid_constant__ CUtensorMap x) {
    if constexpr (HOPPER) {
        extern __shared__ __align__(1024) uint8_t shared_memory[]; // swizzled groups of 8 rows are 1024 bytes
        typename F::Shared &shared = *reinterpret_cast<typename F::Shared *>(shared_memory);
        const Place<F> mine(l);
        const int warp = uniform(int(threadIdx.x) / WARP); // those of warpgroups come first
        if (threadIdx.x == 0) {
            for (int s = 0; s < F::STAGES; s++) {
                barrier_init(&shared.filled[s], 1);
                barrier_init(&shared.free[s], F::GROUPS * WARPS);
            }
            if (!F::ALONE) barrier_init(&shared.received, 1);
            fence_barrier_init();
            if (!F::ALONE)
                arrive_expecting(&shared.received,
                                 int(sizeof shared.parts) / blocks_of<F>(l) * (blocks_of<F>(l) - 1));
        }
        __syncthreads();
        if (!F::ALONE) cluster_arrive_relaxed();
        if (warp == F::GROUPS * WARPS) {
            if (threadIdx.x % WARP == 0) produce<F, GATED>(mine, weight, x, shared);
            __syncwarp();
            if (!F::ALONE) cluster_join(), cluster_arrive_relaxed();
        } else {
            float c[F::N][4] = {};
            wait_for_previous();
            let_next_start();
            multiply_slices<F>(mine, warp / WARPS, shared, c);
            if constexpr (F::ALONE) {
                named_wait(1, F::GROUPS * WARPGROUP); // until no warp needs the ring
                store_sums<F>(c, shared.parts[warp]);
                named_wait(1, F::GROUPS * WARPGROUP);
            } else {
                cluster_join();
                meet_slices<F>(l, mine, warp, c, shared);
                __syncwarp();
                cluster_arrive_relaxed(); // what this block was sent has come
            }
            write<F, GATED>(l, mine, shared);
        }
        __syncwarp();
        if (!F::ALONE) cluster_join(); // what this block sent has come
    }
}

/* A gated weight: (out / 16, 2, 8, in), eight rows of the gate and the same eight of up in turns. */
Status gated_map(const void *data, int64_t out, int64_t width, int tile_rows, CUtensorMap *map) {
    const cuuint64_t row = cuuint64_t(width) * sizeof(bf16);
    const cuuint64_t extents[4] = {cuuint64_t(width), 8, 2, cuuint64_t(out) / 16};
    const cuuint64_t strides[3] = {row, row * cuuint64_t(out) / 2, row * 8};
    const cuuint32_t tile[4] = {DEPTH, 8, 2, cuuint32_t(tile_rows) / 16};
    return tensor_map_encode(const_cast<void *>(data), 4, extents, strides, tile, map);
}

template <class F, bool GATED>
Status launch(Ctx *ctx, const LinearForward *l, Tiles tiles) {
    const int64_t in = tensor_width(l->weight);
    CUtensorMap weight, x;
    const int64_t across = divide_up(tiles.rows, F::TOKENS), down = divide_up(tiles.out, F::GROUPS * OUTPUTS);
    tiles.blocks = F::ALONE ? 1 : tiles.slices;
    TRY(GATED ? gated_map(l->weight.data, tiles.out, in, F::GROUPS * OUTPUTS, &weight)
              : matrix_map_encode(l->weight.data, tiles.out, in, in, F::GROUPS * OUTPUTS, &weight));
    TRY(matrix_map_encode(l->x.data, tiles.rows, in, in, F::TOKENS, &x));
    const dim3 grid(unsigned(across * tiles.blocks), unsigned(down));
    constexpr size_t shared = sizeof(typename F::Shared);
    switch (tiles.blocks) {
    case 1:
        return LAUNCH_CLUSTERS(ctx, 1, (multiply_tiles<F, GATED>), grid, F::THREADS, shared, tiles, weight,
                               x);
    case 2:
        return LAUNCH_CLUSTERS(ctx, 2, (multiply_tiles<F, GATED>), grid, F::THREADS, shared, tiles, weight,
                               x);
    default:
        return LAUNCH_CLUSTERS(ctx, 4, (multiply_tiles<F, GATED>), grid, F::THREADS, shared, tiles, weight,
                               x);
    }
}

/* Many rows: the form that takes the fewest waves, each of which also costs as much as OVERHEAD outputs. */
template <bool GATED>
Status launch_many(Ctx *ctx, const LinearForward *l, const Tiles &tiles) {
    constexpr int OVERHEAD = 64 * 256;
    const auto cost = [&](int tokens, int groups) {
        const int outputs = groups * OUTPUTS;
        const int64_t blocks = divide_up(tiles.rows, tokens) * divide_up(tiles.out, outputs);
        return divide_up(blocks, cuda_device(ctx)->multiprocessors) * (tokens * outputs + OVERHEAD);
    };
    const int64_t narrow = cost(64, 2), square = cost(128, 2), wide = cost(128, 3);
    if (narrow < square && narrow < wide) return launch<Form<64, 2>, GATED>(ctx, l, tiles);
    return wide < square ? launch<Form<128, 3>, GATED>(ctx, l, tiles)
                         : launch<Form<128, 2>, GATED>(ctx, l, tiles);
}

template <bool GATED>
Status launch_tokens(Ctx *ctx, const LinearForward *l, const Tiles &tiles) {
    if (tiles.rows <= 8) return launch<Form<8, 1>, GATED>(ctx, l, tiles);
    if (tiles.rows <= 16) return launch<Form<16, 1>, GATED>(ctx, l, tiles);
    if (tiles.rows <= 32) return launch<Form<32, 1>, GATED>(ctx, l, tiles);
    const int64_t blocks = divide_up(tiles.rows, TOKENS_MOST) * divide_up(tiles.out, OUTPUTS) * tiles.slices;
    if (tiles.rows <= TOKENS_MOST || blocks <= 2 * cuda_device(ctx)->multiprocessors) // all at once
        return launch<Form<TOKENS_MOST, 1>, GATED>(ctx, l, tiles);
    return launch_many<GATED>(ctx, l, tiles);
}

} // namespace tile_products
using namespace tile_products;

/* It depends only on the layer, or else sums would depend on the number of rows. */
int linear_slices(int64_t out, int steps) {
    int slices = 1;
    while (slices < SLICES_MOST && divide_up(out, OUTPUTS) * slices < BLOCKS &&
           steps >= 2 * slices * SLICE_STEPS)
        slices *= 2;
    return slices;
}

bool linear_tiles_suit(const Ctx *ctx, const LinearForward *l) {
    const int64_t in = tensor_width(l->weight), out = tensor_rows(l->weight), rows = tensor_rows(l->x);
    const bool invariant = ctx->fuses & FUSE_INVARIANT, gated = activation_gated(l->activation);
    const int64_t most = INT_MAX / 2, most_outputs = 65535 * OUTPUTS; // of a grid
    if (!cuda_device(ctx)->hopper || l->x.dtype != BF16 || !tensor_empty(l->x8.y)) return false;
    if (!invariant && (rows <= LINEAR_FEW_ROWS || rows > TOKENS_MOST)) return false;
    return rows < most / SLICES_MOST && in > 0 && in < most && out < most_outputs &&
           (!gated || out % 16 == 0) && walks_in_packs(8, {in}, {l->x.data, l->weight.data});
}

/* Hopper's product has the bits of a layer whose inputs are one slice, and is faster for many rows. */
static bool many_rows(const Ctx *ctx, const LinearForward *l, int slices, Gemm *product,
                      GemmEpilogue *epilogue) {
    constexpr int MANY = 256;
    const bool is_gated = activation_gated(l->activation);
    if (slices > 1 || tensor_rows(l->x) < MANY || !tensor_empty(l->skip)) return false;
    if (is_gated ? !tensor_empty(l->bias) : l->activation != ACTIVATION_NONE) return false;
    *product = linear_product(l, l->y, 0);
    epilogue->kind = is_gated ? EPILOGUE_SWIGLU : tensor_empty(l->bias) ? EPILOGUE_NONE : EPILOGUE_BIAS;
    epilogue->bias = l->bias.data;
    if (is_gated) epilogue->aux = l->pre.data, epilogue->aux_ld = l->pre.stride;
    return gemm_hopper_suits(cuda_device(ctx), product, epilogue);
}

Status linear_tiles(Ctx *ctx, const LinearForward *l) {
    Tiles tiles = {};
    Gemm product;
    GemmEpilogue epilogue = {};
    tiles.rows = int(tensor_rows(l->x));
    tiles.out = int(tensor_rows(l->weight));
    tiles.steps = int(divide_up(tensor_width(l->weight), DEPTH));
    tiles.slices = linear_slices(tiles.out, tiles.steps);
    if (many_rows(ctx, l, tiles.slices, &product, &epilogue)) {
        PRIMITIVE (ctx, activation_gated(l->activation) ? "product, SwiGLU" : "product", MATRIX)
            TRY(gemm_hopper_run(ctx, &product, &epilogue, product.c));
        return OK;
    }
    tiles.bias = data_of<bf16>(l->bias);
    tiles.skip = data_of<bf16>(l->skip);
    tiles.pre = data_of<bf16>(l->pre);
    tiles.y = l->y.data;
    tiles.wide = l->y.dtype == F32;
    tiles.vectors = walks_in_packs(8, {tiles.out / (activation_gated(l->activation) ? 2 : 1)},
                                   {tiles.bias, tiles.skip, tiles.pre, tiles.y});
    tiles.activation = l->activation;
    PRIMITIVE (ctx, "product by tiles", MATRIX)
        TRY(activation_gated(l->activation) ? launch_tokens<true>(ctx, l, tiles)
                                            : launch_tokens<false>(ctx, l, tiles));
    return OK;
}
