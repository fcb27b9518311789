/* real: the arithmetic type of the specification. The Makefile compiles every cpu_naive.c twice, with
 * -DREAL=float and with -DREAL=double: `real` is that type and REAL_DTYPE its dtype, F32 or F64. What one
 * room's specification lends to others is named by it too: SPEC(dropout_apply) is
 * dropout_apply_cpu_naive_float or dropout_apply_cpu_naive_double. */
#pragma once

#include "kernels/simd.h"

#define SPEC_JOIN(name, type)   name##_cpu_naive_##type
#define SPEC_EXPAND(name, type) SPEC_JOIN(name, type)
#define SPEC(name)              SPEC_EXPAND(name, REAL)

#define REAL_DTYPE_float      F32
#define REAL_DTYPE_double     F64
#define REAL_DTYPE_JOIN(type) REAL_DTYPE_##type
#define REAL_DTYPE_OF(type)   REAL_DTYPE_JOIN(type)
#define REAL_DTYPE            REAL_DTYPE_OF(REAL)

typedef REAL real;

/* In double precision these are the library's, which is the specification. In fp32 they are what compilers turn
 * into vector code, as the fused forms have: so that what a fused form saves is not this. */
#define real_exp(x)  _Generic((x), float : simd_exp, double : exp)(x)
#define real_tanh(x) _Generic((x), float : simd_tanh, double : tanh)(x)
#define real_erfc(x) _Generic((x), float : simd_erfc, double : erfc)(x)
