/* cpu_amx: blocks of bf16 attention on Intel AMX tiles. The blocks are those of cpu_fused.c; products are
 * bf16 with fp32 sums, the softmax is fp32, and its weights are rounded to bf16 for the products that read
 * them. */
#pragma once

#include "kernels/attention/cpu_blocks.h"

__BEGIN_DECLS

/* Floats of scratch per thread. Weak symbols: NULL in a build for other processors. */
__attribute__((weak)) int64_t amx_forward_floats(const AttentionProblem *p);
__attribute__((weak)) int64_t amx_query_floats(const AttentionProblem *p);
__attribute__((weak)) int64_t amx_backward_floats(const AttentionProblem *p);

/* Computes queries [first, first + QUERY_BLOCK) of head h in batch row b. */
__attribute__((weak)) void amx_forward_block(const AttentionProblem *p, int64_t b, int64_t h, int64_t first,
                                             float *scratch);

/* Computes query i of head h in batch row b, with the same bits but without dropout. */
__attribute__((weak)) void amx_forward_query(const AttentionProblem *p, int64_t b, int64_t h, int64_t i,
                                             float *scratch);

/* Computes all gradients of one key/value head. */
__attribute__((weak)) void amx_backward_head(const AttentionProblem *p, const AttentionBackward *g, int64_t b,
                                             int64_t kv, float *scratch);

__END_DECLS
