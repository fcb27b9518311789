#include "model/parameters.h"

#include "base/bfloat16.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/parameter_names.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STAGING = 1 << 20 }; // elements
enum { PARTS = 3 };         // queries, keys, values

/* At most: of a block with cross attention, and of a stack with all else. */
enum { PER_BLOCK = 18, PER_STACK = 7, OF_HEADS = 8 };

typedef struct {
    Parameters *parameters;
    const Config *config;
    const char *prefix; // of the block, with its number as %d, or ""
    int layer, group;
} Walk;

static void add(Walk *walk, Parameter *parameter, const char *name, const char *kind, Shape shape,
                int64_t rows, double constant, double std) {
    bool decays = shape.rank > 1;
    Parameters *p = walk->parameters;
    ParameterInfo *info = &p->info[p->count];
    *info = (ParameterInfo){.shape = shape,
                            .parts = strchr(name, '*') ? PARTS : 1,
                            .rows = rows,
                            .decays = decays,
                            .constant = constant,
                            .std = std,
                            .parameter = parameter};
    info->transposed = decays && *walk->prefix && parameter_names(walk->config->objective)->transposed;
    int length = snprintf(info->name, sizeof info->name, walk->prefix, walk->layer);
    snprintf(info->name + length, sizeof info->name - (size_t)length, "%s%s", name, kind);
    info->count = shape_count(shape);
    info->group = walk->group;
    p->count++;
}

static void add_norm(Walk *walk, Affine *norm, const char *name) {
    int64_t C = walk->config->width;
    add(walk, &norm->weight, name, "weight", shape1(C), C, 1, 0);
    add(walk, &norm->bias, name, "bias", shape1(C), C, 0, 0);
}

/* A linear layer whose rows are those of several of `part` outputs each. */
static void add_linear(Walk *walk, Affine *linear, const char *name, int64_t out, int64_t part, int64_t in,
                       double shrink) {
    double std = walk->config->init_std;
    if (std == 0) std = sqrt(2.0 / (double)(part + in));
    add(walk, &linear->weight, name, "weight", shape2(out, in), out, 0, std * shrink);
    add(walk, &linear->bias, name, "bias", shape1(out), out, 0, 0);
}

static void add_table(Walk *walk, Parameter *table, const char *name, int64_t padded, int64_t rows) {
    double std = walk->config->init_std, C = (double)walk->config->width;
    add(walk, table, name, "", shape2(padded, walk->config->width), rows, 0, std == 0 ? 1 / sqrt(C) : std);
}

static void add_block(Walk *walk, BlockParameters *b, const BlockNames *n) {
    const Config *c = walk->config;
    int64_t C = c->width, packed = C + 2 * c->kv_heads * config_head_size(c);
    /* Each of GPT-2's blocks adds twice to the residual stream: its variance grows with 2 * layers. */
    double shrink = c->objective == OBJECTIVE_NEXT_TOKEN ? 1 / sqrt(2.0 * (double)c->layers) : 1;
    walk->prefix = n->prefix;
    add_norm(walk, &b->norm1, n->norm1);
    add_linear(walk, &b->qkv, n->qkv, packed, C, C, 1);
    add_linear(walk, &b->projection, n->projection, C, C, C, shrink);
    if (n->cross) {
        add_norm(walk, &b->cross_norm, n->cross_norm);
        add_linear(walk, &b->cross, n->cross, packed, C, C, 1);
        add_linear(walk, &b->cross_projection, n->cross_projection, C, C, C, shrink);
    }
    add_norm(walk, &b->norm2, n->norm2);
    add_linear(walk, &b->expand, n->expand, c->hidden, c->hidden, C, 1);
    add_linear(walk, &b->contract, n->contract, C, C, c->hidden, shrink);
    walk->prefix = "";
}

static void add_stack(Walk *walk, StackParameters *s, const StackNames *n, int64_t layers, bool own_table) {
    const Config *c = walk->config;
    s->first_group = walk->group;
    if (own_table) add_table(walk, &s->token, n->token, config_padded_vocab(c), c->vocab);
    if (c->positions == POSITIONS_LEARNED) add_table(walk, &s->position, n->position, c->context, c->context);
    if (c->segments) add_table(walk, &s->segment, n->segment, c->segments, c->segments);
    if (c->embedding_norm) add_norm(walk, &s->embedding_norm, n->embedding_norm);
    for (walk->layer = 0; walk->layer < layers; walk->layer++) {
        walk->group++;
        add_block(walk, &s->blocks[walk->layer], &n->block);
    }
    walk->group++;
    if (c->norm_order == NORM_PRE) add_norm(walk, &s->final_norm, n->final_norm);
}

static void add_all(Walk *walk, const Config *c) {
    Parameters *p = walk->parameters;
    const ParameterNames *n = parameter_names(c->objective);
    int64_t padded = config_padded_vocab(c);
    if (c->encoder_layers) {
        add_stack(walk, &p->encoder, &n->encoder, c->encoder_layers, !c->tied_tables);
        walk->group++;
    }
    add_stack(walk, &p->stack, &n->stack, c->layers, true);
    if (!c->tied_head) add_table(walk, &p->head, n->head, padded, c->vocab);
    if (c->head_transform) {
        add_linear(walk, &p->transform, n->transform, c->width, c->width, c->width, 1);
        add_norm(walk, &p->transform_norm, n->transform_norm);
        add(walk, &p->head_bias, n->head_bias, "", shape1(padded), c->vocab, 0, 0);
    }
    if (c->pooler) add_linear(walk, &p->pooler, n->pooler, c->width, c->width, c->width, 1);
}

/* In the order of the list. */
static void lay_out(Parameters *p) {
    for (int i = 0; i < p->count; i++) {
        ParameterInfo *info = &p->info[i];
        int64_t padded = (info->count + ADAMW_UNIT - 1) / ADAMW_UNIT * ADAMW_UNIT;
        info->offset = p->size;
        p->optimized[i] = (AdamwParameter){info->offset, info->count, info->decays};
        p->groups[info->group].count += padded;
        p->size += padded;
    }
    for (int g = 1; g < p->group_count; g++)
        p->groups[g].first = p->groups[g - 1].first + p->groups[g - 1].count;
}

static size_t most_parameters(const Config *c) {
    return (size_t)(c->layers + c->encoder_layers) * PER_BLOCK + 2 * PER_STACK + OF_HEADS;
}

Status parameters_open(const Config *config, Parameters *p) {
    size_t count = most_parameters(config), layers = (size_t)(config->layers + config->encoder_layers);
    *p = (Parameters){.info = memory_array(count, sizeof *p->info),
                      .optimized = memory_array(count, sizeof *p->optimized),
                      .groups = memory_array(layers + 2 * 2, sizeof *p->groups),
                      .config = *config,
                      .stack.blocks = memory_array((size_t)config->layers, sizeof *p->stack.blocks),
                      .encoder.blocks =
                          memory_array((size_t)config->encoder_layers + 1, sizeof *p->encoder.blocks)};
    Walk walk = {.parameters = p, .config = config, .prefix = ""};
    add_all(&walk, config);
    p->group_count = walk.group + 1;
    lay_out(p);
    assert((size_t)p->count <= count);
    return OK;
}

void parameters_close(Parameters *p) {
    memory_free(p->info);
    memory_free(p->optimized);
    memory_free(p->groups);
    memory_free(p->stack.blocks);
    memory_free(p->encoder.blocks);
    *p = (Parameters){0};
}

void parameter_part_name(const ParameterInfo *info, int part, char name[80]) {
    static const char *const words[PARTS] = {"query", "key", "value"};
    size_t start = strcspn(info->name, "*");
    if (info->name[start])
        snprintf(name, 80, "%.*s%s%s", (int)start, info->name, words[part], info->name + start + 1);
    else
        snprintf(name, 80, "%s", info->name);
}

static Tensor part(Tensor flat, const ParameterInfo *info) {
    char *data = (char *)((uintptr_t)flat.data + (size_t)info->offset * dtype_size(flat.dtype));
    return tensor_view(data, flat.dtype, info->shape);
}

static Status upload_decays(Ctx *ctx, const Parameters *p) {
    size_t bytes = tensor_bytes(p->decays);
    int32_t *words = memory_array((size_t)tensor_count(p->decays), sizeof *words);
    adamw_mark(p->optimized, p->count, words);
    Status status = ctx->device->upload(ctx->device, p->decays.data, words, bytes);
    memory_free(words);
    return status;
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
        TRY(take(ctx, ARENA_OPTIMIZER, "decay marks", I32, shape1(adamw_words(p->size)), &p->decays));
    }
    for (int i = 0; i < p->count; i++) {
        p->info[i].parameter->weight = part(p->weight, &p->info[i]);
        if (training) p->info[i].parameter->gradient = part(p->gradient, &p->info[i]);
    }
    if (p->config.tied_tables) p->encoder.token = p->stack.token;
    if (p->config.tied_head) p->head = p->stack.token;
    if (ctx->measuring) return OK;
    Tensor cleared[] = {p->weight, p->gradient, p->master, p->m, p->v}; // the gaps must hold zeros
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        if (!tensor_empty(cleared[i]))
            TRY(ctx->device->fill(ctx->device, cleared[i].data, 0, tensor_bytes(cleared[i])));
    return training ? upload_decays(ctx, p) : OK;
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
    void *staged = memory_array((size_t)(count < STAGING ? count : STAGING), dtype_size(t.dtype));
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
    void *staged = memory_array((size_t)(count < STAGING ? count : STAGING), dtype_size(t.dtype));
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
