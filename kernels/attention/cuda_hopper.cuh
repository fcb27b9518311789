/* cuda_hopper: Hopper's own instructions (sm_90a), one function each: copies of whole tiles by the tensor
 * memory accelerator, the barriers in shared memory that count their bytes, and products by a warpgroup (128
 * threads, from a multiple of 128 on). PTX ISA, "Asynchronous warpgroup level matrix instructions" and
 * "Tensor copies".
 *
 * A tile of R rows lies in shared memory as blocks of 64 columns, one after another, R * 128 bytes each, from
 * a multiple of 1024 bytes on. In a block a row is 128 bytes, and its eight 16-byte vectors are permuted: vector
 * v of row r lies at v ^ (r % 8) (the 128-byte swizzle), so that eight rows of one column or eight columns of
 * one row are in different banks. The copies write and read this order, and the products expect it. */
#ifndef KERNELS_ATTENTION_CUDA_HOPPER_CUH
#define KERNELS_ATTENTION_CUDA_HOPPER_CUH

#include "kernels/attention/cuda_instructions.cuh"
#include "kernels/attention/cuda_problem.cuh"

#include <cuda.h>

namespace attention {

/* Whether code for a GPU that has these instructions is being made. A kernel that uses them has its body in
 * `if constexpr (HOPPER)`, so that it compiles, to nothing, for the others. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool HOPPER = true;
#else
constexpr bool HOPPER = false;
#endif

constexpr int WARPGROUP = 128, BLOCK_COLUMNS = 64, ROW_BYTES = 128;

/* ---- tiles of tensors in global memory ---- */

/* Describes `rows`, (batch, count, columns) bf16, as (batch, columns / 64, count, 64) for copies of tiles of
 * tile_rows x tile_columns (a multiple of 64). What lies beyond `count` reads as zero and is not written.
 * tensor_map_fits: whether the accelerator can walk it (16-byte strides, at least one element). */
bool tensor_map_fits(const Rows &rows, int64_t batch, int64_t count, int64_t columns);
CHECKED Status tensor_map(const Rows &rows, int64_t batch, int64_t count, int64_t columns, int tile_rows,
                          int tile_columns, CUtensorMap *map);

__device__ inline void prefetch_map(const CUtensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* Starts the copy of the tile at `row` of batch row b, from 64-column block `block` on; its bytes (all of the
 * tile, also those beyond the tensor) count towards `barrier`. One thread calls it. */
__device__ inline void load_tile_async(void *to, const CUtensorMap &map, int row, int block, int b,
                                       uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
        "l"(&map), "r"(0), "r"(row), "r"(block), "r"(b), "r"(shared_address(barrier))
        : "memory");
}

/* The way back. What threads stored to the tile must be made visible (fence_async and a barrier) before;
 * commit_stores, then wait_stores_read before the tile is written again (or the block ends). */
__device__ inline void store_tile_async(const CUtensorMap &map, int row, int block, int b, const void *from) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
            &map),
        "r"(0), "r"(row), "r"(block), "r"(b), "r"(shared_address(from))
        : "memory");
}
__device__ inline void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Waits until what this thread's committed groups wrote is there, and not only read. */
__device__ inline void wait_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Plain runs of `bytes` (a multiple of 16) between shared and global memory; stores and additions belong to
 * groups, as above. */
__device__ inline void load_bytes_async(void *to, const void *from, int bytes, uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
__device__ inline void store_bytes_async(void *to, const void *from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}
__device__ inline void add_floats_async(float *to, const float *from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

/* Where element (row, column) of a 64-column block lies, in bytes from the block's start. */
__device__ inline int swizzled(int row, int column) {
    return row * ROW_BYTES + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
}

/* Makes this thread's ordinary stores to shared memory visible to later copies and products, once a barrier
 * has ordered them. */
__device__ inline void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Orders copies of global memory by this thread against other threads' that a flag has announced, or is to. */
__device__ inline void fence_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
/* A flag between blocks. */
__device__ inline int load_acquire(const int *flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ inline void store_release(int *flag, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

/* Waits until the flag has come to `value`, and orders this thread's later copies behind what it announces. */
__device__ inline void wait_flag(const int *flag, int value) {
    while (load_acquire(flag) < value) {}
    fence_async_global();
}

/* The way back of load_matrices: lane 8 m + r gives the address of row r of matrix m. */
__device__ inline void store_matrices(const uint32_t (&from)[4], void *row) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
        "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
        : "memory");
}

/* ---- barriers in shared memory: a phase ends when all arrivals and all announced bytes are there ---- */

__device__ inline void barrier_init(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}
/* After the inits, by the thread that made them; __syncthreads() follows. */
__device__ inline void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/* Arrives and announces `bytes` of copies to come in this phase. */
__device__ inline void arrive_expecting(uint64_t *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}
/* Arrives once this thread's copies so far (copy_async_16, copy_async_8) are there. */
__device__ inline void arrive_when_copied(uint64_t *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}
/* Waits until the phase of this parity has ended: of a new barrier, the phase before the first (parity 1) has,
 * the first (parity 0) has not. */
__device__ inline void wait(uint64_t *barrier, uint32_t parity) {
    asm volatile("{\n.reg .pred done;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* A place in a ring of STAGES tiles, and the parity of its present round. */
template <int STAGES>
struct Ring {
    int stage = 0;
    uint32_t parity = 0;

    __device__ inline void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* Barrier `id` (1 to 15; 0 is __syncthreads) among `threads` threads: of those that wait and those that only
 * arrive. */
__device__ inline void named_wait(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* True in one lane of a converged warp. */
__device__ inline bool elect_one() {
    uint32_t elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

/* Registers of each thread of this warpgroup from here on; a multiple of 8. Only in a kernel with a register
 * cap, and only where all warps of the warpgroup pass. */
template <int REGISTERS>
__device__ inline void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ inline void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* ---- products by a warpgroup ---- */

/* Describes an operand in shared memory to a product. `rows_operand`: the tile's rows are the operand's rows
 * (of a) or columns (of b), and the product sums along them: a and b of a b^T. The operand of the next 16
 * columns within a 64-column block starts 32 bytes on (operand_step_columns), of 8 more rows 1024 bytes on.
 * `columns_operand`: the product sums over the tile's rows: a and b of a^T b. The operand of the next 16 rows
 * starts 2048 bytes on; further 64-column blocks follow every `block_bytes`. To be used with TRANSPOSED. */
__device__ inline uint64_t operand(uint32_t address, uint32_t leading_bytes) {
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading_bytes >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
__device__ inline uint64_t rows_operand(const void *tile) {
    return operand(shared_address(tile), 16);
}
__device__ inline uint64_t columns_operand(const void *tile, int block_bytes) {
    return operand(shared_address(tile), block_bytes);
}
/* The operand `bytes` (a multiple of 16) further on. */
__device__ inline uint64_t advance(uint64_t operand, int bytes) {
    return operand + uint64_t(bytes >> 4);
}

/* Orders this thread's register accesses before the products that follow: once before a batch of them. */
__device__ inline void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING committed batches are under way. */
template <int PENDING>
__device__ inline void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving uses of accumulators across this point: after a wait, and before a batch. */
template <int N>
__device__ inline void hold(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
template <int N>
__device__ inline void hold(uint32_t (&a)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
}

#define ACCUMULATORS_2(n)                                                                                    \
    "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3]), "+f"(c[n + 1][0]), "+f"(c[n + 1][1]),        \
        "+f"(c[n + 1][2]), "+f"(c[n + 1][3])
#define ACCUMULATORS_4(n) ACCUMULATORS_2(n), ACCUMULATORS_2(n + 2)
#define ACCUMULATORS_8    ACCUMULATORS_4(0), ACCUMULATORS_4(4)
#define ACCUMULATORS_12   ACCUMULATORS_8, ACCUMULATORS_4(8)
#define ACCUMULATORS_16   ACCUMULATORS_12, ACCUMULATORS_4(12)
#define REGISTERS_32                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "   \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_48                                                                                         \
    REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define REGISTERS_64                                                                                         \
    REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* The operands' numbers follow the accumulators': a and b (or a's four registers and b), then accumulate. */
#define MULTIPLY_SHARED(COLUMNS, REGISTERS, ACCUMULATORS, A, B, ADD, TA, TB)                                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32.bf16.bf16 {" REGISTERS "}, " A ", " B  \
                 ", add, 1, 1, " TA ", " TB ";\n}"                                                           \
                 : ACCUMULATORS                                                                              \
                 : "l"(a), "l"(b), "r"(int(add)), "n"(int(TRANSPOSED_A)), "n"(int(TRANSPOSED_B)))
#define MULTIPLY_REGISTERS(COLUMNS, REGISTERS, ACCUMULATORS, A, B, ADD, TB)                                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32.bf16.bf16 {" REGISTERS "}, {" A        \
                 "}, " B ", add, 1, 1, " TB ";\n}"                                                           \
                 : ACCUMULATORS                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)),                        \
                   "n"(int(TRANSPOSED_B)))

/* c (64 x 8N) = a b, or += if `add`, for 16 of the columns summed over; N = 8, 12 or 16. Both operands in
 * shared memory. Warp w of the warpgroup has rows 16w to 16w + 15 as in cuda_tile.cuh: with g = lane / 4 and
 * t = lane % 4, c[n][0], c[n][1] are row g, columns 8n + 2t and 8n + 2t + 1; c[n][2], c[n][3] row g + 8. */
template <bool TRANSPOSED_A, bool TRANSPOSED_B, int N>
__device__ inline void multiply_async(float (&c)[N][4], uint64_t a, uint64_t b, bool add) {
    static_assert(N == 8 || N == 12 || N == 16, "64, 96 or 128 columns");
    if constexpr (N == 8)
        MULTIPLY_SHARED("64", REGISTERS_32, ACCUMULATORS_8, "%32", "%33", "%34", "%35", "%36");
    else if constexpr (N == 12)
        MULTIPLY_SHARED("96", REGISTERS_48, ACCUMULATORS_12, "%48", "%49", "%50", "%51", "%52");
    else
        MULTIPLY_SHARED("128", REGISTERS_64, ACCUMULATORS_16, "%64", "%65", "%66", "%67", "%68");
}

/* The same with a (64 x 16) in registers: two neighbouring accumulators, rounded and packed. They must not
 * change until the product is over. */
template <bool TRANSPOSED_B, int N>
__device__ inline void multiply_async(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    static_assert(N == 8 || N == 12 || N == 16, "64, 96 or 128 columns");
    if constexpr (N == 8)
        MULTIPLY_REGISTERS("64", REGISTERS_32, ACCUMULATORS_8, "%32, %33, %34, %35", "%36", "%37", "%38");
    else if constexpr (N == 12)
        MULTIPLY_REGISTERS("96", REGISTERS_48, ACCUMULATORS_12, "%48, %49, %50, %51", "%52", "%53", "%54");
    else
        MULTIPLY_REGISTERS("128", REGISTERS_64, ACCUMULATORS_16, "%64, %65, %66, %67", "%68", "%69", "%70");
}

/* Accumulators, rounded and packed, as left operands of the next product. */
template <int N>
__device__ inline void pack_rows(uint32_t (&left)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            left[k][i] = pack(c[2 * k + i / 2][2 * (i % 2)], c[2 * k + i / 2][2 * (i % 2) + 1]);
}

/* Rows of accumulators, times `scale` and rounded, to rows of a tensor whose vectors are whole (Rows). Four
 * lanes hold a row, two neighbours of every eight columns each; they exchange them so that each stores eight
 * neighbours. `row` is this thread's first. */
template <int N>
__device__ inline void store_rows(const float (&c)[N][4], bf16 *to, int64_t stride, int row, int end,
                                  float scale = 1.0f) {
    const int t = int(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = pack(c[n + i][2 * half] * scale, c[n + i][2 * half + 1] * scale);
#pragma unroll
            for (int distance = 1; distance <= 2; distance *= 2) // transposes 2 x 2, then 2 x 2 of those
#pragma unroll
                for (int pair = 0; pair < 2; pair++) {
                    const int low = distance == 1 ? 2 * pair : pair;
                    const bool upper = t & distance;
                    const uint32_t sent = upper ? word[low] : word[low + distance];
                    const uint32_t received = __shfl_xor_sync(~0u, sent, distance);
                    (upper ? word[low] : word[low + distance]) = received;
                }
            if (row + 8 * half < end)
                *reinterpret_cast<uint4 *>(to + (row + 8 * half) * stride + 8 * (n + t)) =
                    make_uint4(word[0], word[1], word[2], word[3]);
        }
}

} // namespace attention

#endif
