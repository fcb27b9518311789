/* Reads and writes model.safetensors, in chunks. */
#include "base/bfloat16.h"
#include "base/checked.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/safetensors.h"
#include "model/checkpoint_internal.h"
#include "tasks/pictures/images/grid.h"
#include "model/parameter_values.h"
#include "model/shards.h"

#include <assert.h>
#include <fnmatch.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Host buffers for conversion. */
typedef struct {
    float *chunk;  // (checkpoint_chunk)
    float *matrix; // the largest matrix stored transposed
    Tensor from;   // source of saved values, flat: the master weights if there are any
} Staging;

static void staging_close(Staging *staging) {
    memory_free(staging->chunk);
    memory_free(staging->matrix);
}

static Status staging_open(const Parameters *p, Staging *staging) {
    int64_t largest = 1;
    for (int i = 0; i < p->count; i++)
        if (p->info[i].transposed && p->info[i].count > largest) largest = p->info[i].count;
    staging->chunk = memory_reserve((size_t)checkpoint_chunk(p) * sizeof(float));
    staging->matrix = memory_reserve((size_t)largest * sizeof(float));
    if (staging->chunk && staging->matrix) return OK;
    return fail(ERROR_MEMORY, "out of host memory for the %lld values of the largest matrix",
                (long long)largest);
}

/* to[j][i] = from[i][j] for rows x columns values, in tiles that fit the L1 cache. */
static void transpose(const float *from, int64_t from_stride, int64_t rows, int64_t columns, float *to,
                      int64_t to_stride) {
    enum { TILE = 32 };
    for (int64_t i0 = 0; i0 < rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < columns; j0 += TILE)
            for (int64_t i = i0; i < rows && i < i0 + TILE; i++)
                for (int64_t j = j0; j < columns && j < j0 + TILE; j++)
                    to[j * to_stride + i] = from[i * from_stride + j];
}

/* ---- saving ---- */

/* Refuses non-finite weights, so that they never replace a good checkpoint. */
static Status check_saved(const Piece *piece, const float *values, int64_t count) {
    if (values_finite(values, count)) return OK;
    return fail(
        ERROR_NONFINITE,
        "the weight '%s' has a value that is not finite, so it is not saved; lower --lr, or try --check",
        piece->name);
}

/* The values that are saved: of quantized weights, there is no flat tensor. */
static Tensor saved_values(const Piece *piece, const Staging *staging) {
    const ParameterInfo *info = piece->info;
    return tensor_empty(staging->from) ? info->parameter->weight
                                       : tensor_elements(staging->from, info->offset, info->shape);
}

/* Writes fp32 values in the piece's dtype, for which their memory is used. */
static Status append_values(SafetensorsWriter *writer, const Piece *piece, float *values, int64_t count) {
    TRY(check_saved(piece, values, count));
    if (piece_entry(piece).type == SAFE_F32)
        return safetensors_writer_append(writer, values, count * (int64_t)sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        const uint16_t bits = bfloat16_from_float(values[i]);
        memcpy((char *)values + (size_t)i * sizeof bits, &bits, sizeof bits);
    }
    return safetensors_writer_append(writer, values, count * (int64_t)sizeof(uint16_t));
}

static Status save_rows(Ctx *ctx, SafetensorsWriter *writer, const Piece *piece, const Staging *staging) {
    int64_t count = piece->rows * piece_width(piece);
    for (int64_t first = 0; first < count; first += CHECKPOINT_CHUNK) {
        int64_t n = least(count - first, CHECKPOINT_CHUNK);
        TRY(values_read(ctx, saved_values(piece, staging), piece->first + first, n, staging->chunk));
        TRY(append_values(writer, piece, staging->chunk, n));
    }
    return OK;
}

static Status save_transposed(Ctx *ctx, SafetensorsWriter *writer, const Piece *piece,
                              const Staging *staging) {
    int64_t out = piece->info->shape.d[0], in = piece->info->shape.d[1];
    int64_t most = CHECKPOINT_CHUNK / out; // rows of the file per chunk
    assert(most > 0);
    TRY(values_read(ctx, saved_values(piece, staging), 0, piece->info->count, staging->matrix));
    for (int64_t first = 0; first < in; first += most) {
        int64_t rows = least(in - first, most);
        transpose(staging->matrix + first, in, out, rows, staging->chunk, out);
        TRY(append_values(writer, piece, staging->chunk, rows * out));
    }
    return OK;
}

static Status save_piece(Ctx *ctx, SafetensorsWriter *writer, const Piece *piece, const Staging *staging) {
    if (piece->kind != PIECE_VALUES) return packed_save(ctx, piece, staging->chunk, writer);
    return piece->info->transposed ? save_transposed(ctx, writer, piece, staging)
                                   : save_rows(ctx, writer, piece, staging);
}

static Status save_all(Ctx *ctx, const char *path, const Parameters *p, const Piece *pieces,
                       const SafetensorsEntry *entries, const Staging *staging) {
    const SafetensorsNote notes[] = {{"format", "pt"},
                                     packed_note(p->packed)}; // transformers needs the first
    RankFile file;
    TRY(rank_file_open(p, path, entries, piece_count(pieces), notes, 1 + dtype_grouped(p->packed), &file));
    Status status = OK;
    for (int64_t i = 0; !status && pieces[i].info; i++)
        if (rank_file_mine(&file, i)) status = save_piece(ctx, file.writer, &pieces[i], staging);
    return rank_file_close(&file, status);
}

Status weights_save(Ctx *ctx, const char *path, const Parameters *p) {
    CLOSED_BY(staging_close) Staging staging = {0};
    Tensor whole = p->weight;
    if (!tensor_empty(p->master)) TRY(shards_collect(ctx, p, p->master, &whole));
    TRY(staging_open(p, &staging));
    staging.from = whole;
    OWNED Piece *pieces = list_pieces(p, p->packed);
    OWNED SafetensorsEntry *entries = memory_array((size_t)piece_count(pieces), sizeof *entries);
    for (int64_t i = 0; pieces[i].info; i++) entries[i] = piece_entry(&pieces[i]);
    return save_all(ctx, path, p, pieces, entries, &staging);
}

/* ---- loading ---- */

enum { NAME = 96 };

/* The name under another file generation. */
static void other_name(const RenamedPart *renamed, const char *name, char other[NAME]) {
    snprintf(other, NAME, "%s", name);
    for (const RenamedPart *r = renamed; r->ours; r++) {
        char whole[NAME];
        const char *at = strstr(strcpy(whole, other), r->ours);
        if (!at) continue;
        int length =
            snprintf(other, NAME, "%.*s%s%s", (int)(at - whole), whole, r->theirs, at + strlen(r->ours));
        assert(length < NAME);
    }
}

static const SafetensorsEntry *find_name(const Safetensors *file, const ParameterNames *names,
                                         const char *name) {
    const SafetensorsEntry *entry = safetensors_find(file, name);
    if (entry || !names->renamed) return entry;
    char other[NAME];
    other_name(names->renamed, name, other);
    return safetensors_find(file, other);
}

/* The name without the optional prefix. */
static const char *short_name(const ParameterNames *names, const char *name) {
    size_t length = strlen(names->optional);
    return strncmp(name, names->optional, length) == 0 ? name + length : name;
}

static const SafetensorsEntry *find(const Safetensors *file, const ParameterNames *names, const char *name) {
    const SafetensorsEntry *entry = find_name(file, names, name);
    return entry ? entry : find_name(file, names, short_name(names, name));
}

/* Whether the file has the layer; `layer` is NULL if the family has none. */
static bool has_layer(const Safetensors *file, const ParameterNames *names, const char *layer) {
    char name[96];
    if (!layer) return false;
    snprintf(name, sizeof name, "%sweight", layer);
    return find(file, names, name) != NULL;
}

/* Whether the file has a head, which may be quantized. */
static bool has_head(const Safetensors *file, const ParameterNames *names) {
    char name[PIECE_NAME];
    snprintf(name, sizeof name, "%s" PACKED_CODES, names->head);
    return find(file, names, names->head) || find(file, names, name);
}

/* The pattern by which a tensor of a file may be ignored, or NULL. With a new head the pooler is still
 * used. */
static const IgnoredNames *ignored_by(const Config *c, const char *name) {
    const ParameterNames *names = &c->architecture->names;
    for (const IgnoredNames *i = names->ignored; i && i->pattern; i++) {
        bool wanted = i->unless && *(const bool *)((const char *)c + i->unless);
        bool passed = !wanted || (c->new_head && i->unless != offsetof(Config, pooler));
        if (passed && fnmatch(i->pattern, short_name(names, name), 0) == 0) return i;
    }
    return NULL;
}

void weights_heads(const char *folder, Config *config) {
    const ParameterNames *names = &config->architecture->names;
    Safetensors *file = NULL;
    if (!names->transform && !names->pooler && !config->architecture->encoder) return;
    Status status = safetensors_open_folder(folder, &file);
    if (status) { // loading will report the error
        status_free(status);
        return;
    }
    config->class_head = config->architecture->task == TASK_CLASS && has_head(file, names);
    config->final_norm |= has_layer(file, names, names->stack.final_norm);
    config->head_transform = has_layer(file, names, names->transform);
    config->pooler = has_layer(file, names, names->pooler);
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        const IgnoredNames *passed = ignored_by(config, safetensors_entry(file, i)->name);
        if (passed && passed->other) config->other_head = passed->other;
    }
    safetensors_close(file);
}

static void print_shape(char text[120], int rank, const int64_t *d) {
    int used = snprintf(text, 120, "(");
    for (int i = 0; i < rank && used < 90; i++)
        used += snprintf(text + used, 120 - (size_t)used, "%s%lld", i ? ", " : "", (long long)d[i]);
    snprintf(text + used, 120 - (size_t)used, ")");
}

static Status check_shape(const char *folder, const SafetensorsEntry *entry, const Piece *piece) {
    SafetensorsEntry wanted = piece_entry(piece);
    bool equal = entry->rank == wanted.rank;
    for (int i = 0; equal && i < entry->rank; i++) equal = entry->d[i] == wanted.d[i];
    if (equal && (piece->kind == PIECE_VALUES || entry->type == wanted.type)) return OK;
    if (equal)
        return fail(ERROR_FORMAT, "%s: tensor '%s' holds %s; by the file's note it is %s", folder,
                    entry->name, safetensors_type_name(entry->type), safetensors_type_name(wanted.type));
    char has[120], needs[120];
    print_shape(has, entry->rank, entry->d);
    print_shape(needs, wanted.rank, wanted.d);
    return fail(ERROR_FORMAT, "%s: tensor '%s' has the shape %s, but by config.json it is %s", folder,
                entry->name, has, needs);
}

/* Whether the piece belongs to a head that is newly initialized. */
static bool drawn(const Parameters *p, const Piece *piece) {
    return p->config.new_head && ignored_by(&p->config, piece->name);
}

/* The side of the file's position grid, if its table of positions belongs to another picture size and can
 * be interpolated; else 0. */
static int64_t other_grid(const Parameters *p, const SafetensorsEntry *entry, const Piece *piece) {
    const Config *c = &p->config;
    if (!c->architecture->patches || piece->info->parameter != &p->stack.position) return 0;
    if (entry->rank != 3 || entry->d[0] != 1 || entry->d[2] != c->width || entry->d[1] == c->context)
        return 0;
    const int64_t patches = entry->d[1] - c->class_token;
    if (patches < 1) return 0;
    const int64_t side = (int64_t)sqrt((double)patches);
    return side * side == patches ? side : 0;
}

/* Checks that every parameter exists with its shape, and marks its entries in `known`. */
static Status check_parameters(const char *folder, const Safetensors *file, const Parameters *p,
                               const Piece *pieces, bool *known) {
    for (int64_t i = 0; pieces[i].info; i++) {
        if (drawn(p, &pieces[i])) continue;
        const SafetensorsEntry *entry = find(file, &p->config.architecture->names, pieces[i].name);
        if (!entry)
            return fail(ERROR_FORMAT, "%s: the weights lack '%s', which a model of this config.json has",
                        folder, pieces[i].name);
        if (!other_grid(p, entry, &pieces[i])) TRY(check_shape(folder, entry, &pieces[i]));
        known[entry - safetensors_entry(file, 0)] = true;
    }
    return OK;
}

/* Checks that every parameter exists with its shape, and nothing else does. */
static Status check_names(const char *folder, const Safetensors *file, const Parameters *p,
                          const Piece *pieces) {
    int64_t entries = safetensors_count(file);
    OWNED bool *known = memory_array((size_t)entries, sizeof *known);
    TRY(check_parameters(folder, file, p, pieces, known));
    for (int64_t i = 0; i < entries; i++) {
        const SafetensorsEntry *entry = safetensors_entry(file, i);
        bool copied = p->config.tied_head && strcmp(entry->name, p->config.architecture->names.head) == 0;
        if (!known[i] && !copied && !ignored_by(&p->config, entry->name))
            return fail(ERROR_FORMAT, "%s: a model of this config.json has no tensor '%.80s'", folder,
                        entry->name);
    }
    return OK;
}

static Status same_values(const SafetensorsEntry *a, const SafetensorsEntry *b, bool *same) {
    enum { CHUNK = 4096 };
    float x[CHUNK], y[CHUNK];
    *same = a->count == b->count;
    for (int64_t first = 0; first < a->count && *same; first += CHUNK) {
        int64_t n = least(a->count - first, CHUNK);
        TRY(safetensors_read(a, first, n, x));
        TRY(safetensors_read(b, first, n, y));
        *same = memcmp(x, y, (size_t)n * sizeof *x) == 0;
    }
    return OK;
}

/* Checks that a repeated tied head equals the token table. Otherwise config.json describes another model. */
static Status check_tied_head(const char *folder, const Safetensors *file, const Config *c) {
    const ParameterNames *names = &c->architecture->names;
    const SafetensorsEntry *head = c->tied_head ? find(file, names, names->head) : NULL;
    const SafetensorsEntry *table = head ? find(file, names, names->stack.token) : NULL;
    bool same = true;
    if (table) TRY(same_values(head, table, &same));
    if (same) return OK;
    return fail(ERROR_FORMAT,
                "%s: the head '%s' is not the token table, but by config.json they are one; a model with a "
                "head of its own has \"tie_word_embeddings\": false there",
                folder, head->name);
}

Status weights_check(const char *folder, const Config *config, Dtype *packed) {
    CLOSED_BY(parameters_close) Parameters p = {0};
    CLOSED_BY(safetensors_release) Safetensors *file = NULL;
    TRY(safetensors_open_folder(folder, &file));
    TRY(packed_read(folder, file, packed));
    parameters_open(config, &p);
    p.packed = *packed;
    OWNED Piece *pieces = list_pieces(&p, p.packed);
    return check_names(folder, file, &p, pieces);
}

static Status check_loaded(const SafetensorsEntry *entry, const float *values, int64_t count) {
    if (values_finite(values, count)) return OK;
    return fail(ERROR_FORMAT, "tensor '%.80s' has a value that is not finite in fp32", entry->name);
}

static Status write_values(Ctx *ctx, const Parameters *p, const ParameterInfo *info, int64_t first,
                           int64_t count, const float *values) {
    TRY(weight_write(ctx, p, info, first, count, values));
    if (tensor_empty(p->master)) return OK;
    return values_write(ctx, shards_whole(p, p->master), info->offset + first, count, values);
}

static Status load_rows(Ctx *ctx, const SafetensorsEntry *entry, Parameters *p, const Piece *piece,
                        const Staging *staging) {
    const ParameterInfo *info = piece->info;
    int64_t count = info->parts == 1 ? info->count : piece->rows * piece_width(piece);
    for (int64_t first = 0; first < count; first += CHECKPOINT_CHUNK) {
        int64_t n = least(count - first, CHECKPOINT_CHUNK);
        int64_t held = entry->count > first ? least(entry->count - first, n) : 0;
        TRY(safetensors_read(entry, first, held, staging->chunk));
        TRY(check_loaded(entry, staging->chunk, held));
        /* The vocabulary's padding rows are zero. */
        memset(staging->chunk + held, 0, (size_t)(n - held) * sizeof(float));
        TRY(write_values(ctx, p, info, piece->first + first, n, staging->chunk));
    }
    return OK;
}

static Status load_transposed(Ctx *ctx, const SafetensorsEntry *entry, Parameters *p, const Piece *piece,
                              const Staging *staging) {
    int64_t out = piece->info->shape.d[0], in = piece->info->shape.d[1];
    int64_t most = CHECKPOINT_CHUNK / out; // rows of the file per chunk
    assert(most > 0);
    for (int64_t first = 0; first < in; first += most) {
        int64_t rows = least(in - first, most);
        TRY(safetensors_read(entry, first * out, rows * out, staging->chunk));
        TRY(check_loaded(entry, staging->chunk, rows * out));
        transpose(staging->chunk, out, rows, out, staging->matrix + first, in);
    }
    return parameter_write(ctx, p, (int)(piece->info - p->info), staging->matrix);
}

/* Loads a table of positions and interpolates it to this picture size. */
static Status load_positions(Ctx *ctx, const SafetensorsEntry *entry, Parameters *p, const Piece *piece,
                             int64_t side) {
    const Config *c = &p->config;
    const int64_t first = c->class_token ? c->width : 0; // the class token's position is copied
    OWNED float *from = memory_array((size_t)entry->count, sizeof *from);
    OWNED float *to = memory_array((size_t)piece->info->count, sizeof *to);
    TRY(safetensors_read(entry, 0, entry->count, from));
    TRY(check_loaded(entry, from, entry->count));
    memcpy(to, from, (size_t)first * sizeof *to);
    grid_resize(from + first, side, c->image / c->patch, c->width, to + first);
    TRY(check_loaded(entry, to, piece->info->count));
    return parameter_write(ctx, p, (int)(piece->info - p->info), to);
}

static Status load_piece(Ctx *ctx, const SafetensorsEntry *entry, Parameters *p, const Piece *piece,
                         const Staging *staging) {
    if (piece->kind != PIECE_VALUES) return packed_load(ctx, entry, piece, staging->chunk);
    int64_t side = other_grid(p, entry, piece);
    if (side) return load_positions(ctx, entry, p, piece, side);
    return piece->info->transposed ? load_transposed(ctx, entry, p, piece, staging)
                                   : load_rows(ctx, entry, p, piece, staging);
}

static Status load_all(Ctx *ctx, const char *folder, const Safetensors *file, Parameters *p,
                       const Piece *pieces, const Staging *staging) {
    TRY(check_names(folder, file, p, pieces));
    TRY(check_tied_head(folder, file, &p->config));
    int64_t elements = 0;
    for (int64_t i = 0; pieces[i].info; i++) {
        if (drawn(p, &pieces[i])) continue;
        const SafetensorsEntry *entry = find(file, &p->config.architecture->names, pieces[i].name);
        Status status = safetensors_verify(entry);
        if (!status) status = load_piece(ctx, entry, p, &pieces[i], staging);
        if (status) return fail_at(status, "%s", folder);
        if (pieces[i].kind != PIECE_SCALES) elements += pieces[i].rows * piece_width(&pieces[i]);
        if (p->loaded) p->loaded(p->loader, elements);
    }
    return OK;
}

Status weights_load(Ctx *ctx, const char *folder, Parameters *p) {
    CLOSED_BY(staging_close) Staging staging = {0};
    CLOSED_BY(safetensors_release) Safetensors *file = NULL;
    Dtype packed;
    TRY(staging_open(p, &staging));
    TRY(safetensors_open_folder(folder, &file));
    TRY(packed_read(folder, file, &packed));
    TRY(checkpoint_expect(folder, packed, p->packed));
    OWNED Piece *pieces = list_pieces(p, packed);
    TRY(load_all(ctx, folder, file, p, pieces, &staging));
    return tensor_empty(p->master) ? OK : shards_keep(ctx, p, p->master);
}
