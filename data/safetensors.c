#include "data/safetensors.h"

#include "base/memory.h"
#include "data/safetensors_internal.h"
#include "base/bfloat16.h"

#include <stdlib.h>
#include <string.h>
#include <math.h>

enum { HEADER_LIMIT = 100000000 };

/* ---- a header ---- */

/* Empty tensors may be anywhere, so they sort before the tensor with the same offset. */
static int compare_offsets(const void *a, const void *b) {
    const SafetensorsEntry *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorts a part's entries by offset and checks that they cover its bytes exactly. */
static Status check_cover(SafetensorsEntry *entries, int64_t count, const SafetensorsPart *part) {
    if (count) qsort(entries, (size_t)count, sizeof *entries, compare_offsets);
    int64_t covered = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = entries[i].data - part->data;
        if (begin < covered)
            return fail(ERROR_FORMAT, "%s: tensors '%.80s' and '%.80s' overlap", part->path,
                        entries[i - 1].name, entries[i].name);
        if (begin > covered)
            return fail(ERROR_FORMAT, "%s: there is a hole of %lld bytes before tensor '%.80s'", part->path,
                        (long long)(begin - covered), entries[i].name);
        covered += entries[i].bytes;
    }
    if (covered == part->data_size) return OK;
    return fail(ERROR_FORMAT, "%s: %lld bytes at the end belong to no tensor", part->path,
                (long long)(part->data_size - covered));
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const SafetensorsEntry *)a)->name, ((const SafetensorsEntry *)b)->name);
}

static Status check_names(SafetensorsEntry *entries, int64_t count, const SafetensorsPart *part) {
    if (count) qsort(entries, (size_t)count, sizeof *entries, compare_names);
    for (int64_t i = 1; i < count; i++)
        if (compare_names(&entries[i - 1], &entries[i]) == 0)
            return fail(ERROR_FORMAT, "%s: a duplicate of tensor '%.80s'", part->path, entries[i].name);
    return OK;
}

static Status parse_part(Safetensors *file, SafetensorsPart *part, const uint8_t *data, int64_t size) {
    uint64_t length = 0;
    if (size < 8)
        return fail(ERROR_FORMAT, "%s has %lld bytes: too short for safetensors", part->path,
                    (long long)size);
    for (int i = 0; i < 8; i++) length |= (uint64_t)data[i] << 8 * i;
    if (length > HEADER_LIMIT)
        return fail(ERROR_FORMAT,
                    "%s: the header claims %llu bytes; at most %d are allowed. Is it safetensors?",
                    part->path, (unsigned long long)length, HEADER_LIMIT);
    if ((int64_t)length > size - 8)
        return fail(ERROR_FORMAT, "%s: the header of %llu bytes exceeds the file; is it truncated?",
                    part->path, (unsigned long long)length);
    if (length == 0 || data[8] != '{')
        return fail(ERROR_FORMAT, "%s: the header does not begin with '{'", part->path);
    int64_t first = file->count, first_note = file->note_count;
    part->data = data + 8 + length;
    part->data_size = size - 8 - (int64_t)length;
    TRY(safetensors_parse_header(file, part, data + 8, (int64_t)length));
    TRY(check_names(file->entries + first, file->count - first, part));
    TRY(safetensors_take_digests(file, part, first, first_note, data + 8, (int64_t)length));
    return check_cover(file->entries + first, file->count - first, part);
}

/* Parses one more part and appends its entries in the order of their offsets. */
static Status add_part(Safetensors *file, const uint8_t *data, int64_t size, const char *path) {
    file->parts = memory_resize(file->parts, ((size_t)file->part_count + 1) * sizeof *file->parts);
    SafetensorsPart *part = &file->parts[file->part_count++];
    *part = (SafetensorsPart){.path = memory_text(path)};
    return parse_part(file, part, data, size);
}

Status safetensors_add_file(Safetensors *file, const char *path) {
    FileMap map;
    TRY(file_map(path, &map));
    Status status = add_part(file, map.data, map.size, path);
    file->parts[file->part_count - 1].map = map;
    return status;
}

/* ---- a file ---- */

Status safetensors_sort(Safetensors *file, const char *path) {
    if (file->count) qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_names);
    for (int64_t i = 1; i < file->count; i++)
        if (strcmp(file->entries[i - 1].name, file->entries[i].name) == 0)
            return fail(ERROR_FORMAT, "%s: tensor '%.80s' is in two shards", path, file->entries[i].name);
    return OK;
}

Status safetensors_finish(Status status, Safetensors *filled, Safetensors **file) {
    *file = status ? NULL : filled;
    if (status) safetensors_close(filled);
    return status;
}

Status safetensors_parse(const uint8_t *data, int64_t size, const char *name, Safetensors **file) {
    Safetensors *filled = memory_allocate(sizeof *filled);
    Status status = add_part(filled, data, size, name);
    if (!status) status = safetensors_sort(filled, name);
    return safetensors_finish(status, filled, file);
}

Status safetensors_open(const char *path, Safetensors **file) {
    Safetensors *filled = memory_allocate(sizeof *filled);
    Status status = safetensors_add_file(filled, path);
    if (!status) status = safetensors_sort(filled, path);
    return safetensors_finish(status, filled, file);
}

void safetensors_close(Safetensors *file) {
    if (!file) return;
    for (int i = 0; i < file->part_count; i++) {
        memory_free(file->parts[i].strings);
        file_unmap(&file->parts[i].map);
        memory_free(file->parts[i].path);
    }
    memory_free(file->parts);
    memory_free(file->entries);
    memory_free(file->notes);
    memory_free(file);
}

int64_t safetensors_count(const Safetensors *file) {
    return file->count;
}

const SafetensorsEntry *safetensors_entry(const Safetensors *file, int64_t index) {
    return &file->entries[index];
}

const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name) {
    SafetensorsEntry wanted = {.name = name};
    if (!file->count) return NULL;
    return bsearch(&wanted, file->entries, (size_t)file->count, sizeof wanted, compare_names);
}

int64_t safetensors_note_count(const Safetensors *file) {
    return file->note_count;
}

SafetensorsNote safetensors_note(const Safetensors *file, int64_t index) {
    return file->notes[index];
}

const char *safetensors_note_value(const Safetensors *file, const char *key) {
    for (int64_t i = 0; i < file->note_count; i++)
        if (strcmp(file->notes[i].key, key) == 0) return file->notes[i].value;
    return NULL;
}

/* ---- elements as fp32 ---- */

/* IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. */
static float half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude;
    if (exponent == 31)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf((float)fraction, -24);
    else
        magnitude = ldexpf((float)(fraction + 1024), exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

static void read_halves(const uint8_t *from, int64_t count, float (*value)(uint16_t), float *values) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        values[i] = value(bits);
    }
}

static void read_doubles(const uint8_t *from, int64_t count, float *values) {
    for (int64_t i = 0; i < count; i++) {
        double wide;
        memcpy(&wide, from + 8 * i, sizeof wide);
        values[i] = (float)wide;
    }
}

Status safetensors_read(const SafetensorsEntry *entry, int64_t first, int64_t count, float *values) {
    if (count == 0) return OK;
    const uint8_t *from = entry->data + first * safetensors_type_size(entry->type);
    if (entry->type == SAFE_F32)
        memcpy(values, from, (size_t)count * sizeof *values);
    else if (entry->type == SAFE_F64)
        read_doubles(from, count, values);
    else if (entry->type == SAFE_F16)
        read_halves(from, count, half_value, values);
    else if (entry->type == SAFE_BF16)
        read_halves(from, count, bfloat16_to_float, values);
    else
        return fail(ERROR_FORMAT, "tensor '%.80s' holds %s; F32, F64, BF16 or F16 is needed", entry->name,
                    safetensors_type_name(entry->type));
    return OK;
}
