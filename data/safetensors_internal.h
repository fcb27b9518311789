/* safetensors_internal: shared by the reader of one file and the reader of an index. */
#pragma once

#include "base/files.h"
#include "data/safetensors.h"

typedef struct {
    char *path;
    FileMap map;                  // all-zero if the caller owns the bytes
    char *strings;                // names of entries, keys and values of notes
    const uint8_t *header_digest; // the digits of the header's digest within the header; NULL: none
    const uint8_t *data;          // the bytes after the header
    int64_t data_size;            // bytes
} SafetensorsPart;

struct Safetensors {
    SafetensorsPart *parts; // one file, or one per shard
    int part_count;
    SafetensorsEntry *entries; // sorted by name when the file is complete
    SafetensorsNote *notes;
    int64_t count, room, note_count, note_room;
};

/* Parses the header's JSON, copies its strings to part->strings, and appends its entries and notes.
 * part->data is already set to the bytes after the header. */
CHECKED Status safetensors_parse_header(Safetensors *file, SafetensorsPart *part, const uint8_t *text,
                                        int64_t length);

/* Parses one more file and appends its entries in the order of their offsets. */
CHECKED Status safetensors_add_file(Safetensors *file, const char *path);

/* Keys of digests in __metadata__: this name for the header, and this name, '.' and the tensor's name for a
 * tensor. */
#define SAFETENSORS_DIGEST "fusebox.xxh3"
enum { SAFETENSORS_DIGITS = 16 };

/* The header's digest, computed with zeros in place of the digest itself. */
uint64_t safetensors_header_digest(const uint8_t *text, int64_t length, const uint8_t *digits);

/* Moves a part's digests from its notes, from `first_note` on, to its entries, from `first` on, which are
 * sorted by name. Repeated keys, missing or superfluous digests, and a missing header digest are errors. */
CHECKED Status safetensors_take_digests(Safetensors *file, const SafetensorsPart *part, int64_t first,
                                        int64_t first_note, const uint8_t *text, int64_t length);

/* Sorts the entries of all parts by name; duplicates are an error. */
CHECKED Status safetensors_sort(Safetensors *file, const char *path);

/* Returns `filled`, or closes it if `status` is an error. */
CHECKED Status safetensors_finish(Status status, Safetensors *filled, Safetensors **file);
