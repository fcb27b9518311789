/* hopper: one function per Hopper instruction (sm_90a): tile copies by the tensor memory accelerator
 * (TMA), mbarriers that count copied bytes, and products by a warpgroup (128 threads, aligned to 128). PTX
 * ISA, "Asynchronous warpgroup level matrix instructions" and "Tensor copies".
 *
 * In shared memory, a tile of R rows is a sequence of blocks of 64 columns, R * 128 bytes each, aligned to
 * 1024 bytes. In a block, a row is 128 bytes, and its eight 16-byte vectors are permuted: vector v of row
 * r lies at v ^ (r % 8) (the 128-byte swizzle). So eight rows of one column, or eight columns of one row,
 * lie in different banks. Copies and products use this layout. In a tile of 32 columns a row is 64 bytes,
 * and vector v of row r lies at v ^ (r / 2 % 4). */
#pragma once

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/launch.cuh"

#include <cuda.h>

namespace gpu {

constexpr int WARPGROUP = 128, BLOCK_COLUMNS = 64, ROW_BYTES = 128, NARROW_BYTES = 64;

/* Broadcasts x, so that the compiler knows it to be uniform in the warp. */
__device__ inline int uniform(int x) {
    return __shfl_sync(~0u, x, 0);
}

/* ---- tiles of tensors in global memory ---- */

/* Describes a bf16 tensor for tile copies: `rank` extents, innermost (dense) first; strides of the other
 * extents in bytes (multiples of 16); the tile's extents, innermost BLOCK_COLUMNS or half of it. Elements
 * outside the tensor read as zero and are not written. */
CHECKED Status tensor_map_encode(void *data, int rank, const cuuint64_t *extents, const cuuint64_t *strides,
                                 const cuuint32_t *tile, CUtensorMap *map);
/* The same for a matrix (rows, width) with rows `ld` elements apart, for tiles of tile_rows x tile_columns. */
CHECKED Status matrix_map_encode(const void *data, int64_t rows, int64_t width, int64_t ld, int tile_rows,
                                 CUtensorMap *map, int tile_columns = BLOCK_COLUMNS);

/* Starts the copy of the tile at (row, column). Its full size in bytes, including elements outside the
 * matrix, counts towards `barrier`. Called by one thread. */
__device__ inline void load_block_async(void *to, const CUtensorMap &map, int row, int column,
                                        uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3}], [%4];" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
}
/* The same for a tensor of four dimensions, from the start of the two between `row` and `column`. */
__device__ inline void load_block_4d_async(void *to, const CUtensorMap &map, int row, int column,
                                           uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3, %3, %4}], [%5];" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(0), "r"(row), "r"(shared_address(barrier))
        : "memory");
}
/* The same as load_block_async into every block of the cluster whose bit is set in `blocks`, at the same
 * shared-memory address; the bytes count towards each block's barrier. */
__device__ inline void load_block_to_cluster(void *to, const CUtensorMap &map, int row, int column,
                                             uint64_t *barrier, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(blocks)
                 : "memory");
}
/* The copy from shared to global memory. */
__device__ inline void store_block_async(const CUtensorMap &map, int row, int column, const void *from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
        "r"(column), "r"(row), "r"(shared_address(from))
        : "memory");
}

/* Stores are asynchronous and belong to groups. Before a store, make the tile's contents visible
 * (fence_async and a barrier). Then call commit_stores, and wait_stores_read before the tile is
 * overwritten or the block ends. */
__device__ inline void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Waits until at most PENDING of this thread's groups have not been read. */
template <int PENDING = 0>
__device__ inline void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/* Waits until this thread's committed groups are written to global memory. */
__device__ inline void wait_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Copies `bytes` (a multiple of 16) between shared and global memory. Stores and additions belong to
 * groups. */
__device__ inline void load_bytes_async(void *to, const void *from, int bytes, uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
/* Copies `bytes` of this block's shared memory to this address in the cluster's block `rank`; they count
 * towards the barrier at this address in that block. The source stays as it is until then. */
__device__ inline void send_bytes_async(void *to, const void *from, int bytes, uint64_t *barrier,
                                        uint32_t rank) {
    asm volatile("{\n.reg .b32 remote, counts;\nmapa.shared::cluster.u32 remote, %0, %4;\n"
                 "mapa.shared::cluster.u32 counts, %3, %4;\n"
                 "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [remote], [%1], %2, "
                 "[counts];\n}" ::"r"(shared_address(to)),
                 "r"(shared_address(from)), "r"(bytes), "r"(shared_address(barrier)), "r"(rank)
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

/* Byte offset of element (row, column) in a 64-column block. */
__device__ inline int swizzled(int row, int column) {
    return row * ROW_BYTES + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
}

/* Makes this thread's ordinary shared-memory stores visible to asynchronous copies and products that
 * follow a barrier. */
__device__ inline void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Orders this thread's asynchronous copies of global memory with those of other threads that a flag
 * signals. */
__device__ inline void fence_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
/* Reads a flag set by another block. */
__device__ inline int load_acquire(const int *flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ inline void store_release(int *flag, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

/* Waits until the flag equals `value`, and orders this thread's later copies after the data that it
 * signals. */
__device__ inline void wait_flag(const int *flag, int value) {
    while (load_acquire(flag) < value) {}
    fence_async_global();
}

/* The inverse of load_matrices: lane 8 m + r gives the address of row r of matrix m. */
__device__ inline void store_matrices(const uint32_t (&from)[4], void *row) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
        "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
        : "memory");
}

/* ---- barriers in shared memory: a phase ends when all arrivals and all announced bytes have come in ---- */

__device__ inline void barrier_init(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}
/* Called by the thread that initialized the barriers; __syncthreads() must follow. */
__device__ inline void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/* Arrives at the barrier of the cluster's block `rank`, to signal that this thread has read. It does not
 * order this thread's stores; that would take a fence of about a microsecond. */
__device__ inline void arrive_at(uint64_t *barrier, uint32_t rank) {
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
                 "r"(rank)
                 : "memory");
}
/* Arrives, and expects `bytes` of copies in this phase. */
__device__ inline void arrive_expecting(uint64_t *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}
/* Arrives when this thread's copies so far (copy_async_16, copy_async_8) have completed. */
__device__ inline void arrive_when_copied(uint64_t *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}
/* Waits until the phase of this parity has ended. On a new barrier, parity 1 returns at once and parity 0
 * waits. */
__device__ inline void wait(uint64_t *barrier, uint32_t parity) {
    asm volatile("{\n.reg .pred done;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* A position in a ring of STAGES tiles, and the parity of the current round. */
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
    __device__ inline void skip(int tiles) {
        parity ^= (stage + tiles) / STAGES % 2;
        stage = (stage + tiles) % STAGES;
    }
};

/* Barrier `id` (1 to 15; 0 is __syncthreads) of `threads` threads, both waiting and arriving ones. */
__device__ inline void named_wait(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* This block's rank in its cluster. */
__device__ inline uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
/* Waits for all threads of the cluster, and makes their earlier shared-memory stores visible. */
__device__ inline void cluster_wait() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* The same in two halves, with independent work between them. */
__device__ inline void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_join() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* Arrives without ordering stores, except initialized barriers; a fence would take a microsecond. */
__device__ inline void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
/* Stores to this address in the shared memory of the cluster's block `rank`. */
__device__ inline void store_to_block(uint64_t *at, uint32_t rank, uint64_t value) {
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "st.shared::cluster.b64 [remote], %2;\n}" ::"r"(shared_address(at)),
                 "r"(rank), "l"(value)
                 : "memory");
}
/* The same, with the bytes counted by the barrier at this address in that block, which expects them. A
 * thread that waits there sees the data without a fence. Four values need 16-byte alignment. */
__device__ inline void store_counted(float *at, uint64_t *barrier, uint32_t rank, float value) {
    asm volatile("{\n.reg .b32 remote, counts;\nmapa.shared::cluster.u32 remote, %0, %2;\n"
                 "mapa.shared::cluster.u32 counts, %1, %2;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [remote], %3, [counts];\n}" ::"r"(
                     shared_address(at)),
                 "r"(shared_address(barrier)), "r"(rank), "f"(value)
                 : "memory");
}
__device__ inline void store_counted(float *at, uint64_t *barrier, uint32_t rank, const float (&values)[4]) {
    asm volatile("{\n.reg .b32 remote, counts;\nmapa.shared::cluster.u32 remote, %0, %2;\n"
                 "mapa.shared::cluster.u32 counts, %1, %2;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%3, %4, %5, %6}, "
                 "[counts];\n}" ::"r"(shared_address(at)),
                 "r"(shared_address(barrier)), "r"(rank), "f"(values[0]), "f"(values[1]), "f"(values[2]),
                 "f"(values[3])
                 : "memory");
}

/* Sets the number of registers per thread of this warpgroup, a multiple of 8. Only for kernels with a
 * register limit, and only where all warps of the warpgroup execute it. */
template <int REGISTERS>
__device__ inline void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ inline void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* ---- products by a warpgroup ---- */

/* Describes a shared-memory operand of a product. `rows_operand`: the tile's rows are the operand's rows
 * (of a) or columns (of b), and the product sums along them, as in a b^T. The operand of the next 16
 * columns in a 64-column block starts 32 bytes later, of the next 8 rows 1024 bytes later.
 * `columns_operand`: the product sums over the tile's rows, as in a^T b. The operand of the next 16 rows
 * starts 2048 bytes later; further 64-column blocks follow every `block_bytes`. Use it with TRANSPOSED. */
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
/* The operand `bytes` (a multiple of 16) later. */
__device__ inline uint64_t advance(uint64_t operand, int bytes) {
    return operand + uint64_t(bytes >> 4);
}

/* Orders this thread's register accesses before a batch of products. */
__device__ inline void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING committed batches are running. */
template <int PENDING>
__device__ inline void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving accesses to accumulators across this point: use it after a wait and
 * before a batch. */
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

#define ACCUMULATORS_1 "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3])
#define ACCUMULATORS_2(n)                                                                                    \
    "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3]), "+f"(c[n + 1][0]), "+f"(c[n + 1][1]),        \
        "+f"(c[n + 1][2]), "+f"(c[n + 1][3])
#define ACCUMULATORS_4(n) ACCUMULATORS_2(n), ACCUMULATORS_2(n + 2)
#define ACCUMULATORS_8    ACCUMULATORS_4(0), ACCUMULATORS_4(4)
#define ACCUMULATORS_12   ACCUMULATORS_8, ACCUMULATORS_4(8)
#define ACCUMULATORS_16   ACCUMULATORS_12, ACCUMULATORS_4(12)
#define ACCUMULATORS_24   ACCUMULATORS_16, ACCUMULATORS_4(16), ACCUMULATORS_4(20)
#define REGISTERS_4       "%0, %1, %2, %3"
#define REGISTERS_8       REGISTERS_4 ", %4, %5, %6, %7"
#define REGISTERS_16      REGISTERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REGISTERS_32                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "   \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_48                                                                                         \
    REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define REGISTERS_64                                                                                         \
    REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_96                                                                                         \
    REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "        \
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

/* Operands are numbered after the accumulators: a and b (or a's four registers and b), then accumulate. */
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

/* c (64 x 8N) = a b, or += if `add`, for 16 columns of the sum; N = 1, 2, 4, 8, 12, 16 or 24. Both operands
 * are in shared memory. Warp w of the warpgroup has rows 16w to 16w + 15, as in cuda_tile.cuh: with g = lane
 * / 4 and t = lane % 4, c[n][0] and c[n][1] are row g, columns 8n + 2t and 8n + 2t + 1; c[n][2] and c[n][3]
 * are row g + 8. */
template <bool TRANSPOSED_A, bool TRANSPOSED_B, int N>
__device__ inline void multiply_async(float (&c)[N][4], uint64_t a, uint64_t b, bool add) {
    static_assert(N == 1 || N == 2 || N == 4 || N == 8 || N == 12 || N == 16 || N == 24, "8 to 192 columns");
    if constexpr (N == 1)
        MULTIPLY_SHARED("8", REGISTERS_4, ACCUMULATORS_1, "%4", "%5", "%6", "%7", "%8");
    else if constexpr (N == 2)
        MULTIPLY_SHARED("16", REGISTERS_8, ACCUMULATORS_2(0), "%8", "%9", "%10", "%11", "%12");
    else if constexpr (N == 4)
        MULTIPLY_SHARED("32", REGISTERS_16, ACCUMULATORS_4(0), "%16", "%17", "%18", "%19", "%20");
    else if constexpr (N == 8)
        MULTIPLY_SHARED("64", REGISTERS_32, ACCUMULATORS_8, "%32", "%33", "%34", "%35", "%36");
    else if constexpr (N == 12)
        MULTIPLY_SHARED("96", REGISTERS_48, ACCUMULATORS_12, "%48", "%49", "%50", "%51", "%52");
    else if constexpr (N == 16)
        MULTIPLY_SHARED("128", REGISTERS_64, ACCUMULATORS_16, "%64", "%65", "%66", "%67", "%68");
    else
        MULTIPLY_SHARED("192", REGISTERS_96, ACCUMULATORS_24, "%96", "%97", "%98", "%99", "%100");
}

/* The same with a (64 x 16) in registers: two neighbouring accumulators, rounded and packed. They must not
 * change until the product has completed. */
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

} // namespace gpu
