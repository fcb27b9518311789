/* safetensors: named tensors in a file: an 8-byte little-endian length, that many bytes of JSON, then the
 * elements (github.com/huggingface/safetensors, "Format"). The reader trusts nothing. As the format demands,
 * it accepts a file only if
 *   - the header has at most 100 MB, begins with '{', is UTF-8 JSON and names nothing twice;
 *   - each tensor has a known dtype, a shape whose product does not overflow, and data_offsets that lie in
 *     the file and span exactly as many bytes as dtype and shape say;
 *   - the tensors cover all bytes behind the header: no overlap, no hole, nothing left at the end;
 *   - __metadata__ maps strings to strings.
 * In addition, a tensor has at most 8 axes, and no string contains a zero. Every violation is an ERROR_FORMAT
 * that names file and tensor.
 *
 * Files that fusebox writes have digests (data/digest.h) in __metadata__, 16 hexadecimal digits each: of each
 * tensor's bytes, "fusebox.xxh3.<tensor>", and of the header, "fusebox.xxh3", computed with zeros in its own
 * place. A file has all of them or none. The header's digest is checked when a file is opened, a tensor's by
 * safetensors_verify. Other readers ignore them; they are not listed as notes. */
#pragma once

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SAFE_BOOL,
    SAFE_U8,
    SAFE_I8,
    SAFE_F8_E4M3,
    SAFE_F8_E5M2,
    SAFE_F8_E8M0,
    SAFE_I16,
    SAFE_U16,
    SAFE_F16,
    SAFE_BF16,
    SAFE_I32,
    SAFE_U32,
    SAFE_F32,
    SAFE_I64,
    SAFE_U64,
    SAFE_F64,
    SAFE_C64,
    SAFE_TYPE_COUNT
} SafetensorsType;

enum { SAFETENSORS_RANK_LIMIT = 8 };

typedef struct {
    const char *name;
    SafetensorsType type;
    int rank; // 0: a scalar
    int64_t d[SAFETENSORS_RANK_LIMIT];
    int64_t count;       // elements
    int64_t bytes;       // count * safetensors_type_size(type)
    const uint8_t *data; // in the mapped file, with any alignment
    bool digested;       // the file has a digest of these bytes
    uint64_t digest;
} SafetensorsEntry;

typedef struct {
    const char *key, *value;
} SafetensorsNote; // an entry of __metadata__

typedef struct Safetensors Safetensors;

/* Parses `size` bytes, which stay the caller's and must outlive the result; `name` is for error messages. */
CHECKED Status safetensors_parse(const uint8_t *data, int64_t size, const char *name, Safetensors **file);

/* Maps one file. */
CHECKED Status safetensors_open(const char *path, Safetensors **file);

/* Maps folder/model.safetensors or, if only that exists, the shards listed in
 * folder/model.safetensors.index.json, as if they were one file. A shard's name must be a plain file name in
 * the same folder, and shards and index must agree on the tensors of each shard. */
CHECKED Status safetensors_open_folder(const char *folder, Safetensors **file);

void safetensors_close(Safetensors *file); // accepts NULL
CLOSER(safetensors_release, Safetensors, safetensors_close)

/* Entries by index, sorted by name, or by name (NULL if there is none). They live as long as the file. */
int64_t safetensors_count(const Safetensors *file);
const SafetensorsEntry *safetensors_entry(const Safetensors *file, int64_t index);
const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name);

/* Metadata by index, or a value by its key (NULL if there is none). */
int64_t safetensors_note_count(const Safetensors *file);
SafetensorsNote safetensors_note(const Safetensors *file, int64_t index);
const char *safetensors_note_value(const Safetensors *file, const char *key);

const char *safetensors_type_name(SafetensorsType type); // "F32", as in the file
int64_t safetensors_type_size(SafetensorsType type);     // bytes

/* Reads elements [first, first + count) of the entry as fp32. ERROR_FORMAT unless the entry is F32, F64, BF16
 * or F16. F64 is rounded to nearest. */
CHECKED Status safetensors_read(const SafetensorsEntry *entry, int64_t first, int64_t count, float *values);

/* Verifies the digest of the entry's bytes: ERROR_FORMAT if it differs, OK if the file has none. Reads all
 * bytes, at memory bandwidth. */
CHECKED Status safetensors_verify(const SafetensorsEntry *entry);
CHECKED Status safetensors_verify_all(const Safetensors *file);

/* Writes a file in order. open takes name, type, rank and d of each entry (the rest is ignored) and writes
 * the header, padded with spaces to a multiple of 8 bytes; append takes the elements of all entries one after
 * another, in pieces of any size; close publishes the file (base/files.h: until then `path` is unchanged). A
 * close before the last byte, or an append beyond it, is an ERROR_INTERNAL. Exactly one of close and abandon
 * ends a writer. */
typedef struct SafetensorsWriter SafetensorsWriter;
CHECKED Status safetensors_writer_open(const char *path, const SafetensorsEntry *entries, int64_t count,
                                       const SafetensorsNote *notes, int64_t note_count,
                                       SafetensorsWriter **writer);
CHECKED Status safetensors_writer_append(SafetensorsWriter *writer, const void *data, int64_t bytes);
CHECKED Status safetensors_writer_close(SafetensorsWriter *writer);
void safetensors_writer_abandon(SafetensorsWriter *writer); // accepts NULL
/* Closes the writer if `written` is OK, else abandons it. */
CHECKED static inline Status safetensors_writer_finish(SafetensorsWriter *writer, Status written) {
    if (!written) return safetensors_writer_close(writer);
    safetensors_writer_abandon(writer);
    return written;
}

/* Several processes write one file, each some of the entries, never a part of an entry. The first process
 * opens the file. The others join with the result of `share` (valid as long as the writer) and the same
 * entries, and end with abandon. After go, append continues with the named entry. At the end the first
 * process accepts the digests of the other processes' entries; close requires that every entry has been
 * written or accepted. */
typedef struct {
    const char *path; // path of the temporary file; NULL: a device or a pipe, which cannot be shared
    int64_t base;     // offset of the elements
} SafetensorsShare;
SafetensorsShare safetensors_writer_share(const SafetensorsWriter *writer);
CHECKED Status safetensors_writer_join(SafetensorsShare share, const SafetensorsEntry *entries, int64_t count,
                                       SafetensorsWriter **writer);
void safetensors_writer_go(SafetensorsWriter *writer, int64_t entry);
bool safetensors_writer_wrote(SafetensorsWriter *writer, int64_t entry, uint64_t *digest);
void safetensors_writer_accept(SafetensorsWriter *writer, int64_t entry, uint64_t digest);
