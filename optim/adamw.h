/* adamw: Adam with decoupled weight decay, after clipping by the global norm of the gradient. It equals
 * torch.optim.AdamW after torch.nn.utils.clip_grad_norm_. All parameters are in one flat space of P
 * elements; a call works on its range [first, first + N). An update has three steps, so that a
 * communicator can complete the sums between them. `steps` selects the steps of a call:
 *
 * ADAMW_SUM     squares[b] = sum of g^2            over the elements of the range in its block b
 *
 * ADAMW_CLIP    norm = sqrt(sum of all squares)
 *                 factor = min(1, clip / (norm + 1e-6))                  1 if clip is 0
 *                 skipped = 0                        1 if the norm or the loss is not finite
 *                 updates = updates + 1              unchanged if skipped
 *
 * ADAMW_APPLY   g = factor * g                     m, v, w unchanged if skipped
 *                 m = beta1 * m + (1 - beta1) * g
 *                 v = beta2 * v + (1 - beta2) * g^2
 *                 w = w - lr * decay * w             only parameters with weight decay
 *                 w = w - lr * m_hat / (sqrt(v_hat) + eps)
 *                     m_hat = m / (1 - beta1^updates)
 *                     v_hat = v / (1 - beta2^updates)
 *
 * Loshchilov, Hutter 2019, algorithm 2 (AdamW); Kingma, Ba 2015, algorithm 1 (moments and bias
 * correction); Pascanu, Mikolov, Bengio 2013, algorithm 1 (clipping by the norm).
 *
 * Moments may be bf16. The update uses them as computed in fp32, then rounds each stochastically by 16
 * bits of Philox: element i of the flat space takes word i % 4 of the block (i / 4, updates), m the lower
 * half and v the upper. So an update has the same bits in every run, on any number of ranks, and after a
 * resume.
 *
 * If the weights are bf16, w is the fp32 master and the bf16 weight its rounding. Gaps between parameters
 * are zero in every tensor and stay zero. Blocks are cut from the flat space, not from the range, and
 * squares are added in order: the norm has the same bits on any number of threads, and in any division
 * into ranges at block boundaries (other divisions change the rounding of an fp64 sum). */
#pragma once

#include "base/random.h"
#include "kernels/op.h"

__BEGIN_DECLS

enum {
    ADAMW_UNIT = 64,       // elements: parameters and ranges begin at multiples of this
    ADAMW_BLOCK = 1 << 15, // elements per partial sum of squares
    ADAMW_WORD = 32 * ADAMW_UNIT
};

enum { ADAMW_SUM = 1, ADAMW_CLIP = 2, ADAMW_APPLY = 4, ADAMW_WHOLE = 7 };

/* Elements of the state tensor. */
enum {
    ADAMW_LEARNING_RATE, // in: set by the host before the step
    ADAMW_UPDATES,       // in and out: number of updates applied
    ADAMW_NORM,          // out: global gradient norm before clipping
    ADAMW_FACTOR,        // out: factor applied to the gradient
    ADAMW_SKIPPED,       // out: 1 if this update is skipped
    ADAMW_PREPARED,      // further elements: values that the form prepares in ADAMW_CLIP for ADAMW_APPLY
    ADAMW_STATE_SIZE = 8
};

/* Elements [first, first + count) of the flat space. */
typedef struct {
    int64_t first, count;
    bool decays; // weight decay applies
} AdamwParameter;

typedef struct {
    unsigned steps;
    int64_t first;   // a multiple of ADAMW_UNIT; N is one, too
    Tensor weight;   // (N) dtype of the computation
    Tensor master;   // (N) fp32; empty if weight is fp32 or fp64
    Tensor gradient; // (N) fp32
    Tensor m, v;     // (N) fp32, or both bf16
    Tensor decays;   // (adamw_words(P)) i32, of the flat space, from adamw_mark
    Tensor squares;  // (adamw_blocks(first, N)) fp64; in ADAMW_CLIP the squares of all ranges
    Tensor loss;     // (1) fp32: for the check of finiteness
    Tensor state;    // (ADAMW_STATE_SIZE) fp32 (fp64 in fp64), device memory
    int count;       // parameters
    const AdamwParameter *parameters; // (count) host memory, in order; they cover the flat space
    double beta1, beta2, eps, weight_decay, clip;
} Adamw;

CHECKED Status adamw_update(Ctx *ctx, const Adamw *a);

/* Blocks that a range touches. */
int64_t adamw_blocks(int64_t first, int64_t count);

/* The table of parameters with weight decay: a bit per ADAMW_UNIT elements of the flat space, lowest bit
 * first. adamw_mark sets bits in the zeroed `words`. */
int64_t adamw_words(int64_t elements);
void adamw_mark(const AdamwParameter *parameters, int count, int32_t *words);

/* Whether weight decay applies to a unit of the flat space. */
static inline bool adamw_decays(const int32_t *words, int64_t unit) {
    return (uint32_t)words[unit / 32] >> unit % 32 & 1;
}

/* For the forms: the counter of the random block for elements [4 * block, 4 * block + 4) of the flat
 * space. The key is zero. */
static inline RandomBlock adamw_counter(int64_t block, uint32_t updates) {
    return (RandomBlock){{(uint32_t)block, (uint32_t)(block >> 32), updates, 0}};
}

/* For the forms: the part of the range in its block b, or in parameter i (possibly of count 0). Positions
 * are relative to the range. */
AdamwParameter adamw_block(const Adamw *a, int64_t b);
AdamwParameter adamw_part(const Adamw *a, int i);

__END_DECLS
