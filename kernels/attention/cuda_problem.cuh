/* cuda_problem: the parameters of the CUDA attention kernels, and the kernels' launchers. A Problem is passed
 * to a kernel by value. Every kernel masks accesses beyond T, S, D and the key lengths: nothing outside is
 * read or written, and rows of k and v at or beyond a batch row's key length count as zero. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/dropout/cuda_mask.cuh"

#include <cuda_bf16.h>

namespace attention {

/* Rows of a view: element (b, i, c) is at b * batch + i * row + c. */
struct Rows {
    void *data;
    int64_t batch, row; // elements
    bool vector;        // every head's columns begin at 16-byte addresses and are whole 16-byte vectors
};

struct Problem {
    Rows q, k, v, y;        // (B, T, heads*D), (B, S, kv_heads*D) twice, (B, T, heads*D)
    Rows dy, dq, dk, dv;    // backward only
    const int *key_lengths; // (B) or NULL
    const int *starts;      // (B, T), or NULL: documents' starts, see attention.h
    float *lse;             // (B, heads, T), or NULL when nothing is saved
    float2 *statistics;     // (B, heads, T): lse in base 2 (+inf for -inf), delta; backward only
    float *dq_sums;         // scratch of backward_hopper, like `turns`; else NULL
    int *turns;
    const float2
        *angles; // (T, D/2) cosines and sines for backward_hopper, which rotates dq and dk back; or NULL
    int batch, queries, keys;          // B, T, S
    int heads, kv_heads, group, width; // group = heads / kv_heads; width = D
    bool causal;
    float scale;
    Dtype dtype; // dtype of q, k, v, y and their gradients
    DropoutMask dropout;
};

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* The key length of batch row b, in [0, S]. */
__device__ inline int key_length(const Problem &p, int b) {
    return p.key_lengths ? max(0, min(p.key_lengths[b], p.keys)) : p.keys;
}

/* The number of keys that query i sees, without regard to documents, given the batch row's key length. */
__device__ inline int keys_seen(const Problem &p, int length, int i) {
    return p.causal ? max(0, min(length, i + p.keys - p.queries + 1)) : length;
}

/* The first query that may see key j; it may lie beyond the last query. */
__device__ inline int first_query(const Problem &p, int j) {
    return p.causal ? max(0, j - (p.keys - p.queries)) : 0;
}

/* The first key that query i of batch row b sees; T = S if there are several documents. */
__device__ inline int first_key(const Problem &p, int b, int i) {
    return p.starts ? p.starts[int64_t(b) * p.queries + min(i, p.queries - 1)] : 0;
}

/* The first query of batch row b after key j's document; beyond the last query if there is none. */
__device__ inline int document_end(const Problem &p, int b, int j) {
    int low = j + 1, high = p.queries;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (first_key(p, b, middle) > j)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The factor of a probability under dropout: 0, or 1 / (1 - rate). One element, or two neighbours starting at
 * an even key. */
__device__ inline float kept(const Problem &p, uint32_t draw, int b, int head, int i, int key) {
    float x[1] = {1.f};
    drop<1>(p.dropout, draw, (int64_t(b) * p.heads + head) * p.queries + i, key, x);
    return x[0];
}

__device__ inline float2 kept_two(const Problem &p, uint32_t draw, int b, int head, int i, int key) {
    const int64_t row = (int64_t(b) * p.heads + head) * p.queries + i;
    const uint4 words = dropout_words(p.dropout, draw, row, key / 4);
    const uint32_t first = key % 4 ? words.z : words.x, second = key % 4 ? words.w : words.y;
    return make_float2(first >= p.dropout.least ? p.dropout.factor : 0.f,
                       second >= p.dropout.least ? p.dropout.factor : 0.f);
}

/* Row 0 of the columns of `head` in batch row b. */
template <typename T>
__device__ inline T *head_rows(const Problem &p, const Rows &rows, int b, int head) {
    return static_cast<T *>(rows.data) + b * rows.batch + int64_t(head) * p.width;
}

/* The tile and head of a block. Tiles vary fastest, so that the blocks of a head share its keys and values in
 * L2; under a causal mask a head's longest tile comes first. */
struct HeadTile {
    int tile, head, b;
};

__device__ inline HeadTile block_tile(int tiles, int heads) {
    int rest = int(blockIdx.x) / tiles;
    return {int(blockIdx.x) % tiles, rest % heads, rest / heads};
}

/* The launchers: bf16 on tensor cores; any case (fp32, bf16, any D) by fused multiply-adds in fp32; a few
 * queries against many keys. All write p->lse unless it is NULL. */
constexpr int TENSOR_WIDTH = 128, DECODE_WIDTH = ATTENTION_WIDTH, DECODE_QUERIES = ATTENTION_FEW;

/* Shared memory that is enough for each of the tensor-core kernels. */
constexpr size_t tensor_shared_bytes(int width) {
    return (width <= 64 ? 74 : 120) * 1024;
}
/* Whether tiles of 128 rows make enough blocks to fill the device, for `rows` rows in each of `heads`
 * heads. */
static inline bool fills_device(const Ctx *ctx, int64_t heads, int64_t rows) {
    return divide_up(rows, 128) * heads >= 3 * int64_t(cuda_device(ctx)->multiprocessors);
}

/* The same with Hopper's instructions; requires fits_hopper_forward. */
bool fits_hopper_forward(const Ctx *ctx, const Problem &p);
CHECKED Status forward_hopper(Ctx *ctx, const Problem *p);
/* The backward pass; requires fits_hopper_backward. take_hopper_backward sets dq_sums and turns. */
bool fits_hopper_backward(const Ctx *ctx, const Problem &p);
CHECKED Status take_hopper_backward(Ctx *ctx, Problem *p);
CHECKED Status backward_hopper(Ctx *ctx, const Problem *p);
/* bf16 heads up to TENSOR_WIDTH, if the device has enough shared memory for the tiles. */
bool fits_tensor_cores(const Ctx *ctx, const Problem &p);
CHECKED Status forward_tensor(Ctx *ctx, const Problem *p);
CHECKED Status backward_tensor(Ctx *ctx, const Problem *p);
CHECKED Status forward_exact(Ctx *ctx, const Problem *p);
CHECKED Status backward_exact(Ctx *ctx, const Problem *p);
/* Also appends to the cache. */
CHECKED Status forward_decode(Ctx *ctx, const Problem *p, const AttentionForward *a);

/* What a decoder's token has not had before: norms of its heads, rotary positions. */
struct TokenTurn {
    const bf16 *query_norm, *key_norm; // (D) or NULL
    const float *frequencies;          // (D/2) or NULL
    float inverse, eps;                // 1 / D
};
/* Attention of one token in bf16 to the cache and itself, with its turn, in one kernel: a part of decoding a
 * token. The bits are those of forward_decode. */
CHECKED Status forward_token(Ctx *ctx, const AttentionForward *a, const TokenTurn &turn);
/* Whether it is faster than kernels/decode/cuda_heads.cu for up to `longest` keys, as measured: where there are
 * many, its clusters need enough key heads to fill the device. Heads of 128 with many keys: not measured. */
bool token_suits(const Ctx *ctx, int64_t width, int64_t kv_heads, int64_t longest);

CHECKED Status make_problem(const AttentionForward *a, Problem *p);

/* A view's rows as (b, i, c), with `head_columns` columns per head. */
Rows make_rows(const Tensor &t, int64_t head_columns);

} // namespace attention
