/* cpu_amx: blocks of bf16 on the tiles of AMX (Intel, since 2023): the same blocks as in cpu_fused.c, with
 * products of bf16 and sums of fp32; the softmax stays fp32, and its weights are rounded to bf16 for the
 * products that they enter. */
#pragma once

#include "kernels/attention/cpu_blocks.h"

__BEGIN_DECLS

/* Floats of scratch that one thread needs. Weak symbols: NULL in a build for other processors. */
__attribute__((weak)) int64_t amx_forward_floats(const AttentionProblem *p);
__attribute__((weak)) int64_t amx_backward_floats(const AttentionProblem *p);

/* Queries [first, first + QUERY_BLOCK) of head h in batch row b. */
__attribute__((weak)) void amx_forward_block(const AttentionProblem *p, int64_t b, int64_t h, int64_t first,
                                             float *scratch);

/* All that one key/value head takes part in. */
__attribute__((weak)) void amx_backward_head(const AttentionProblem *p, const AttentionBackward *g, int64_t b,
                                             int64_t kv, float *scratch);

__END_DECLS
