#include "model/parameters.h"

#include "base/bfloat16.h"
#include "base/memory.h"
#include "base/random.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FLAT_ALIGNMENT = 64, STAGING = 1 << 20 }; // elements

enum { PER_BLOCK = 12, OUTSIDE = 4 }; // parameters

typedef struct {
    Parameters *parameters;
    int layer;    // -1 outside the blocks
    bool decayed; // the kind that this walk adds
} Walk;

static void add(Walk *walk, Parameter *parameter, const char *name, Shape shape, int64_t rows,
                bool transposed, double constant, double std) {
    bool decayed = shape.rank > 1;
    if (decayed != walk->decayed) return;
    Parameters *p = walk->parameters;
    ParameterInfo *info = &p->info[p->count];
    *info = (ParameterInfo){.shape = shape,
                            .rows = rows,
                            .transposed = transposed,
                            .decayed = decayed,
                            .constant = constant,
                            .std = std,
                            .parameter = parameter};
    if (walk->layer < 0)
        snprintf(info->name, sizeof info->name, "transformer.%s", name);
    else
        snprintf(info->name, sizeof info->name, "transformer.h.%d.%s", walk->layer, name);
    info->offset = p->size;
    info->count = shape_count(shape);
    p->offsets[p->count] = info->offset;
    p->counts[p->count] = info->count;
    p->size += (info->count + FLAT_ALIGNMENT - 1) / FLAT_ALIGNMENT * FLAT_ALIGNMENT;
    p->count++;
}

static void add_affine(Walk *walk, Affine *affine, const char *name, int64_t out, int64_t in, double std) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    if (in)
        add(walk, &affine->weight, full, shape2(out, in), out, true, 0, std);
    else
        add(walk, &affine->weight, full, shape1(out), out, false, 1, 0);
    snprintf(full, sizeof full, "%s.bias", name);
    add(walk, &affine->bias, full, shape1(out), out, false, 0, 0);
}

static void add_all(Walk *walk, const Config *c) {
    Parameters *p = walk->parameters;
    int64_t C = c->width, kv = c->kv_heads * config_head_size(c);
    /* Each block adds twice to the residual stream: its variance grows with 2 * layers. */
    double residual_std = c->init_std / sqrt(2.0 * (double)c->layers);
    walk->layer = -1;
    add(walk, &p->token, "wte.weight", shape2(config_padded_vocab(c), C), c->vocab, false, 0, c->init_std);
    add(walk, &p->position, "wpe.weight", shape2(c->context, C), c->context, false, 0, c->init_std);
    for (int i = 0; i < c->layers; i++) {
        BlockParameters *b = &p->blocks[i];
        walk->layer = i;
        add_affine(walk, &b->norm1, "ln_1", C, 0, 0);
        add_affine(walk, &b->qkv, "attn.c_attn", C + 2 * kv, C, c->init_std);
        add_affine(walk, &b->projection, "attn.c_proj", C, C, residual_std);
        add_affine(walk, &b->norm2, "ln_2", C, 0, 0);
        add_affine(walk, &b->expand, "mlp.c_fc", c->hidden, C, c->init_std);
        add_affine(walk, &b->contract, "mlp.c_proj", C, c->hidden, residual_std);
    }
    walk->layer = -1;
    add_affine(walk, &p->final_norm, "ln_f", C, 0, 0);
}

Status parameters_open(const Config *config, Parameters *p) {
    size_t count = (size_t)config->layers * PER_BLOCK + OUTSIDE;
    *p = (Parameters){.info = memory_array(count, sizeof *p->info),
                      .offsets = memory_array(count, sizeof *p->offsets),
                      .counts = memory_array(count, sizeof *p->counts),
                      .blocks = memory_array((size_t)config->layers, sizeof *p->blocks)};
    if (!p->info || !p->offsets || !p->counts || !p->blocks) {
        parameters_close(p);
        return fail(ERROR_MEMORY, "out of host memory for the list of %zu parameters", count);
    }
    Walk walk = {.parameters = p, .decayed = true};
    add_all(&walk, config);
    p->decayed = p->size;
    walk.decayed = false;
    add_all(&walk, config);
    assert((size_t)p->count == count);
    return OK;
}

void parameters_close(Parameters *p) {
    memory_free(p->info);
    memory_free(p->offsets);
    memory_free(p->counts);
    memory_free(p->blocks);
    *p = (Parameters){0};
}

static Tensor part(Tensor flat, const ParameterInfo *info) {
    char *data = (char *)((uintptr_t)flat.data + (size_t)info->offset * dtype_size(flat.dtype));
    return tensor_view(data, flat.dtype, info->shape);
}

Status parameters_take(Ctx *ctx, Parameters *p, bool training) {
    Dtype wide = wide_dtype(ctx);
    Shape flat = shape1(p->size);
    TRY(take(ctx, ARENA_PARAMETERS, "weights", ctx->dtype, flat, &p->weight));
    if (training) {
        TRY(take(ctx, ARENA_GRADIENTS, "gradients", wide, flat, &p->gradient));
        if (ctx->dtype != wide) TRY(take(ctx, ARENA_OPTIMIZER, "master weights", wide, flat, &p->master));
        TRY(take(ctx, ARENA_OPTIMIZER, "first moments", wide, flat, &p->m));
        TRY(take(ctx, ARENA_OPTIMIZER, "second moments", wide, flat, &p->v));
    }
    for (int i = 0; i < p->count; i++) {
        p->info[i].parameter->weight = part(p->weight, &p->info[i]);
        if (training) p->info[i].parameter->gradient = part(p->gradient, &p->info[i]);
    }
    if (ctx->measuring) return OK;
    Tensor cleared[] = {p->weight, p->gradient, p->master, p->m, p->v}; // the gaps must hold zeros
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        if (!tensor_empty(cleared[i]))
            TRY(ctx->device->fill(ctx->device, cleared[i].data, 0, tensor_bytes(cleared[i])));
    return OK;
}

/* The stream of random numbers that a parameter draws from: FNV-1a of its name. */
static uint64_t stream_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

Status parameters_initialize(Ctx *ctx, Parameters *p, uint64_t seed) {
    float *values = memory_array(STAGING, sizeof *values);
    if (!values) return fail(ERROR_MEMORY, "out of host memory to initialize the weights");
    Status status = OK;
    for (int i = 0; i < p->count && !status; i++) {
        const ParameterInfo *info = &p->info[i];
        /* The vocabulary's padding rows stay zero. */
        int64_t count = info->rows * (info->count / info->shape.d[0]);
        for (int64_t first = 0; first < count && !status; first += STAGING) {
            int64_t n = count - first < STAGING ? count - first : STAGING;
            if (info->std > 0)
                random_normals(seed, stream_of(info->name), (uint64_t)first, (float)info->std, values, n);
            else
                for (int64_t j = 0; j < n; j++) values[j] = (float)info->constant;
            status = values_write(ctx, info->parameter->weight, first, n, values);
            if (!status && !tensor_empty(p->master))
                status = values_write(ctx, part(p->master, info), first, n, values);
        }
    }
    memory_free(values);
    return status;
}

Status parameter_read(Ctx *ctx, const Parameters *p, int i, float *values) {
    const ParameterInfo *info = &p->info[i];
    Tensor from = part(tensor_empty(p->master) ? p->weight : p->master, info);
    return values_read(ctx, from, 0, info->count, values);
}

Status parameter_write(Ctx *ctx, Parameters *p, int i, const float *values) {
    const ParameterInfo *info = &p->info[i];
    TRY(values_write(ctx, part(p->weight, info), 0, info->count, values));
    return tensor_empty(p->master) ? OK : values_write(ctx, part(p->master, info), 0, info->count, values);
}

static void *element(Tensor t, int64_t i) {
    return (char *)t.data + (size_t)i * dtype_size(t.dtype);
}

Status values_read(Ctx *ctx, Tensor t, int64_t first, int64_t count, float *values) {
    Device *device = ctx->device;
    assert(tensor_dense(t) && first >= 0 && first + count <= tensor_count(t));
    if (t.dtype == F32)
        return device->download(device, values, element(t, first), (size_t)count * sizeof(float));
    void *staged = memory_array(STAGING, dtype_size(t.dtype));
    if (!staged) return fail(ERROR_MEMORY, "out of host memory to read a tensor");
    Status status = OK;
    for (int64_t done = 0; done < count && !status; done += STAGING) {
        int64_t n = count - done < STAGING ? count - done : STAGING;
        status = device->download(device, staged, element(t, first + done), (size_t)n * dtype_size(t.dtype));
        for (int64_t i = 0; i < n && !status; i++)
            values[done + i] =
                t.dtype == BF16 ? bfloat16_to_float(((uint16_t *)staged)[i]) : (float)((double *)staged)[i];
    }
    memory_free(staged);
    return status;
}

Status values_write(Ctx *ctx, Tensor t, int64_t first, int64_t count, const float *values) {
    Device *device = ctx->device;
    assert(tensor_dense(t) && first >= 0 && first + count <= tensor_count(t));
    if (t.dtype == F32)
        return device->upload(device, element(t, first), values, (size_t)count * sizeof(float));
    void *staged = memory_array(STAGING, dtype_size(t.dtype));
    if (!staged) return fail(ERROR_MEMORY, "out of host memory to write a tensor");
    Status status = OK;
    for (int64_t done = 0; done < count && !status; done += STAGING) {
        int64_t n = count - done < STAGING ? count - done : STAGING;
        for (int64_t i = 0; i < n; i++) {
            if (t.dtype == BF16)
                ((uint16_t *)staged)[i] = bfloat16_from_float(values[done + i]);
            else
                ((double *)staged)[i] = (double)values[done + i];
        }
        status = device->upload(device, element(t, first + done), staged, (size_t)n * dtype_size(t.dtype));
    }
    memory_free(staged);
    return status;
}
