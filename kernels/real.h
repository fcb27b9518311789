/* real: the arithmetic type of the specification. The Makefile compiles every cpu_naive.c twice, with
 * -DREAL=float and with -DREAL=double; SPEC(norm_forward) names norm_forward_cpu_naive_float or
 * norm_forward_cpu_naive_double. */
#ifndef KERNELS_REAL_H
#define KERNELS_REAL_H

#define SPEC_JOIN(name, type)   name##_cpu_naive_##type
#define SPEC_EXPAND(name, type) SPEC_JOIN(name, type)
#define SPEC(name)              SPEC_EXPAND(name, REAL)

typedef REAL real;

#endif
