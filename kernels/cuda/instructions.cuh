/* instructions: one function per instruction for tiles in shared memory and their products, on GPUs from
 * sm_80. Hopper's instructions are in hopper.cuh. */
#pragma once

#include <cuda_bf16.h>
#include <stdint.h>

namespace gpu {

__device__ inline uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/* Starts a copy of 16 (8) bytes from global to shared memory; if not `inside`, writes zeros and reads
 * nothing. */
__device__ inline void copy_async_16(void *to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ inline void copy_async_8(void *to, const void *from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(inside ? 8 : 0)
                 : "memory");
}

/* Ends a group of this thread's copies; waits until at most LATER groups are running. */
__device__ inline void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LATER>
__device__ inline void copy_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

/* Waits for this thread's copies. */
__device__ inline void copy_async_wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Keeps values in registers that must soon be at hand. A value comes back from a shuffle with itself, through
 * which neither compiler nor assembler sees, so that neither computes it later or again from what it came
 * from. Called by whole warps. */
template <class T>
__device__ inline void settle(T &value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a number or an address of global memory");
    if constexpr (sizeof(T) == 8) {
        asm volatile("{\n.reg .b32 low, high;\nmov.b64 {low, high}, %0;\n"
                     "shfl.sync.bfly.b32 low, low, 0, 31, -1;\n"
                     "shfl.sync.bfly.b32 high, high, 0, 31, -1;\nmov.b64 %0, {low, high};\n}"
                     : "+l"(value));
        __builtin_assume(__isGlobal(value));
    } else {
        asm volatile("shfl.sync.bfly.b32 %0, %0, 0, 31, -1;" : "+r"(value));
    }
}
__device__ inline void settle(float &value) {
    asm volatile("shfl.sync.bfly.b32 %0, %0, 0, 31, -1;" : "+f"(value));
}
template <class First, class... Others>
__device__ inline void settle(First &first, Others &...others) {
    settle(first);
    settle(others...);
}

/* Loads and stores shared memory by its address, so that a kernel can settle the address. */
__device__ inline float load_shared(uint32_t from) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
    return x;
}
__device__ inline void load_shared(uint32_t from, float (&x)[2]) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(from) : "memory");
}
__device__ inline void load_shared(uint32_t from, float (&x)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(from)
                 : "memory");
}
__device__ inline uint32_t load_shared_word(uint32_t from) {
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}
/* A bf16 as a float. */
__device__ inline float load_shared_bf16(uint32_t from) {
    uint16_t x;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(x) : "r"(from) : "memory");
    return __uint_as_float(uint32_t(x) << 16);
}
__device__ inline void load_shared(uint32_t from, uint32_t (&x)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from)
                 : "memory");
}
__device__ inline void store_shared(uint32_t to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
__device__ inline void store_shared(uint32_t to, const float (&x)[4]) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]),
                 "f"(x[3])
                 : "memory");
}
__device__ inline void store_shared(uint32_t to, const uint32_t (&x)[2]) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x[0]), "r"(x[1]) : "memory");
}
__device__ inline void store_shared(uint32_t to, const uint32_t (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]),
                 "r"(x[3])
                 : "memory");
}

/* Loads four 8 x 8 matrices of bf16: lane 8 m + r gives the address of row r of matrix m; register m
 * receives, in lane 4 g + t, elements 2t and 2t + 1 of row g, or, transposed, of column g. */
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
__device__ inline void load_matrices(uint32_t (&to)[4], const void *row) {
    load_matrices(to, shared_address(row));
}

__device__ inline void load_matrices_transposed(uint32_t (&to)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const void *row) {
    load_matrices_transposed(to, shared_address(row));
}

/* Transposes an 8 x 8 matrix of bf16, of which lane 4 g + t has elements 2t and 2t + 1 of row g. */
__device__ inline uint32_t transposed(uint32_t matrix) {
    uint32_t to;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(matrix));
    return to;
}

/* The place of 8 columns of a row in a tile with rows of WIDTH columns, 64 or more, for load_matrices: those
 * of eight rows are in different banks. */
template <int WIDTH>
__device__ inline int eight_columns(int row, int eight) {
    return row * WIDTH + (eight ^ row % 8) * 8;
}

/* d = c + a b: 16 x 16 by 16 x 8, bf16 with fp32 accumulators. */
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]),
          "f"(c[3]));
}

/* Rounds two numbers to bf16, `low` in the low half. */
__device__ inline uint32_t pack(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/* 2^x by the special function unit; 0 for -inf. */
__device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x by the special function unit: relative error 2^-23; 0 for infinities. */
__device__ inline float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / (1 + exp(-z)), in powers of 2; overflow to infinity gives 0. */
__device__ inline float sigmoid(float z) {
    return reciprocal(1.f + power_of_two(-1.4426950408889634f * z));
}
/* silu(gate) * up, the same bits in every kernel that multiplies gated layers by tiles. */
__device__ inline float gated(float gate, float up) {
    return gate * (sigmoid(gate) * up);
}

} // namespace gpu
