#define _GNU_SOURCE
#include "base/checked.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/digest.h"
#include "data/safetensors_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* A tensor of the writer. */
typedef struct {
    char *key;            // key of its digest
    int64_t begin, bytes; // offset after the header
    bool done;
    uint64_t digest;
} Written;

struct SafetensorsWriter {
    FileWriter *file;
    char *path;
    json_t *header;    // written again at the end, with digests
    Written *tensors;  // (count)
    int64_t count, at; // number of tensors, and the one being written
    int64_t done;      // bytes written of that tensor
    int64_t total;     // bytes of all tensors
    int64_t base;      // bytes of the header
    Digest *digest;    // digest of the tensor that is being written
};

/* Adds one entry to the header. `offset` is advanced from the beginning of its elements to their end. */
static Status describe_entry(json_t *header, const SafetensorsEntry *entry, int64_t *offset) {
    int64_t bytes = 1, begin = *offset;
    json_t *shape = json_array();
    bool overflow = false;
    for (int i = 0; i < entry->rank; i++) {
        json_array_append_new(shape, json_integer(entry->d[i]));
        overflow |= checked_multiply(bytes, entry->d[i], &bytes);
    }
    /* The element size is multiplied last: a tensor without elements has no bytes, however long another axis
     * is. */
    overflow |= checked_multiply(bytes, safetensors_type_size(entry->type), &bytes);
    if (overflow || checked_add(begin, bytes, offset)) {
        json_decref(shape);
        return fail(ERROR_MEMORY, "tensor '%s' is too large to be written", entry->name);
    }
    json_t *value = json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_type_name(entry->type), "shape",
                              shape, "data_offsets", (json_int_t)begin, (json_int_t)*offset);
    if (json_object_set_new(header, entry->name, value) == 0) return OK;
    return fail(ERROR_INTERNAL, "the name of tensor '%s' is not UTF-8", entry->name);
}

static json_t *metadata_of(const SafetensorsWriter *w) {
    return json_object_get(w->header, "__metadata__");
}

static void set_digest(SafetensorsWriter *w, const char *key, uint64_t digest) {
    char digits[SAFETENSORS_DIGITS + 1];
    if (!file_writer_seeks(w->file)) return; // a pipe cannot be rewritten, so it gets no digests
    snprintf(digits, sizeof digits, "%016" PRIx64, digest);
    json_object_set_new(metadata_of(w), key, json_string(digits));
}

static Status describe(SafetensorsWriter *w, const SafetensorsEntry *entries, const SafetensorsNote *notes,
                       int64_t note_count) {
    json_t *metadata = json_object();
    bool failed = json_object_set_new(w->header, "__metadata__", metadata) != 0;
    for (int64_t i = 0; i < note_count; i++)
        failed = json_object_set_new(metadata, notes[i].key, json_string(notes[i].value)) != 0 || failed;
    if (failed) return fail(ERROR_INTERNAL, "the metadata is not UTF-8");
    set_digest(w, SAFETENSORS_DIGEST, 0);
    for (int64_t i = 0; i < w->count; i++) {
        size_t room = sizeof SAFETENSORS_DIGEST + 1 + strlen(entries[i].name);
        int64_t begin = w->total;
        TRY(describe_entry(w->header, &entries[i], &w->total));
        w->tensors[i] = (Written){.key = memory_allocate(room), .begin = begin, .bytes = w->total - begin};
        snprintf(w->tensors[i].key, room, "%s.%s", SAFETENSORS_DIGEST, entries[i].name);
        set_digest(w, w->tensors[i].key, 0);
    }
    return OK;
}

/* Length and text of the header, padded so that the elements begin at a multiple of 8 bytes. The caller frees
 * it. */
static uint8_t *print_header(const SafetensorsWriter *w, int64_t *bytes) {
    size_t length = json_dumpb(w->header, NULL, 0, JSON_COMPACT), padded = (length + 7) / 8 * 8;
    uint8_t *text = memory_allocate(8 + padded);
    memset(text + 8, ' ', padded);
    for (int i = 0; i < 8; i++) text[i] = (uint8_t)(padded >> 8 * i);
    json_dumpb(w->header, (char *)text + 8, length, JSON_COMPACT);
    *bytes = (int64_t)(8 + padded);
    return text;
}

static Status write_header(SafetensorsWriter *w) {
    OWNED uint8_t *text = print_header(w, &w->base);
    return file_writer_append(w->file, text, w->base);
}

/* Overwrites the header that had zeros for digests. The length is the same. */
static Status write_digests(SafetensorsWriter *w) {
    static const char before[] = "\"" SAFETENSORS_DIGEST "\":\"";
    int64_t bytes;
    if (!file_writer_seeks(w->file)) return OK;
    for (int64_t i = 0; i < w->count; i++) set_digest(w, w->tensors[i].key, w->tensors[i].digest);
    OWNED uint8_t *text = print_header(w, &bytes);
    uint8_t *digits = memmem(text, (size_t)bytes, before, sizeof before - 1);
    digits += sizeof before - 1;
    set_digest(w, SAFETENSORS_DIGEST, safetensors_header_digest(text + 8, bytes - 8, digits));
    OWNED uint8_t *final = print_header(w, &bytes);
    return file_writer_write_at(w->file, 0, final, bytes);
}

/* Moves past every completed tensor; an empty tensor is complete from the start. */
static void finish_tensors(SafetensorsWriter *w) {
    for (; w->at < w->count && w->done == w->tensors[w->at].bytes; w->at++, w->done = 0) {
        safetensors_writer_accept(w, w->at, digest_value(w->digest));
        digest_begin(w->digest);
    }
}

static SafetensorsWriter *make_writer(const char *path, int64_t count) {
    SafetensorsWriter *w = memory_allocate(sizeof *w);
    *w = (SafetensorsWriter){.path = memory_text(path),
                             .header = json_object(),
                             .tensors = memory_array((size_t)count, sizeof *w->tensors),
                             .count = count,
                             .digest = digest_open()};
    return w;
}

static Status start(SafetensorsWriter *w, const SafetensorsEntry *entries, const SafetensorsNote *notes,
                    int64_t note_count) {
    TRY(file_writer_open(w->path, &w->file));
    TRY(fail_at(describe(w, entries, notes, note_count), "%s", w->path));
    return write_header(w);
}

/* Hands the writer on, or abandons it if it could not be started. */
static Status hand_on(Status status, SafetensorsWriter *started, SafetensorsWriter **writer) {
    *writer = status ? NULL : started;
    if (status) safetensors_writer_abandon(started);
    return status;
}

Status safetensors_writer_open(const char *path, const SafetensorsEntry *entries, int64_t count,
                               const SafetensorsNote *notes, int64_t note_count, SafetensorsWriter **writer) {
    SafetensorsWriter *w = make_writer(path, count);
    return hand_on(start(w, entries, notes, note_count), w, writer);
}

/* Writes a piece of one tensor. */
static Status write_piece(SafetensorsWriter *w, const void *data, int64_t bytes) {
    const Written *t = &w->tensors[w->at];
    if (file_writer_seeks(w->file))
        TRY(file_writer_write_at(w->file, w->base + t->begin + w->done, data, bytes));
    else
        TRY(file_writer_append(w->file, data, bytes));
    digest_add(w->digest, data, (size_t)bytes);
    w->done += bytes;
    return OK;
}

Status safetensors_writer_append(SafetensorsWriter *writer, const void *data, int64_t bytes) {
    const int64_t begin = writer->at < writer->count ? writer->tensors[writer->at].begin : writer->total;
    if (bytes > writer->total - begin - writer->done)
        return fail(ERROR_INTERNAL, "%s: more bytes were written than its header declares", writer->path);
    for (const char *from = data; bytes;) {
        finish_tensors(writer);
        int64_t rest = writer->tensors[writer->at].bytes - writer->done, here = rest < bytes ? rest : bytes;
        TRY(write_piece(writer, from, here));
        from += here;
        bytes -= here;
    }
    return OK;
}

static Status finish(SafetensorsWriter *w) {
    finish_tensors(w);
    for (int64_t i = 0; i < w->count; i++)
        if (!w->tensors[i].done)
            return fail(ERROR_INTERNAL, "%s: fewer bytes were written than its header declares", w->path);
    return write_digests(w);
}

Status safetensors_writer_close(SafetensorsWriter *writer) {
    Status status = file_writer_finish(writer->file, finish(writer));
    writer->file = NULL;
    safetensors_writer_abandon(writer);
    return status;
}

void safetensors_writer_abandon(SafetensorsWriter *writer) {
    if (!writer) return;
    file_writer_abandon(writer->file);
    json_decref(writer->header);
    for (int64_t i = 0; i < writer->count; i++) memory_free(writer->tensors[i].key);
    memory_free(writer->tensors);
    digest_close(writer->digest);
    memory_free(writer->path);
    memory_free(writer);
}

/* ---- by several processes ---- */

SafetensorsShare safetensors_writer_share(const SafetensorsWriter *writer) {
    return (SafetensorsShare){file_writer_temporary(writer->file), writer->base};
}

Status safetensors_writer_join(SafetensorsShare share, const SafetensorsEntry *entries, int64_t count,
                               SafetensorsWriter **writer) {
    SafetensorsWriter *w = make_writer(share.path, count);
    w->base = share.base;
    Status status = file_writer_join(share.path, &w->file);
    if (!status) status = fail_at(describe(w, entries, NULL, 0), "%s", share.path);
    return hand_on(status, w, writer);
}

void safetensors_writer_go(SafetensorsWriter *writer, int64_t entry) {
    finish_tensors(writer);
    writer->at = entry;
    writer->done = 0;
    digest_begin(writer->digest);
}

bool safetensors_writer_wrote(SafetensorsWriter *writer, int64_t entry, uint64_t *digest) {
    finish_tensors(writer);
    *digest = writer->tensors[entry].digest;
    return writer->tensors[entry].done;
}

void safetensors_writer_accept(SafetensorsWriter *writer, int64_t entry, uint64_t digest) {
    writer->tensors[entry].done = true;
    writer->tensors[entry].digest = digest;
}
