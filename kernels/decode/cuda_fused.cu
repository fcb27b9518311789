#include "kernels/decode/cuda_rows.cuh"

#include "kernels/attention/cuda_problem.cuh"
#include "kernels/decode/decode.h"

/* Launches the decoder's kernels (cuda_rows.cuh). */
namespace decode {
namespace {

constexpr float LOG2_E = 1.4426950408889634f;

struct Sizes {
    int64_t C, D, hidden;
};

Sizes sizes_of(const Decode *d) {
    const DecodeLayer *l = &d->layers[0];
    return {tensor_width(d->token), tensor_width(l->projection.weight) / d->heads,
            tensor_width(l->contract.weight)};
}

bool aligned(const Decode *d) {
    const auto at_16 = [](const Tensor &t) {
        return tensor_empty(t) || walks_in_packs(1, {}, {static_cast<const void *>(t.data)});
    };
    bool all = at_16(d->token) && at_16(d->head) && at_16(d->final_norm.weight) && at_16(d->final_norm.bias);
    for (int64_t i = 0; i < d->layer_count; i++) {
        const DecodeLayer *l = &d->layers[i];
        const DecodeAffine *const affine[] = {
            &l->norm1,  &l->qkv,      &l->projection,       &l->cross_norm, &l->norm2,   &l->query,
            &l->expand, &l->contract, &l->cross_projection, &l->query_norm, &l->key_norm};
        for (const DecodeAffine *a : affine) all = all && at_16(a->weight) && at_16(a->bias);
        all = all && at_16(l->cache_k) && at_16(l->cache_v) && at_16(l->memory);
    }
    return all;
}

bool fits(const Ctx *ctx, const Decode *d) {
    const Sizes s = sizes_of(d);
    const Tensor &memory = d->layers[0].memory;
    const DecodeSizes sizes = {s.C, s.D, s.hidden, !tensor_empty(memory)};
    return decode_cuda_serves(ctx, &sizes) && aligned(d) && tensor_rows(d->head) <= INT32_MAX / 2 &&
           (tensor_empty(memory) || tensor_rows(memory) <= INT32_MAX / 2);
}

int64_t layer_bytes(const DecodeLayer *l) {
    int64_t bytes = 0;
    for (const DecodeAffine *a :
         {&l->qkv, &l->projection, &l->expand, &l->contract, &l->query, &l->cross_projection})
        if (!tensor_empty(a->weight)) bytes += int64_t(tensor_bytes(a->weight));
    return bytes;
}

/* A token on its way through the layers. */
struct Token {
    Ctx *ctx;
    const Decode *d;
    const DecodeLayer *l;
    Tensor stream, kept;        // (C): r, and its normalized row where it is needed
    Tensor qkv, heads, hidden;  // ((heads + 2 kv_heads) D), (heads*D), (hidden)
    const DecodeAffine *before; // with the norm after a branch: the last branch's norm, which `stream` awaits
    bool begun;                 // the token's first product has been launched
    int64_t layer_bytes;        // of the weights of a layer
};

Status take_buffers(Ctx *ctx, Token *t) {
    const Decode *d = t->d;
    const Sizes s = sizes_of(d);
    const int64_t qkv = (d->heads + 2 * d->kv_heads) * s.D;
    TRY(take(ctx, ARENA_SCRATCH, "decode.stream", ctx->dtype, shape1(s.C), &t->stream));
    TRY(take(ctx, ARENA_SCRATCH, "decode.kept", ctx->dtype, shape1(s.C), &t->kept));
    TRY(take(ctx, ARENA_SCRATCH, "decode.qkv", ctx->dtype, shape1(qkv), &t->qkv));
    TRY(take(ctx, ARENA_SCRATCH, "decode.heads", ctx->dtype, shape1(d->heads * s.D), &t->heads));
    return take(ctx, ARENA_SCRATCH, "decode.hidden", ctx->dtype, shape1(s.hidden), &t->hidden);
}

template <class T>
Status embed_token(Token *t) {
    const Decode *d = t->d;
    Embed<T> e = {};
    e.token = data_of<T>(d->token);
    e.position = data_of<T>(d->position);
    e.id = data_of<int>(d->token_id);
    e.past = data_of<int>(d->past_on_device);
    e.rows = int(d->past);
    e.width = int(tensor_width(d->token));
    e.token_scale = float(d->token_scale);
    e.r = data_of<T>(t->stream);
    PRIMITIVE (t->ctx, "embed", EMBEDDING) TRY(embed(t->ctx, e));
    return OK;
}

template <class T>
Product<T> product_of(Token *t, const Tensor &x, const DecodeAffine &by, const Tensor &y) {
    Product<T> p = {};
    p.x = data_of<T>(x);
    if (by.weight.dtype == I8) {
        p.codes = data_of<int8_t>(by.weight);
        p.scales = static_cast<const bf16 *>(by.weight.scales);
    } else {
        p.weight = data_of<T>(by.weight);
    }
    p.bias = data_of<T>(by.bias);
    p.y = data_of<T>(y);
    p.in = int(tensor_width(by.weight));
    p.out = int(tensor_rows(by.weight));
    p.layer_bytes = t->layer_bytes;
    p.inverse = 1.f / float(p.in);
    p.eps = float(t->d->eps);
    p.activation = ACTIVATION_NONE;
    p.first = !t->begun;
    t->begun = true;
    return p;
}

/* A product of the stream, normalized for the branch whose norm is `own`. */
template <class T>
Product<T> enter(Token *t, const DecodeAffine &own, const DecodeAffine &by, const Tensor &y) {
    Product<T> p = product_of<T>(t, t->stream, by, y);
    const bool after = t->d->norm_after;
    if (const DecodeAffine *norm = after ? t->before : &own) {
        p.norm = data_of<T>(norm->weight);
        p.norm_bias = data_of<T>(norm->bias);
        if (after) p.kept = data_of<T>(t->kept);
    }
    return p;
}

/* Adds the branch's output to the stream. */
template <class T>
Status leave(Token *t, const DecodeAffine &own, const Tensor &from, const DecodeAffine &by) {
    Product<T> p = product_of<T>(t, from, by, t->stream);
    p.skip = data_of<T>(t->before ? t->kept : t->stream);
    t->before = t->d->norm_after ? &own : nullptr;
    return product(t->ctx, p, false);
}

template <class T>
Heads<T> heads_of(const Token *t) {
    const Decode *d = t->d;
    Heads<T> h = {};
    h.qkv = data_of<T>(t->qkv);
    h.heads = int(d->heads);
    h.kv_heads = int(d->kv_heads);
    h.eps = float(d->eps);
    h.scale = float(d->scale) * LOG2_E;
    h.y = data_of<T>(t->heads);
    return h;
}

/* Whether attention is that of kernels/attention, with the bits that the token has among others. */
bool attends_in_order(const Token *t) {
    const int64_t D = sizes_of(t->d).D;
    return t->ctx->fuses & FUSE_INVARIANT || !heads_suit(D) ||
           attention::token_suits(t->ctx, D, t->d->kv_heads, tensor_rows(t->l->cache_k));
}

Status attend_in_order(Token *t) {
    const DecodeLayer *l = t->l;
    AttentionForward a = decode_attention(t->d, l, t->qkv);
    a.y = tensor_reshape(t->heads, a.q.shape);
    return attention::forward_token(t->ctx, &a,
                                    {data_of<bf16>(l->query_norm.weight), data_of<bf16>(l->key_norm.weight),
                                     data_of<float>(a.frequencies), 1.f / float(sizes_of(t->d).D),
                                     float(t->d->eps)});
}

template <class T>
Status attend(Token *t) {
    const Decode *d = t->d;
    const DecodeLayer *l = t->l;
    Heads<T> h = heads_of<T>(t);
    h.query_norm = data_of<T>(l->query_norm.weight);
    h.key_norm = data_of<T>(l->key_norm.weight);
    h.frequencies = data_of<float>(d->frequencies);
    h.cache_k = data_of<T>(l->cache_k);
    h.cache_v = data_of<T>(l->cache_v);
    h.past = data_of<int>(d->past_on_device);
    h.rows = int(d->past);
    h.capacity = int(tensor_rows(l->cache_k));
    h.row_stride = int(tensor_width(l->cache_k));
    PRIMITIVE (t->ctx, "attention", ATTENTION) TRY(heads(t->ctx, h, int(sizes_of(d).D), false));
    return OK;
}

template <class T>
Status self_attention(Token *t) {
    const DecodeLayer *l = t->l;
    PRIMITIVE (t->ctx, "norm, qkv", MATRIX)
        TRY(product(t->ctx, enter<T>(t, l->norm1, l->qkv, t->qkv), false));
    TRY(sizeof(T) == sizeof(bf16) && attends_in_order(t) ? attend_in_order(t) : attend<T>(t));
    PRIMITIVE (t->ctx, "projection", MATRIX) TRY(leave<T>(t, l->norm1, t->heads, l->projection));
    return OK;
}

template <class T>
Status cross_attention(Token *t) {
    const DecodeLayer *l = t->l;
    PRIMITIVE (t->ctx, "norm, query", MATRIX)
        TRY(product(t->ctx, enter<T>(t, l->cross_norm, l->query, t->qkv), false));
    Heads<T> h = heads_of<T>(t);
    h.cache_k = data_of<T>(l->memory);
    h.cache_v = h.cache_k + tensor_width(l->memory) / 2;
    h.past = data_of<int>(t->d->memory_length);
    h.rows = h.capacity = int(tensor_rows(l->memory));
    h.row_stride = int(tensor_width(l->memory));
    PRIMITIVE (t->ctx, "cross attention", ATTENTION) TRY(heads(t->ctx, h, int(sizes_of(t->d).D), true));
    PRIMITIVE (t->ctx, "cross projection", MATRIX)
        TRY(leave<T>(t, l->cross_norm, t->heads, l->cross_projection));
    return OK;
}

template <class T>
Status feed_forward(Token *t) {
    const DecodeLayer *l = t->l;
    const bool gated = activation_gated(t->d->activation);
    Product<T> p = enter<T>(t, l->norm2, l->expand, t->hidden);
    p.out = int(tensor_count(t->hidden));
    if (!gated) p.activation = t->d->activation;
    PRIMITIVE (t->ctx, "norm, expand", MATRIX) TRY(product(t->ctx, p, gated));
    PRIMITIVE (t->ctx, "contract", MATRIX) TRY(leave<T>(t, l->norm2, t->hidden, l->contract));
    return OK;
}

template <class T>
Status forward(Ctx *ctx, const Decode *d) {
    Token t = {};
    t.ctx = ctx;
    t.d = d;
    t.layer_bytes = layer_bytes(&d->layers[0]);
    TRY(take_buffers(ctx, &t));
    TRY(embed_token<T>(&t));
    for (int64_t i = 0; i < d->layer_count; i++) {
        t.l = &d->layers[i];
        TRY(self_attention<T>(&t));
        if (!tensor_empty(t.l->memory)) TRY(cross_attention<T>(&t));
        TRY(feed_forward<T>(&t));
    }
    Product<T> p = enter<T>(&t, d->final_norm, {d->head, {}}, {});
    p.logits = data_of<float>(d->logits);
    p.kept = nullptr; // no branch follows
    PRIMITIVE (ctx, "norm, head", MATRIX) TRY(product(ctx, p, false));
    return OK;
}

} // namespace
} // namespace decode

bool decode_cuda_serves(const Ctx *ctx, const DecodeSizes *s) {
    const int64_t D = s->head_size, most = 1 << 17;
    if (cuda_device(ctx)->capability != 90) return false;
    if (ctx->dtype == BF16)
        return D % 16 == 0 && D <= attention::TENSOR_WIDTH && (decode::heads_suit(D) || !s->memory) &&
               decode::product_has_order(s->width) && decode::product_has_order(s->hidden);
    return decode::heads_suit(D) && s->width % 8 == 0 && s->hidden % 8 == 0 && s->width <= most &&
           s->hidden <= most && !(ctx->fuses & FUSE_INVARIANT);
}

template <class T>
static Status decode_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const Decode *d = static_cast<const Decode *>(contract);
    if (!decode::fits(ctx, d))
        return fail(ERROR_INTERNAL,
                    "decode: no kernel supports these sizes or addresses; see decode_cuda_serves()");
    return decode::forward<T>(ctx, d);
}
SLOT(DECODE, FORWARD, CUDA, FUSED, F32, decode_forward_cuda_fused<float>);
SLOT(DECODE, FORWARD, CUDA, FUSED, BF16, decode_forward_cuda_fused<bf16>);
