#include "base/checked.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/safetensors.h"

#include <jansson.h>
#include <string.h>

struct SafetensorsWriter {
    FileWriter *file;
    int64_t left; // bytes that the header promises and append has not brought yet
    char *path;
};

/* One entry of the header. `offset` is where its elements begin, and then where they end. */
static Status describe_entry(json_t *header, const SafetensorsEntry *entry, int64_t *offset) {
    int64_t bytes = safetensors_type_size(entry->type), begin = *offset;
    json_t *shape = json_array();
    bool overflow = false;
    for (int i = 0; i < entry->rank; i++) {
        json_array_append_new(shape, json_integer(entry->d[i]));
        overflow |= checked_multiply(bytes, entry->d[i], &bytes);
    }
    if (overflow || checked_add(begin, bytes, offset)) {
        json_decref(shape);
        return fail(ERROR_MEMORY, "tensor '%s' is too large to be written", entry->name);
    }
    json_t *value = json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_type_name(entry->type), "shape",
                              shape, "data_offsets", (json_int_t)begin, (json_int_t)*offset);
    if (json_object_set_new(header, entry->name, value) == 0) return OK;
    return fail(ERROR_INTERNAL, "the name of tensor '%s' is not UTF-8", entry->name);
}

static Status describe(json_t *header, const SafetensorsEntry *entries, int64_t count,
                       const SafetensorsNote *notes, int64_t note_count, int64_t *bytes) {
    json_t *metadata = json_object();
    bool failed = json_object_set_new(header, "__metadata__", metadata) != 0;
    for (int64_t i = 0; i < note_count; i++)
        failed = json_object_set_new(metadata, notes[i].key, json_string(notes[i].value)) != 0 || failed;
    if (failed) return fail(ERROR_INTERNAL, "the metadata is not UTF-8");
    *bytes = 0;
    for (int64_t i = 0; i < count; i++) TRY(describe_entry(header, &entries[i], bytes));
    return OK;
}

/* Length and text, the text padded so that the elements begin at a multiple of 8 bytes. */
static Status write_header(FileWriter *file, const json_t *header) {
    size_t length = json_dumpb(header, NULL, 0, JSON_COMPACT), padded = (length + 7) / 8 * 8;
    uint8_t *text = memory_allocate(8 + padded);
    memset(text + 8, ' ', padded);
    for (int i = 0; i < 8; i++) text[i] = (uint8_t)(padded >> 8 * i);
    Status status = OK;
    if (json_dumpb(header, (char *)text + 8, length, JSON_COMPACT) != length)
        status = fail(ERROR_INTERNAL, "the header's text changed its length");
    else
        status = file_writer_append(file, text, (int64_t)(8 + padded));
    memory_free(text);
    return status;
}

Status safetensors_writer_open(const char *path, const SafetensorsEntry *entries, int64_t count,
                               const SafetensorsNote *notes, int64_t note_count, SafetensorsWriter **writer) {
    *writer = NULL;
    SafetensorsWriter *w = memory_allocate(sizeof *w);
    w->path = memory_text(path);
    json_t *header = json_object();
    Status status = fail_at(describe(header, entries, count, notes, note_count, &w->left), "%s", path);
    if (!status) status = file_writer_open(path, &w->file);
    if (!status) status = write_header(w->file, header);
    json_decref(header);
    if (!status)
        *writer = w;
    else
        safetensors_writer_abandon(w);
    return status;
}

Status safetensors_writer_append(SafetensorsWriter *writer, const void *data, int64_t bytes) {
    if (bytes > writer->left)
        return fail(ERROR_INTERNAL, "%s: more bytes were written than its header declares", writer->path);
    writer->left -= bytes;
    return file_writer_append(writer->file, data, bytes);
}

Status safetensors_writer_close(SafetensorsWriter *writer) {
    Status status = OK;
    if (writer->left) {
        status = fail(ERROR_INTERNAL, "%s: fewer bytes were written than its header declares", writer->path);
    } else {
        status = file_writer_close(writer->file);
        writer->file = NULL;
    }
    safetensors_writer_abandon(writer);
    return status;
}

void safetensors_writer_abandon(SafetensorsWriter *writer) {
    if (!writer) return;
    file_writer_abandon(writer->file);
    memory_free(writer->path);
    memory_free(writer);
}
