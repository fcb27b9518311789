#include "model/parameters.h"

#include "base/checked.h"
#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Enumerates the parameters in the network's order. Without a list it only counts them. */
typedef struct {
    Parameters *list;
    const Config *config;
    const char *prefix; // prefix of the block with its number as %d, or ""
    int layer, group;
    int64_t part; // rows of the first tensor, if a file stores the layer as several
    ParameterCount count;
} Walk;

/* "a.{b,c}.weight" is named "a.*.weight", with "b,c}..." as the parts' names. */
static void set_name(ParameterInfo *info, const Walk *walk, const char *name, const char *kind) {
    int length = snprintf(info->name, sizeof info->name, walk->prefix, walk->layer);
    const char *open = strchr(name, '{'), *rest = name;
    info->parts = 1;
    if (open) {
        info->part_names = open + 1;
        rest = strchr(open, '}') + 1;
        for (const char *c = open; c < rest; c++) info->parts += *c == ',';
        length += snprintf(info->name + length, sizeof info->name - (size_t)length, "%.*s*",
                           (int)(open - name), name);
    }
    length += snprintf(info->name + length, sizeof info->name - (size_t)length, "%s%s", rest, kind);
    assert((size_t)length < sizeof info->name);
}

static void add(Walk *walk, Parameter *parameter, const char *name, const char *kind, Shape shape,
                int64_t rows, double constant, double std) {
    int index = walk->count.parameters++;
    walk->count.elements += rows * (shape_count(shape) / shape.d[0]);
    if (!walk->list) return;
    bool decays = shape.rank > 1, turns = walk->config->architecture->names.transposed;
    ParameterInfo *info = &walk->list->info[index];
    *info = (ParameterInfo){.shape = shape,
                            .rows = rows,
                            .first_rows = walk->part,
                            .count = shape_count(shape),
                            .decays = decays,
                            .transposed = turns && decays && *walk->prefix,
                            .constant = constant,
                            .std = std,
                            .group = walk->group,
                            .parameter = parameter};
    set_name(info, walk, name, kind);
}

static void add_norm_of(Walk *walk, Affine *norm, const char *name, int64_t size) {
    add(walk, &norm->weight, name, "weight", shape1(size), size, 1, 0);
    if (walk->config->norm_kind == NORM_LAYER) add(walk, &norm->bias, name, "bias", shape1(size), size, 0, 0);
}

static void add_norm(Walk *walk, Affine *norm, const char *name) {
    add_norm_of(walk, norm, name, walk->config->width);
}

/* Output rows of a layer. `part` is the number of rows of its first part, or `out` if it has only one. */
typedef struct {
    int64_t out, part, in;
    double shrink; // factor of the initial values
    bool bias;
} Linear;

static void add_linear(Walk *walk, Affine *linear, const char *name, Linear l) {
    double std = walk->config->init_std;
    if (std == 0) std = sqrt(2.0 / (double)(l.part + l.in));
    walk->part = l.part;
    add(walk, &linear->weight, name, "weight", shape2(l.out, l.in), l.out, 0, std * l.shrink);
    if (l.bias) add(walk, &linear->bias, name, "bias", shape1(l.out), l.out, 0, 0);
}

static void add_table(Walk *walk, Parameter *table, const char *name, int64_t padded, int64_t rows) {
    double std = walk->config->init_std, C = (double)walk->config->width;
    add(walk, table, name, "", shape2(padded, walk->config->width), rows, 0, std == 0 ? 1 / sqrt(C) : std);
}

/* Sets the shape in files of the parameters added since the count was `before`, except the last. */
static void stored_as(Walk *walk, int before, Shape shape) {
    if (walk->list) walk->list->info[walk->count.parameters - 1 - before].in_file = shape;
}

static void add_positions(Walk *walk, Parameter *position, const char *name) {
    const Config *c = walk->config;
    add_table(walk, position, name, c->context, c->context);
    if (c->architecture->patches) stored_as(walk, 0, shape3(1, c->context, c->width));
}

static void add_patches(Walk *walk, StackParameters *s, const StackNames *n) {
    const Config *c = walk->config;
    int64_t C = c->width, P = c->patch;
    add_linear(walk, &s->patch, n->patch, (Linear){C, C, c->channels * P * P, 1, true});
    stored_as(walk, 1, shape4(C, c->channels, P, P));
    if (!c->class_token) return;
    add(walk, &s->class_token, n->class_token, "", shape1(C), C, 0, c->init_std);
    stored_as(walk, 0, shape3(1, 1, C));
}

static void add_block(Walk *walk, BlockParameters *b, const BlockNames *n) {
    const Config *c = walk->config;
    int64_t C = c->width, Q = config_query_width(c), packed = Q + 2 * config_kv_width(c);
    int64_t expanded = activation_gated(c->activation) ? 2 * c->hidden : c->hidden;
    const Architecture *a = c->architecture;
    bool biased = c->attention_bias,
         projection_biased = a->projection_biased || (biased && !a->projection_plain);
    /* A block adds twice to the residual stream, whose variance grows with 2 * layers. */
    double shrink = a->shrunk_residuals ? 1 / sqrt(2.0 * (double)c->layers) : 1;
    walk->prefix = n->prefix;
    add_norm(walk, &b->norm1, n->norm1);
    add_linear(walk, &b->qkv, n->qkv, (Linear){packed, Q, C, 1, biased});
    if (c->head_norms) {
        add_norm_of(walk, &b->query_norm, n->query_norm, c->head_size);
        add_norm_of(walk, &b->key_norm, n->key_norm, c->head_size);
    }
    add_linear(walk, &b->projection, n->projection, (Linear){C, C, Q, shrink, projection_biased});
    if (n->cross) {
        add_norm(walk, &b->cross_norm, n->cross_norm);
        add_linear(walk, &b->cross, n->cross, (Linear){packed, Q, C, 1, biased});
        add_linear(walk, &b->cross_projection, n->cross_projection,
                   (Linear){C, C, Q, shrink, projection_biased});
    }
    add_norm(walk, &b->norm2, n->norm2);
    add_linear(walk, &b->expand, n->expand, (Linear){expanded, c->hidden, C, 1, c->mlp_bias});
    add_linear(walk, &b->contract, n->contract, (Linear){C, C, c->hidden, shrink, c->mlp_bias});
    walk->prefix = "";
}

/* `table`: the token table, if this stack is the first to read it; else NULL. */
static void add_stack(Walk *walk, StackParameters *s, const StackNames *n, int64_t layers, Parameter *table,
                      const char *table_name) {
    const Config *c = walk->config;
    BlockParameters counted; // stands for each block if the walk only counts
    s->first_group = walk->group;
    if (table) add_table(walk, table, table_name, config_padded_vocab(c), c->vocab);
    if (c->architecture->patches) add_patches(walk, s, n);
    if (c->positions == POSITIONS_LEARNED) add_positions(walk, &s->position, n->position);
    if (c->segments) add_table(walk, &s->segment, n->segment, c->segments, c->segments);
    if (c->architecture->embedding_norm) add_norm(walk, &s->embedding_norm, n->embedding_norm);
    for (walk->layer = 0; walk->layer < layers; walk->layer++) {
        walk->group++;
        add_block(walk, walk->list ? &s->blocks[walk->layer] : &counted, &n->block);
    }
    walk->group++;
    if (c->final_norm) add_norm(walk, &s->final_norm, n->final_norm);
}

static void add_all(Walk *walk, Parameters *p) {
    const Config *c = walk->config;
    const ParameterNames *n = &c->architecture->names;
    int64_t padded = config_padded_vocab(c);
    bool shared = c->encoder_layers && c->tied_tables; // the encoder reads the stack's table
    const Linear square = {c->width, c->width, c->width, 1, true};
    if (c->encoder_layers) {
        add_stack(walk, &p->encoder, &n->encoder, c->encoder_layers,
                  shared ? &p->stack.token : &p->encoder.token, shared ? n->stack.token : n->encoder.token);
        walk->group++;
    }
    bool reads_table = !shared && !c->architecture->patches;
    add_stack(walk, &p->stack, &n->stack, c->layers, reads_table ? &p->stack.token : NULL, n->stack.token);
    bool classes = c->architecture->task == TASK_CLASS, has_head = classes ? c->class_head : !c->tied_head;
    if (has_head) add_table(walk, &p->head, n->head, padded, c->vocab);
    if (classes && has_head) add(walk, &p->head_bias, n->head_bias, "", shape1(padded), c->vocab, 0, 0);
    if (c->head_transform) {
        add_linear(walk, &p->transform, n->transform, square);
        add_norm(walk, &p->transform_norm, n->transform_norm);
        add(walk, &p->head_bias, n->head_bias, "", shape1(padded), c->vocab, 0, 0);
    }
    if (c->pooler) add_linear(walk, &p->pooler, n->pooler, square);
}

ParameterCount parameters_count(const Config *config) {
    Parameters counted = {0};
    Walk walk = {.config = config, .prefix = ""};
    add_all(&walk, &counted);
    return walk.count;
}

/* Rounds up to a multiple of `unit`. */
static int64_t ceiling(int64_t count, int64_t unit) {
    return pieces(count, unit) * unit;
}

/* Assigns offsets in the order of the list. */
static void lay_out(Parameters *p) {
    for (int i = 0; i < p->count; i++) {
        ParameterInfo *info = &p->info[i];
        int64_t padded = ceiling(info->count, ADAMW_UNIT);
        info->offset = p->size;
        p->optimized[i] = (AdamwParameter){info->offset, info->count, info->decays};
        p->groups[info->group].count += padded;
        p->size += padded;
    }
    for (int g = 1; g < p->group_count; g++)
        p->groups[g].first = p->groups[g - 1].first + p->groups[g - 1].count;
}

static Shape seen_shape(const Parameters *p) {
    return shape3(p->count, OPERANDS, CAST_SEEN);
}

/* Offset of the casts' maxima in the tail. */
static int64_t maxima_offset(const Parameters *p) {
    return TAIL_LOSSES + (p->ranks > 1 ? p->ranks : 0);
}

int64_t parameters_tail(const Parameters *p) {
    return ceiling(maxima_offset(p) + shape_count(seen_shape(p)), ADAMW_UNIT);
}

Tensor parameters_seen(const Parameters *p) {
    return tensor_elements(p->sums, p->padded + maxima_offset(p), seen_shape(p));
}

Tensor parameters_tail_of(const Parameters *p, Tensor sums) {
    return tensor_elements(sums, p->padded, shape1(parameters_tail(p)));
}

static bool is_block(const StackParameters *s, int64_t layers, int group) {
    return group > s->first_group && group <= s->first_group + layers;
}

int parameters_outside_blocks(const Parameters *p, ParameterRange range,
                              ParameterRange parts[PARTS_OUTSIDE_BLOCKS]) {
    int count = 0;
    const int64_t range_end = range.first + range.count;
    for (int g = 0; g <= p->group_count; g++) {
        if (is_block(&p->stack, p->config.layers, g) || is_block(&p->encoder, p->config.encoder_layers, g))
            continue;
        bool tail = g == p->group_count;
        int64_t first = tail ? p->size : p->groups[g].first;
        int64_t end = tail ? p->padded + parameters_tail(p) : first + p->groups[g].count;
        if (first < range.first) first = range.first;
        if (end > range_end) end = range_end;
        if (first < end) parts[count++] = (ParameterRange){first, end - first};
    }
    return count;
}

void parameters_share(Parameters *p, int rank, int ranks) {
    int64_t unit = (int64_t)ranks * ADAMW_BLOCK;
    p->rank = rank;
    p->ranks = ranks;
    p->padded = ranks > 1 ? ceiling(p->size, unit) : p->size;
    /* The elements of a group before its first cut belong to the bucket of the group before it. */
    for (int g = p->group_count - 1, end = 1; g >= 0; g--, end = 0) {
        int64_t last = end ? p->padded : p->buckets[g + 1].first;
        int64_t first = g == 0 ? 0 : ceiling(p->groups[g].first, unit);
        p->buckets[g] = (ParameterRange){first, last - first};
    }
}

ParameterRange parameters_part(const Parameters *p, int g) {
    const ParameterRange *bucket = &p->buckets[g];
    int64_t count = bucket->count / p->ranks, first = bucket->first + p->rank * count;
    int64_t inside = p->size - first;
    if (inside < count) count = inside > 0 ? inside : 0;
    return (ParameterRange){first, count};
}

void parameters_open(const Config *config, Parameters *p) {
    size_t count = (size_t)parameters_count(config).parameters;
    *p = (Parameters){.count = (int)count,
                      .info = memory_array(count, sizeof *p->info),
                      .optimized = memory_array(count, sizeof *p->optimized),
                      .config = *config,
                      .stack.blocks = memory_array((size_t)config->layers, sizeof *p->stack.blocks),
                      .encoder.blocks =
                          memory_array((size_t)config->encoder_layers, sizeof *p->encoder.blocks)};
    Walk walk = {.list = p, .config = config, .prefix = ""};
    add_all(&walk, p);
    p->group_count = walk.group + 1;
    p->groups = memory_array((size_t)p->group_count, sizeof *p->groups);
    p->buckets = memory_array((size_t)p->group_count, sizeof *p->buckets);
    lay_out(p);
    parameters_share(p, 0, 1);
}

void parameters_close(Parameters *p) {
    for (int i = 0; p->importance && i < p->count; i++) memory_free(p->importance[i]);
    memory_free(p->importance);
    memory_free(p->info);
    memory_free(p->optimized);
    memory_free(p->groups);
    memory_free(p->buckets);
    memory_free(p->stack.blocks);
    memory_free(p->encoder.blocks);
    *p = (Parameters){0};
}

ParameterRows parameter_part_rows(const ParameterInfo *info, int part) {
    if (info->parts == 1) return (ParameterRows){0, info->rows};
    int64_t first = info->first_rows, others = (info->rows - first) / (info->parts - 1);
    return part == 0 ? (ParameterRows){0, first} : (ParameterRows){first + (part - 1) * others, others};
}

void parameter_part_name(const ParameterInfo *info, int part, char name[80]) {
    size_t start = strcspn(info->name, "*");
    const char *word = info->part_names;
    if (info->parts == 1) {
        snprintf(name, 80, "%s", info->name);
        return;
    }
    for (int i = 0; i < part; i++) word = strchr(word, ',') + 1;
    snprintf(name, 80, "%.*s%.*s%s", (int)start, info->name, (int)strcspn(word, ",}"), word,
             info->name + start + 1);
}

static Tensor rows_of(Tensor t, int64_t first, int64_t count) {
    if (tensor_empty(t)) return t;
    if (t.shape.rank == 1) return tensor_elements(t, first, shape1(count));
    return tensor_elements(t, first * t.stride, shape2(count, tensor_width(t)));
}

static Parameter part(const Parameter *p, int64_t first, int64_t count) {
    Parameter rows = *p;
    rows.weight = rows_of(p->weight, first, count);
    rows.gradient = rows_of(p->gradient, first, count);
    return rows;
}

Affine affine_rows(const Affine *a, int64_t first, int64_t count) {
    return (Affine){part(&a->weight, first, count), part(&a->bias, first, count)};
}
