/* The tensors of model.safetensors, and those of quantized matrices. */
#include "base/bfloat16.h"
#include "base/groups.h"
#include "kernels/dequantize/dequantize.h"
#include "model/checkpoint_internal.h"
#include "model/parameter_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int64_t piece_width(const Piece *piece) {
    return piece->info->count / piece->info->shape.d[0];
}

int64_t piece_count(const Piece *pieces) {
    int64_t count = 0;
    while (pieces[count].info) count++;
    return count;
}

static Piece make_piece(const ParameterInfo *info, int part, PieceKind kind, Dtype dtype) {
    static const char *const endings[] = {"", PACKED_CODES, "_scale"};
    const ParameterRows rows = parameter_part_rows(info, part);
    Piece piece = {.info = info, .kind = kind, .dtype = dtype, .rows = rows.count};
    char name[80];
    piece.first = rows.first * piece_width(&piece);
    parameter_part_name(info, part, name);
    snprintf(piece.name, sizeof piece.name, "%s%s", name, endings[kind]);
    return piece;
}

Piece *list_pieces(const Parameters *p, Dtype packed) {
    int64_t most = 1;
    for (int i = 0; i < p->count; i++) most += 2 * p->info[i].parts;
    Piece *pieces = memory_array((size_t)most, sizeof *pieces), *piece = pieces;
    for (int i = 0; i < p->count; i++) {
        const ParameterInfo *info = &p->info[i];
        Dtype dtype = dtype_grouped(packed) ? parameter_groups(p, info) : F32;
        const bool grouped = dtype_grouped(dtype), narrow = info->parameter->weight.dtype == BF16;
        if (dtype_grouped(packed) && !grouped && narrow) dtype = BF16; // a checkpoint's values are fp32
        for (int part = 0; part < info->parts; part++) {
            *piece++ = make_piece(info, part, grouped ? PIECE_CODES : PIECE_VALUES, dtype);
            if (grouped) *piece++ = make_piece(info, part, PIECE_SCALES, dtype);
        }
    }
    return pieces;
}

SafetensorsEntry piece_entry(const Piece *piece) {
    const ParameterInfo *info = piece->info;
    const Shape *shape = info->in_file.rank ? &info->in_file : &info->shape;
    SafetensorsEntry entry = {.name = piece->name, .rank = shape->rank};
    entry.type = piece->dtype == BF16 ? SAFE_BF16 : SAFE_F32;
    if (piece->kind != PIECE_VALUES) {
        const int64_t groups = piece_width(piece) / GROUP;
        const bool codes = piece->kind == PIECE_CODES;
        entry.type = !codes ? SAFE_BF16 : piece->dtype == I8 ? SAFE_I8 : SAFE_U8;
        entry.rank = 2;
        entry.d[0] = piece->rows;
        entry.d[1] = codes ? groups * (int64_t)dtype_bytes(piece->dtype, GROUP) : groups;
        return entry;
    }
    memcpy(entry.d, shape->d, sizeof shape->d);
    if (shape == &info->shape) entry.d[0] = piece->rows;
    if (info->transposed) {
        entry.d[0] = info->shape.d[1];
        entry.d[1] = info->shape.d[0];
    }
    return entry;
}

/* ---- quantized matrices ---- */

static const char note_key[] = "fusebox.packed";

SafetensorsNote packed_note(Dtype packed) {
    _Static_assert(GROUP == 32, "the note names it");
    return (SafetensorsNote){note_key, packed == I8 ? "int8, groups of 32" : "int4, groups of 32"};
}

Status packed_read(const char *folder, const Safetensors *file, Dtype *packed) {
    const char *note = safetensors_note_value(file, note_key);
    *packed = F32;
    if (!note) return OK;
    for (int i = 0; i < 2; i++) {
        *packed = i ? I4 : I8;
        if (strcmp(note, packed_note(*packed).value) == 0) return OK;
    }
    return fail(ERROR_FORMAT, "%s: the weights have the note %s '%.40s', but only '%s' and '%s' can be read",
                folder, note_key, note, packed_note(I8).value, packed_note(I4).value);
}

Status checkpoint_expect(const char *folder, Dtype stored, Dtype wanted) {
    if (!dtype_grouped(stored) || stored == wanted) return OK;
    return fail(ERROR_FORMAT,
                "%s: its weights are %s, as ./infer --save keeps them, and cannot be used as %s", folder,
                dtype_name(stored), dtype_grouped(wanted) ? dtype_name(wanted) : "float");
}

/* Groups of a piece; bytes of one in its file; most groups that are copied at once. */
enum { AT_ONCE = CHECKPOINT_CHUNK / GROUP };
static int64_t group_bytes(const Piece *piece) {
    return piece->kind == PIECE_SCALES ? (int64_t)sizeof(uint16_t)
                                       : (int64_t)dtype_bytes(piece->dtype, GROUP);
}

static Status copy(Ctx *ctx, const Piece *piece, int64_t first, int64_t count, void *buffer, bool set) {
    const bool codes = piece->kind == PIECE_CODES;
    HostGroups host;
    TRY(host_groups_open(ctx, piece->info->parameter->weight, piece->first + first * GROUP, count * GROUP,
                         &host));
    groups_copy(host.matrix, host.first / GROUP, count, codes ? buffer : NULL, codes ? NULL : buffer, set);
    return host_groups_close(ctx, &host, set);
}

Status packed_save(Ctx *ctx, const Piece *piece, void *buffer, SafetensorsWriter *writer) {
    const int64_t count = piece->rows * piece_width(piece) / GROUP;
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        const int64_t n = count - first < AT_ONCE ? count - first : AT_ONCE;
        TRY(copy(ctx, piece, first, n, buffer, false));
        TRY(safetensors_writer_append(writer, buffer, n * group_bytes(piece)));
    }
    return OK;
}

/* Whether each code is within its range, or each scale is finite. */
static bool valid(const Piece *piece, const void *buffer, int64_t count) {
    const int8_t *codes = buffer;
    const uint16_t *scales = buffer;
    bool sound = true;
    if (piece->kind == PIECE_SCALES)
        for (int64_t i = 0; i < count; i++) sound &= (bool)isfinite(bfloat16_to_float(scales[i]));
    else if (piece->dtype == I8)
        for (int64_t i = 0; i < count * GROUP; i++) sound &= codes[i] != INT8_MIN;
    return sound;
}

Status packed_load(Ctx *ctx, const SafetensorsEntry *entry, const Piece *piece, void *buffer) {
    const int64_t bytes = group_bytes(piece), held = entry->bytes / bytes;
    const int64_t count = piece->info->parts == 1 ? piece->info->count / GROUP : held;
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        const int64_t n = count - first < AT_ONCE ? count - first : AT_ONCE, rest = held - first;
        const int64_t of_file = rest < 0 ? 0 : rest < n ? rest : n;
        memset(buffer, 0, (size_t)(n * bytes)); // the vocabulary's padding rows
        if (of_file) memcpy(buffer, entry->data + first * bytes, (size_t)(of_file * bytes));
        if (!valid(piece, buffer, n))
            return fail(ERROR_FORMAT, "tensor '%.80s' has %s", entry->name,
                        piece->kind == PIECE_SCALES ? "a scale that is not finite" : "a code of -128");
        TRY(copy(ctx, piece, first, n, buffer, true));
    }
    return OK;
}
