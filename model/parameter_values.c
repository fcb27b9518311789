#include "model/parameter_values.h"

#include "base/bfloat16.h"
#include "base/groups.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernels/dequantize/dequantize.h"
#include "model/shards.h"

#include <assert.h>
#include <float.h>
#include <math.h>

enum { STAGING = 1 << 20 }; // elements

static Tensor part(Tensor flat, const ParameterInfo *info) {
    return tensor_elements(flat, info->offset, info->shape);
}

static Status upload_decays(Ctx *ctx, const Parameters *p) {
    size_t bytes = tensor_bytes(p->decays);
    OWNED int32_t *words = memory_array((size_t)tensor_count(p->decays), sizeof *words);
    adamw_mark(p->optimized, p->count, words);
    return ctx->device->upload(ctx->device, p->decays.data, words, bytes);
}

static Status take_training(Ctx *ctx, Parameters *p) {
    Dtype wide = wide_dtype(ctx);
    p->sharded = shards_cut(ctx, p) && !p->whole;
    Shape state = shape1(p->sharded ? p->padded / p->ranks : p->size);
    Shape sums = shape1(p->padded + parameters_tail(p));
    TRY(take(ctx, ARENA_GRADIENTS, "gradients", wide, sums, &p->sums));
    p->gradient = tensor_view(p->sums.data, wide, shape1(p->size));
    p->arrivals = (Tensor){0};
    if (p->shards && p->shards->comm->posts && (shards_cut(ctx, p) || p->whole))
        TRY(take(ctx, ARENA_GRADIENTS, "others' gradients", wide, shape2(p->ranks - 1, p->padded / p->ranks),
                 &p->arrivals));
    if (ctx->dtype != wide) TRY(take(ctx, ARENA_OPTIMIZER, "master weights", wide, state, &p->master));
    Dtype moments = p->narrow_moments ? BF16 : wide;
    TRY(take(ctx, ARENA_OPTIMIZER, "first moments", moments, state, &p->m));
    TRY(take(ctx, ARENA_OPTIMIZER, "second moments", moments, state, &p->v));
    TRY(take(ctx, ARENA_OPTIMIZER, "scales", F32, shape2(p->count, OPERANDS), &p->scales));
    return take(ctx, ARENA_OPTIMIZER, "decay marks", I32, shape1(adamw_words(p->size)), &p->decays);
}

/* ---- weights by groups ---- */

/* The block that a parameter belongs to, or NULL. */
static const BlockParameters *block_of(const Parameters *p, const ParameterInfo *info) {
    const int stack = info->group - p->stack.first_group - 1,
              encoder = info->group - p->encoder.first_group - 1;
    if (stack >= 0 && stack < p->config.layers) return &p->stack.blocks[stack];
    return encoder >= 0 && encoder < p->config.encoder_layers ? &p->encoder.blocks[encoder] : NULL;
}

/* A matrix that does not consist of whole groups and tiles is not quantized. */
static bool divides(Shape shape) {
    return shape.rank == 2 && shape.d[1] % GROUP == 0 && shape.d[0] % GROUP_ROWS == 0;
}

Dtype parameter_groups(const Parameters *p, const ParameterInfo *info) {
    if (!dtype_grouped(p->packed) || !divides(info->shape)) return F32;
    const BlockParameters *b = block_of(p, info);
    if (!b) return info->parameter == &p->head ? I8 : F32;
    /* In I4, of all matrices of a block, the one that produces the values adds most to the loss for its
     * size. */
    return info->parameter == &b->qkv.weight || info->parameter == &b->cross.weight ? I8 : p->packed;
}

static Status quantize(Ctx *ctx, Tensor matrix, int64_t first, int64_t count, const float *values,
                       const float *importance) {
    HostGroups host;
    TRY(host_groups_open(ctx, matrix, first, count, &host));
    groups_quantize(host.matrix, host.first, count, values, importance);
    return host_groups_close(ctx, &host, true);
}

static Status take_weight(Ctx *ctx, const char *name, Dtype dtype, Shape shape, Tensor *weight) {
    if (dtype_grouped(dtype)) return take_groups(ctx, ARENA_PARAMETERS, name, dtype, shape, weight);
    TRY(take(ctx, ARENA_PARAMETERS, name, dtype, shape, weight));
    return ctx->measuring ? OK : ctx->device->fill(ctx->device, weight->data, 0, tensor_bytes(*weight));
}

static Status take_by_groups(Ctx *ctx, Parameters *p) {
    for (int i = 0; i < p->count; i++) {
        const ParameterInfo *info = &p->info[i];
        const Dtype groups = parameter_groups(p, info);
        TRY(take_weight(ctx, info->name, dtype_grouped(groups) ? groups : ctx->dtype, info->shape,
                        &info->parameter->weight));
    }
    if (p->config.tied_tables) p->encoder.token = p->stack.token;
    if (!p->config.tied_head) return OK;
    p->head = p->stack.token;
    const Shape shape = p->head.weight.shape;
    return divides(shape) ? take_weight(ctx, "head", I8, shape, &p->head.weight) : OK;
}

Status parameters_copy_head(Ctx *ctx, Parameters *p) {
    const Tensor table = p->stack.token.weight, head = p->head.weight;
    if (!p->config.tied_head || !dtype_grouped(head.dtype)) return OK;
    const int64_t count = tensor_count(table);
    OWNED float *values = memory_array(STAGING, sizeof *values);
    for (int64_t first = 0; first < count; first += STAGING) {
        const int64_t n = count - first < STAGING ? count - first : STAGING;
        TRY(values_read(ctx, table, first, n, values));
        TRY(values_write(ctx, head, first, n, values));
    }
    return OK;
}

Status parameters_take(Ctx *ctx, Parameters *p, bool training) {
    Tensor weights;
    if (dtype_grouped(p->packed)) return take_by_groups(ctx, p);
    TRY(take(ctx, ARENA_PARAMETERS, "weights", ctx->dtype, shape1(p->padded), &weights));
    p->weight = tensor_view(weights.data, ctx->dtype, shape1(p->size));
    if (training) TRY(take_training(ctx, p));
    for (int i = 0; i < p->count; i++) {
        Parameter *parameter = p->info[i].parameter;
        parameter->weight = part(p->weight, &p->info[i]);
        if (!training) continue;
        parameter->gradient = part(p->gradient, &p->info[i]);
        parameter->scales = tensor_elements(p->scales, i * OPERANDS, shape1(OPERANDS));
        parameter->seen =
            tensor_elements(parameters_seen(p), i * OPERANDS * CAST_SEEN, shape2(OPERANDS, CAST_SEEN));
    }
    if (p->config.tied_tables) p->encoder.token = p->stack.token;
    if (p->config.tied_head) p->head = p->stack.token;
    if (ctx->measuring) return OK;
    Tensor cleared[] = {weights, p->sums, p->master, p->m, p->v, p->scales}; // the gaps must hold zeros
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        if (!tensor_empty(cleared[i]))
            TRY(ctx->device->fill(ctx->device, cleared[i].data, 0, tensor_bytes(cleared[i])));
    return training ? upload_decays(ctx, p) : OK;
}

Status weight_write(Ctx *ctx, const Parameters *p, const ParameterInfo *info, int64_t first, int64_t count,
                    const float *values) {
    const Tensor weight = info->parameter->weight;
    if (!dtype_grouped(weight.dtype)) return values_write(ctx, weight, first, count, values);
    return quantize(ctx, weight, first, count, values, p->importance ? p->importance[info - p->info] : NULL);
}

/* A parameter's random stream: FNV-1a of its name. */
static uint64_t stream_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

Status parameters_initialize(Ctx *ctx, Parameters *p, uint64_t seed) {
    OWNED float *values = memory_array(STAGING, sizeof *values);
    for (int i = 0; i < p->count; i++) {
        const ParameterInfo *info = &p->info[i];
        // the vocabulary's padding rows stay zero
        int64_t count = info->rows * (info->count / info->shape.d[0]);
        for (int64_t first = 0; first < count; first += STAGING) {
            int64_t n = count - first < STAGING ? count - first : STAGING;
            if (info->std > 0)
                random_normals(seed, stream_of(info->name), (uint64_t)first, (float)info->std, values, n);
            else
                for (int64_t j = 0; j < n; j++) values[j] = (float)info->constant;
            TRY(weight_write(ctx, p, info, first, n, values));
            if (!tensor_empty(p->master))
                TRY(values_write(ctx, part(shards_whole(p, p->master), info), first, n, values));
        }
    }
    return tensor_empty(p->master) ? OK : shards_keep(ctx, p, p->master);
}

Status parameter_write(Ctx *ctx, Parameters *p, int i, const float *values) {
    const ParameterInfo *info = &p->info[i];
    TRY(weight_write(ctx, p, info, 0, info->count, values));
    if (tensor_empty(p->master)) return OK;
    return values_write(ctx, part(shards_whole(p, p->master), info), 0, info->count, values);
}

static void *element(Tensor t, int64_t i) {
    return (char *)t.data + (size_t)i * dtype_size(t.dtype);
}

Status values_read(Ctx *ctx, Tensor t, int64_t first, int64_t count, float *values) {
    Device *device = ctx->device;
    assert(tensor_dense(t) && first >= 0 && first + count <= tensor_count(t));
    if (t.dtype == F32)
        return device->download(device, values, element(t, first), (size_t)count * sizeof(float));
    OWNED void *staged = memory_array((size_t)(count < STAGING ? count : STAGING), dtype_size(t.dtype));
    for (int64_t done = 0; done < count; done += STAGING) {
        int64_t n = count - done < STAGING ? count - done : STAGING;
        TRY(device->download(device, staged, element(t, first + done), (size_t)n * dtype_size(t.dtype)));
        for (int64_t i = 0; i < n; i++)
            values[done + i] =
                t.dtype == BF16 ? bfloat16_to_float(((uint16_t *)staged)[i]) : (float)((double *)staged)[i];
    }
    return OK;
}

Status values_write(Ctx *ctx, Tensor t, int64_t first, int64_t count, const float *values) {
    Device *device = ctx->device;
    assert(tensor_dense(t) && first >= 0 && first + count <= tensor_count(t));
    if (dtype_grouped(t.dtype)) return quantize(ctx, t, first, count, values, NULL);
    if (t.dtype == F32)
        return device->upload(device, element(t, first), values, (size_t)count * sizeof(float));
    OWNED void *staged = memory_array((size_t)(count < STAGING ? count : STAGING), dtype_size(t.dtype));
    for (int64_t done = 0; done < count; done += STAGING) {
        int64_t n = count - done < STAGING ? count - done : STAGING;
        for (int64_t i = 0; i < n; i++) {
            if (t.dtype == BF16)
                ((uint16_t *)staged)[i] = bfloat16_from_float(values[done + i]);
            else
                ((double *)staged)[i] = (double)values[done + i];
        }
        TRY(device->upload(device, element(t, first + done), staged, (size_t)n * dtype_size(t.dtype)));
    }
    return OK;
}

bool values_finite(const float *values, int64_t count) {
    bool finite = true;
#pragma omp simd reduction(& : finite)
    for (int64_t i = 0; i < count; i++) finite &= fabsf(values[i]) <= FLT_MAX;
    return finite;
}

/* ---- positions ---- */

/* PE(t, 2i) = sin(t / 10000^(2i/C)), PE(t, 2i + 1) = cos of the same angle: Vaswani et al. 2017, section
 * 3.5. */
static double sinusoid(const Config *c, int64_t k) {
    int64_t t = k / c->width, i = k % c->width;
    double angle = (double)t / pow(10000, (double)(i / 2 * 2) / (double)c->width);
    return i % 2 ? cos(angle) : sin(angle);
}

/* Llama 3.1's scaling: pairs that rotate often within the original context keep their frequency, pairs
 * that rotate seldom are slowed by the factor, with linear interpolation between.
 *
 *     turns  = context * f / (2 pi)
 *     kept   = (turns - low) / (high - low), from 0 to 1
 *     scaled = kept * f + (1 - kept) * f / factor */
static double llama3_frequency(const Rotary *r, double f) {
    const double two_pi = 6.283185307179586;
    double turns = (double)r->context * f / two_pi;
    double kept = fmin(fmax((turns - r->low) / (r->high - r->low), 0), 1);
    return kept * f + (1 - kept) * f / r->factor;
}

static double rotary_frequency(const Config *c, int64_t i) {
    const Rotary *r = &c->rotary;
    double f = pow(r->theta, -(double)(2 * i) / (double)c->head_size);
    switch (r->scaling) {
    case ROTARY_PLAIN: return f;
    case ROTARY_LINEAR: return f / r->factor; // Chen et al. 2023, eq. 4
    case ROTARY_LLAMA3: return llama3_frequency(r, f);
    }
    return f;
}

static Status fill(Ctx *ctx, const Config *c, double (*value)(const Config *, int64_t), Tensor table) {
    int64_t count = tensor_count(table);
    bool wide = table.dtype == F64;
    OWNED void *values = memory_array((size_t)count, wide ? sizeof(double) : sizeof(float));
    for (int64_t k = 0; k < count; k++) {
        if (wide)
            ((double *)values)[k] = value(c, k);
        else
            ((float *)values)[k] = (float)value(c, k);
    }
    return wide ? ctx->device->upload(ctx->device, table.data, values, tensor_bytes(table))
                : values_write(ctx, table, 0, count, values);
}

Status positions_take(Ctx *ctx, const Config *c, PositionTables *t) {
    *t = (PositionTables){0};
    if (c->positions == POSITIONS_SINUSOID) {
        TRY(take(ctx, ARENA_PARAMETERS, "sinusoids", ctx->dtype, shape2(c->context, c->width),
                 &t->sinusoids));
        return ctx->measuring ? OK : fill(ctx, c, sinusoid, t->sinusoids);
    }
    if (c->positions != POSITIONS_ROTARY) return OK;
    Shape pairs = shape1(c->head_size / 2);
    TRY(take(ctx, ARENA_PARAMETERS, "rotary frequencies", wide_dtype(ctx), pairs, &t->frequencies));
    return ctx->measuring ? OK : fill(ctx, c, rotary_frequency, t->frequencies);
}
