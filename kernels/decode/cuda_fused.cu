#include "kernels/decode/cuda_rows.cuh"
#include "kernels/decode/cuda_token.cuh"

/* Launches the decoder's kernels: those of cuda_token.cuh, or with RMS norms those of cuda_rows.cuh. */
namespace decode {
namespace {

constexpr float LOG2_E = 1.4426950408889634f;

struct Sizes {
    int64_t C, D, hidden, units; // units: UNITS<T>
};

Sizes sizes_of(const Decode *d) {
    const DecodeLayer *l = &d->layers[0];
    return {tensor_width(d->token), tensor_width(l->projection.weight) / d->heads,
            tensor_width(l->contract.weight), d->token.dtype == BF16 ? UNITS<bf16> : UNITS<float>};
}

int64_t rows_of_memory(const Decode *d) {
    return tensor_empty(d->layers[0].memory) ? 0 : tensor_rows(d->layers[0].memory);
}

bool aligned(const Decode *d) {
    const auto at_16 = [](const Tensor &t) {
        return tensor_empty(t) || walks_in_packs(1, {}, {static_cast<const void *>(t.data)});
    };
    bool all = at_16(d->token) && at_16(d->position) && at_16(d->head) && at_16(d->final_norm.weight) &&
               at_16(d->final_norm.bias);
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
    const DecodeSizes sizes = {d->norm_kind, s.C, s.D, s.hidden};
    return decode_cuda_serves(ctx, &sizes) && aligned(d) && tensor_rows(d->head) <= INT32_MAX / 2 &&
           rows_of_memory(d) <= INT32_MAX / 2;
}

/* Buffers between the kernels of a token. */
struct Between {
    Tensor rows[2];         // (C): the stream as a kernel reads it, and as the kernel writes it for the next
                            // one, alternately
    Tensor attended, fed;   // (heads, C), (groups, C) fp32: partial sums to add to the stream
    Tensor attended_across; // like attended, for cross attention
};

Status take_between(Ctx *ctx, const Decode *d, Between *b) {
    const Sizes s = sizes_of(d);
    TRY(take(ctx, ARENA_SCRATCH, "decode.first", ctx->dtype, shape1(s.C), &b->rows[0]));
    TRY(take(ctx, ARENA_SCRATCH, "decode.second", ctx->dtype, shape1(s.C), &b->rows[1]));
    TRY(take(ctx, ARENA_SCRATCH, "decode.attended", F32, shape2(d->heads, s.C), &b->attended));
    TRY(take(ctx, ARENA_SCRATCH, "decode.attended across", F32, shape2(d->heads, s.C), &b->attended_across));
    return take(ctx, ARENA_SCRATCH, "decode.fed", F32, shape2(s.hidden / (CLUSTER * s.units), s.C), &b->fed);
}

/* The state between the launches for a token. */
struct Token {
    const Decode *d;
    Between between;
    int kept;                // index into between.rows: where the last kernel has written the stream
    Tensor parts;            // partial sums of the last branch; empty before the first
    const DecodeAffine *own; // the last branch's norm
};

/* The stream for the next branch, whose norm is `norm`, or for the head: see cuda_token.cuh. */
template <class T>
Stream<T> next_stream(Token *t, const DecodeAffine *norm) {
    const Decode *d = t->d;
    const bool first = tensor_empty(t->parts);
    const DecodeAffine none = {}, *const before = d->norm_after ? (first ? &none : t->own) : norm;
    Stream<T> s = {};
    s.x = data_of<T>(first ? d->token : t->between.rows[t->kept]);
    s.position = first ? data_of<T>(d->position) : nullptr;
    s.id = first ? data_of<int>(d->token_id) : nullptr;
    s.token_scale = float(d->token_scale);
    s.parts = data_of<float>(t->parts);
    s.count = first ? 0 : int(tensor_rows(t->parts));
    s.width = int(tensor_width(d->token));
    s.past = data_of<int>(d->past_on_device);
    s.rows = int(d->past);
    s.weight = data_of<T>(before->weight);
    s.bias = data_of<T>(before->bias);
    s.eps = float(d->eps);
    t->kept = !t->kept;
    t->own = norm;
    s.kept = data_of<T>(t->between.rows[t->kept]);
    return s;
}

/* The parameters shared by self attention and cross attention: from the norm to the partial sums. */
template <class T>
Attend<T> attend_of(Token *t, const DecodeAffine &norm, const DecodeAffine &in, const DecodeAffine &out,
                    const Tensor &parts) {
    Attend<T> a = {};
    a.stream = next_stream<T>(t, &norm);
    a.qkv = data_of<T>(in.weight);
    a.qkv_bias = data_of<T>(in.bias);
    a.projection = data_of<T>(out.weight);
    a.projection_bias = data_of<T>(out.bias);
    a.heads = int(t->d->heads);
    a.kv_heads = int(t->d->kv_heads);
    a.scale = float(t->d->scale) * LOG2_E;
    a.parts = data_of<float>(parts);
    t->parts = parts;
    return a;
}

template <class T>
Status attention(Ctx *ctx, Token *t, const DecodeLayer *l) {
    Attend<T> a = attend_of<T>(t, l->norm1, l->qkv, l->projection, t->between.attended);
    a.cache_k = data_of<T>(l->cache_k);
    a.cache_v = data_of<T>(l->cache_v);
    a.row_stride = int(tensor_width(l->cache_k));
    PRIMITIVE (ctx, "norm, qkv, attention, projection", MATRIX)
        TRY(attend(ctx, a, int(sizes_of(t->d).D), false, t->d->norm_after));
    return OK;
}

template <class T>
Status cross_attention(Ctx *ctx, Token *t, const DecodeLayer *l) {
    Attend<T> a = attend_of<T>(t, l->cross_norm, l->query, l->cross_projection, t->between.attended_across);
    a.cache_k = data_of<T>(l->memory);
    a.cache_v = a.cache_k + tensor_width(l->memory) / 2;
    a.row_stride = int(tensor_width(l->memory));
    a.length = data_of<int>(t->d->memory_length);
    a.most = int(tensor_rows(l->memory));
    PRIMITIVE (ctx, "norm, query, cross attention, projection", MATRIX)
        TRY(attend(ctx, a, int(sizes_of(t->d).D), true, t->d->norm_after));
    return OK;
}

template <class T>
Status feed_forward(Ctx *ctx, Token *t, const DecodeLayer *l) {
    const Decode *d = t->d;
    Feed<T> f = {};
    f.stream = next_stream<T>(t, &l->norm2);
    f.expand = data_of<T>(l->expand.weight);
    f.expand_bias = data_of<T>(l->expand.bias);
    f.contract = data_of<T>(l->contract.weight);
    f.contract_bias = data_of<T>(l->contract.bias);
    f.hidden = int(sizes_of(d).hidden);
    t->parts = t->between.fed;
    f.parts = data_of<float>(t->parts);
    PRIMITIVE (ctx, "norm, expand, contract", MATRIX) TRY(feed(ctx, f, d->activation, d->norm_after));
    return OK;
}

template <class T>
Status forward(Ctx *ctx, const Decode *d) {
    Token token = {};
    token.d = d;
    TRY(take_between(ctx, d, &token.between));
    for (int64_t i = 0; i < d->layer_count; i++) {
        const DecodeLayer *l = &d->layers[i];
        TRY(attention<T>(ctx, &token, l));
        if (!tensor_empty(l->memory)) TRY(cross_attention<T>(ctx, &token, l));
        TRY(feed_forward<T>(ctx, &token, l));
    }
    Head<T> h = {next_stream<T>(&token, &d->final_norm), data_of<T>(d->head), data_of<float>(d->logits),
                 int(tensor_rows(d->head))};
    h.stream.kept = nullptr;
    PRIMITIVE (ctx, "norm, head", MATRIX) TRY(head(ctx, h, d->norm_after));
    return OK;
}

/* ---- with RMS norms ---- */

/* Buffers between the kernels of cuda_rows.cuh. */
struct Rows {
    Tensor stream[2];          // (C), used alternately
    Tensor qkv, heads, hidden; // ((heads + 2 kv_heads) D), (heads*D), (hidden)
};

Status take_rows(Ctx *ctx, const Decode *d, Rows *r) {
    const Sizes s = sizes_of(d);
    const int64_t qkv = (d->heads + 2 * d->kv_heads) * s.D;
    TRY(take(ctx, ARENA_SCRATCH, "decode.first", ctx->dtype, shape1(s.C), &r->stream[0]));
    TRY(take(ctx, ARENA_SCRATCH, "decode.second", ctx->dtype, shape1(s.C), &r->stream[1]));
    TRY(take(ctx, ARENA_SCRATCH, "decode.qkv", ctx->dtype, shape1(qkv), &r->qkv));
    TRY(take(ctx, ARENA_SCRATCH, "decode.heads", ctx->dtype, shape1(d->heads * s.D), &r->heads));
    return take(ctx, ARENA_SCRATCH, "decode.hidden", ctx->dtype, shape1(s.hidden), &r->hidden);
}

/* The stream: a tensor, or row `id` of the token table. */
struct Source {
    Tensor x;
    const int *id; // or NULL
};

template <class T>
Product<T> product_of(const Decode *d, const Source &from, const DecodeAffine *norm, const DecodeAffine &by,
                      const Tensor &y, int out) {
    Product<T> p = {};
    p.x = data_of<T>(from.x);
    p.id = from.id;
    p.norm = norm ? data_of<T>(norm->weight) : nullptr;
    if (by.weight.dtype == I8) {
        p.codes = data_of<int8_t>(by.weight);
        p.scales = static_cast<const bf16 *>(by.weight.scales);
    } else {
        p.weight = data_of<T>(by.weight);
    }
    p.bias = data_of<T>(by.bias);
    p.y = data_of<T>(y);
    p.in = int(tensor_width(by.weight));
    p.out = out;
    p.eps = float(d->eps);
    return p;
}

template <class T>
Status heads_of(Ctx *ctx, const Decode *d, const DecodeLayer *l, const Rows &r) {
    Heads<T> h = {};
    h.qkv = data_of<T>(r.qkv);
    h.query_norm = data_of<T>(l->query_norm.weight);
    h.key_norm = data_of<T>(l->key_norm.weight);
    h.frequencies = data_of<float>(d->frequencies);
    h.cache_k = data_of<T>(l->cache_k);
    h.cache_v = data_of<T>(l->cache_v);
    h.past = data_of<int>(d->past_on_device);
    h.rows = int(d->past);
    h.heads = int(d->heads);
    h.kv_heads = int(d->kv_heads);
    h.eps = float(d->eps);
    h.scale = float(d->scale) * LOG2_E;
    h.y = data_of<T>(r.heads);
    PRIMITIVE (ctx, "attention", ATTENTION) TRY(heads(ctx, h, int(sizes_of(d).D)));
    return OK;
}

/* Adds the branch's output `from` to the stream, which is read from *stream and written to `to`. */
template <class T>
Status add_branch(Ctx *ctx, const Decode *d, const Tensor &from, const DecodeAffine &by, const Tensor &to,
                  Source *stream) {
    Product<T> p = product_of<T>(d, {from, nullptr}, nullptr, by, to, int(tensor_rows(by.weight)));
    p.skip = data_of<T>(stream->x);
    p.skip_id = stream->id;
    *stream = {to, nullptr};
    return product(ctx, p, false);
}

template <class T>
Status forward_rows(Ctx *ctx, const Decode *d) {
    Rows r;
    TRY(take_rows(ctx, d, &r));
    Source stream = {d->token, data_of<int>(d->token_id)};
    for (int64_t i = 0; i < d->layer_count; i++) {
        const DecodeLayer *l = &d->layers[i];
        const int qkv = int(tensor_count(r.qkv)), hidden = int(tensor_count(r.hidden));
        PRIMITIVE (ctx, "norm, qkv", MATRIX)
            TRY(product(ctx, product_of<T>(d, stream, &l->norm1, l->qkv, r.qkv, qkv), false));
        TRY(heads_of<T>(ctx, d, l, r));
        PRIMITIVE (ctx, "projection", MATRIX)
            TRY(add_branch<T>(ctx, d, r.heads, l->projection, r.stream[0], &stream));
        PRIMITIVE (ctx, "norm, gate, up, SwiGLU", MATRIX)
            TRY(product(ctx, product_of<T>(d, stream, &l->norm2, l->expand, r.hidden, hidden), true));
        PRIMITIVE (ctx, "contract", MATRIX)
            TRY(add_branch<T>(ctx, d, r.hidden, l->contract, r.stream[1], &stream));
    }
    Product<T> p = product_of<T>(d, stream, &d->final_norm, {d->head, {}}, {}, int(tensor_rows(d->head)));
    p.logits = data_of<float>(d->logits);
    PRIMITIVE (ctx, "norm, head", MATRIX) TRY(product(ctx, p, false));
    return OK;
}

} // namespace
} // namespace decode

bool decode_cuda_serves(const Ctx *ctx, const DecodeSizes *s) {
    const bool narrow = ctx->dtype == BF16;
    const int units = narrow ? decode::UNITS<bf16> : decode::UNITS<float>;
    const size_t own = 12288; // bytes of the kernels' static shared memory
    const size_t size = dtype_size(ctx->dtype), room = cuda_device(ctx)->shared_bytes;
    const int64_t D = s->head_size;
    if (cuda_device(ctx)->capability != 90 || (D != 32 && D != 64 && D != 128)) return false;
    if (s->norm_kind == NORM_RMS)
        return s->width % 8 == 0 && s->hidden % 8 == 0 && s->width <= 1 << 17 && s->hidden <= 1 << 17;
    return s->width % (decode::CLUSTER * 8) == 0 && s->width <= 1 << 16 &&
           s->hidden % (decode::CLUSTER * units) == 0 &&
           decode::attend_bytes(int(s->width), int(D), size, false) + own <= room &&
           decode::feed_bytes(int(s->width), size, units) + own <= room;
}

template <class T>
static Status decode_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const Decode *d = static_cast<const Decode *>(contract);
    if (!decode::fits(ctx, d))
        return fail(ERROR_INTERNAL,
                    "decode: no kernel supports these sizes or addresses; see decode_cuda_serves()");
    return d->norm_kind == NORM_RMS ? decode::forward_rows<T>(ctx, d) : decode::forward<T>(ctx, d);
}
SLOT(DECODE, FORWARD, CUDA, FUSED, F32, decode_forward_cuda_fused<float>);
SLOT(DECODE, FORWARD, CUDA, FUSED, BF16, decode_forward_cuda_fused<bf16>);
