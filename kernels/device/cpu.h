/* cpu: what the CPU's device keeps beside the common part: OpenBLAS, opened at run time. Linked, it would choose its
 * kernels before main() runs: OpenBLAS up to 0.3.21 takes AVX2 ones on newer AMD CPUs that have AVX-512, at half the
 * speed. Opened here, it can be told first (unless OPENBLAS_CORETYPE is set already). */
#ifndef KERNELS_CPU_H
#define KERNELS_CPU_H

#include "kernels/device/device.h"

#include <cblas.h>

typedef struct {
    Device base;
    void *library;
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_dgemm) *dgemm;
} CpuDevice;

#endif
