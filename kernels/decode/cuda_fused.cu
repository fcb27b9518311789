#include "kernels/decode/cuda_token.cuh"

/* The stack as launches of the kernels of cuda_token.cuh; where they do not fit, the composition of fused
 * forms. */
namespace decode {
namespace {

constexpr float LOG2_E = 1.4426950408889634f;

struct Sizes {
    int64_t C, D, hidden;
    size_t size; // of an element
};

Sizes sizes_of(const Decode *d) {
    const DecodeLayer *l = &d->layers[0];
    return {tensor_width(d->token), tensor_width(l->projection.weight) / d->heads,
            tensor_rows(l->expand.weight), dtype_size(d->token.dtype)};
}

bool aligned(const Decode *d) {
    const auto at_16 = [](const Tensor &t) {
        return walks_in_packs(1, {}, {static_cast<const void *>(t.data)});
    };
    bool all = at_16(d->token) && at_16(d->position) && at_16(d->head) && at_16(d->final_norm.weight) &&
               at_16(d->final_norm.bias);
    for (int64_t i = 0; i < d->layer_count; i++) {
        const DecodeLayer *l = &d->layers[i];
        const DecodeAffine *const affine[] = {&l->norm1, &l->qkv,    &l->projection,
                                              &l->norm2, &l->expand, &l->contract};
        for (const DecodeAffine *a : affine) all = all && at_16(a->weight) && at_16(a->bias);
        all = all && at_16(l->cache_k) && at_16(l->cache_v);
    }
    return all;
}

bool fits(const Ctx *ctx, const Decode *d) {
    const Sizes s = sizes_of(d);
    const size_t own = 12288,
                 room = cuda_device(ctx)->shared_bytes; // own: what kernels declare at a fixed size
    const bool heads = s.D == 32 || s.D == 64 || s.D == 128;
    return cuda_device(ctx)->capability == 90 && heads && s.C % (CLUSTER * 8) == 0 && s.C <= 1 << 16 &&
           s.hidden % (CLUSTER * UNITS) == 0 && attend_bytes(int(s.C), int(s.D), s.size) + own <= room &&
           feed_bytes(int(s.C), s.size) + own <= room && tensor_rows(d->head) <= INT32_MAX / 2 && aligned(d);
}

/* What lies between the kernels of a token. */
struct Between {
    Tensor first, second; // (C): r before attention, and before the hidden layer
    Tensor attended, fed; // (heads, C), (groups, C) fp32: what they add
};

Status take_between(Ctx *ctx, const Decode *d, Between *b) {
    const Sizes s = sizes_of(d);
    TRY(take(ctx, ARENA_SCRATCH, "decode.first", ctx->dtype, shape1(s.C), &b->first));
    TRY(take(ctx, ARENA_SCRATCH, "decode.second", ctx->dtype, shape1(s.C), &b->second));
    TRY(take(ctx, ARENA_SCRATCH, "decode.attended", F32, shape2(d->heads, s.C), &b->attended));
    return take(ctx, ARENA_SCRATCH, "decode.fed", F32, shape2(s.hidden / (CLUSTER * UNITS), s.C), &b->fed);
}

/* The stream r = x + the sum of parts, normed. */
template <class T>
Stream<T> stream(const Decode *d, const DecodeAffine &norm, const Tensor &x, const Tensor &parts,
                 const Tensor &r) {
    Stream<T> s = {};
    s.x = data_of<T>(x);
    s.parts = data_of<float>(parts);
    s.count = tensor_empty(parts) ? 0 : int(tensor_rows(parts));
    s.width = int(tensor_width(d->token));
    s.past = data_of<int>(d->past_on_device);
    s.rows = int(d->past);
    s.weight = data_of<T>(norm.weight);
    s.bias = data_of<T>(norm.bias);
    s.eps = float(d->eps);
    s.r = data_of<T>(r);
    return s;
}

template <class T>
Stream<T> embedding(const Decode *d, const Tensor &r) {
    Stream<T> s = stream<T>(d, d->layers[0].norm1, d->token, Tensor{}, r);
    s.position = data_of<T>(d->position);
    s.id = data_of<int>(d->token_id);
    return s;
}

template <class T>
Status layer(Ctx *ctx, const Decode *d, int64_t i, const Between &b) {
    const DecodeLayer *l = &d->layers[i];
    const Sizes s = sizes_of(d);
    const Attend<T> a = {i ? stream<T>(d, l->norm1, b.second, b.fed, b.first) : embedding<T>(d, b.first),
                         data_of<T>(l->qkv.weight),
                         data_of<T>(l->qkv.bias),
                         data_of<T>(l->projection.weight),
                         data_of<T>(l->projection.bias),
                         data_of<T>(l->cache_k),
                         data_of<T>(l->cache_v),
                         int(d->heads),
                         int(d->kv_heads),
                         float(d->scale) * LOG2_E,
                         data_of<float>(b.attended)};
    const Feed<T> f = {stream<T>(d, l->norm2, b.first, b.attended, b.second),
                       data_of<T>(l->expand.weight),
                       data_of<T>(l->expand.bias),
                       data_of<T>(l->contract.weight),
                       data_of<T>(l->contract.bias),
                       int(s.hidden),
                       data_of<float>(b.fed)};
    PRIMITIVE (ctx, "norm, qkv, attention, projection") TRY(attend(ctx, a, int(s.D)));
    PRIMITIVE (ctx, "norm, expand, contract") TRY(feed(ctx, f, d->activation));
    return OK;
}

template <class T>
Status forward(Ctx *ctx, const Decode *d) {
    Between between;
    TRY(take_between(ctx, d, &between));
    for (int64_t i = 0; i < d->layer_count; i++) TRY(layer<T>(ctx, d, i, between));
    const Head<T> h = {stream<T>(d, d->final_norm, between.second, between.fed, Tensor{}),
                       data_of<T>(d->head), data_of<float>(d->logits), int(tensor_rows(d->head))};
    PRIMITIVE (ctx, "norm, head") TRY(head(ctx, h));
    return OK;
}

} // namespace
} // namespace decode

Status decode_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const Decode *d = static_cast<const Decode *>(contract);
    if (!decode::fits(ctx, d)) return decode_compose(ctx, d, FORM_FUSED);
    DISPATCH_FLOAT(ctx->dtype, T, return decode::forward<T>(ctx, d));
}
