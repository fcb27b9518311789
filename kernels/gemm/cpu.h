/* gemm on the CPU: who computes a product. */
#pragma once

#include "kernels/gemm/gemm.h"

__BEGIN_DECLS

/* bf16 operands by OpenBLAS: widened to fp32, the sum rounded once where C is bf16. The naive form's product,
 * and everybody's where there is no oneDNN. */
CHECKED Status gemm_cpu_converted(Ctx *ctx, const Gemm *g);

/* Whether products in bf16 are faster here than in fp32: oneDNN, on a processor with instructions for them. */
bool gemm_cpu_bf16_fast(void);

__END_DECLS
