/* safetensors_internal: what the reader of one file and the reader of an index share. */
#pragma once

#include "base/files.h"
#include "data/safetensors.h"

typedef struct {
    char *path;
    FileMap map;                  // all-zero where the caller keeps the bytes
    char *strings;                // names of entries, keys and values of notes
    const uint8_t *header_digest; // the digits in the header that say its digest; NULL: none do
    const uint8_t *data;          // what follows the header
    int64_t data_size;            // bytes
} SafetensorsPart;

struct Safetensors {
    SafetensorsPart *parts; // one file, or one for each shard
    int part_count;
    SafetensorsEntry *entries; // by name once finished
    SafetensorsNote *notes;
    int64_t count, room, note_count, note_room;
};

/* Reads the header's JSON, whose strings go into part->strings, and appends its entries and notes. What
 * follows the header is in part->data already. */
CHECKED Status safetensors_parse_header(Safetensors *file, SafetensorsPart *part, const uint8_t *text,
                                        int64_t length);

/* Parses one more part and appends its entries, in the order in which they lie. */
CHECKED Status safetensors_add(Safetensors *file, const uint8_t *data, int64_t size, const char *path);
CHECKED Status safetensors_add_file(Safetensors *file, const char *path);

/* What digests are called in __metadata__: the header's by this name, a tensor's by this name, '.' and its
 * own. */
#define SAFETENSORS_DIGEST "fusebox.xxh3"
enum { SAFETENSORS_DIGITS = 16 };

/* The header's digest, with zeros where it says so itself. */
uint64_t safetensors_header_digest(const uint8_t *text, int64_t length, const uint8_t *digits);

/* Takes a part's digests out of its notes, those from `first_note` on, into its entries, those from `first`
 * on, which are sorted by name. No key may come twice, no digest be missing or left over, and the header must
 * have its own. */
CHECKED Status safetensors_take_digests(Safetensors *file, const SafetensorsPart *part, int64_t first,
                                        int64_t first_note, const uint8_t *text, int64_t length);

/* Sorts the entries of all parts by name; none may come twice. */
CHECKED Status safetensors_sort(Safetensors *file, const char *path);

/* Hands `filled` on, or closes it where `status` says that it could not be filled. */
CHECKED Status safetensors_finish(Status status, Safetensors *filled, Safetensors **file);
