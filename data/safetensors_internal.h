/* safetensors_internal: what the reader of one file and the reader of an index share. */
#pragma once

#include "base/files.h"
#include "data/safetensors.h"

#include <jansson.h>

typedef struct {
    char *path;
    FileMap map;         // all-zero where the caller keeps the bytes
    json_t *header;      // owns the names of entries and notes
    const uint8_t *data; // what follows the header
    int64_t data_size;   // bytes
} SafetensorsPart;

struct Safetensors {
    SafetensorsPart *parts; // one file, or one for each shard
    int part_count;
    SafetensorsEntry *entries; // by name once finished
    SafetensorsNote *notes;
    int64_t count, note_count;
};

/* Parses one more part and appends its entries, in the order in which they lie. */
CHECKED Status safetensors_add(Safetensors *file, const uint8_t *data, int64_t size, const char *path);
CHECKED Status safetensors_add_file(Safetensors *file, const char *path);

/* Sorts the entries of all parts by name; none may come twice. */
CHECKED Status safetensors_sort(Safetensors *file, const char *path);

/* Hands `filled` on, or closes it where `status` says that it could not be filled. */
CHECKED Status safetensors_finish(Status status, Safetensors *filled, Safetensors **file);
