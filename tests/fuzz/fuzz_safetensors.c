/* Fuzzes safetensors. An accepted file must keep the format's promises, and survive writing and reading. */
#include "data/safetensors.h"

#include "base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Reads all values, a few at a time. Returns the bytes that the tensors cover. */
static int64_t read_all(const Safetensors *file) {
    int64_t covered = 0;
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        const SafetensorsEntry *entry = safetensors_entry(file, i);
        must(safetensors_find(file, entry->name) == entry);
        must(entry->bytes == entry->count * safetensors_type_size(entry->type));
        float values[7];
        for (int64_t first = 0; first < entry->count; first += 7) {
            int64_t left = entry->count - first;
            status_free(safetensors_read(entry, first, left < 7 ? left : 7, values));
        }
        covered += entry->bytes;
    }
    return covered;
}

static void must_equal(const Safetensors *a, const Safetensors *b) {
    must(safetensors_count(a) == safetensors_count(b));
    must(safetensors_note_count(a) == safetensors_note_count(b));
    for (int64_t i = 0; i < safetensors_count(a); i++) {
        const SafetensorsEntry *x = safetensors_entry(a, i), *y = safetensors_entry(b, i);
        must(strcmp(x->name, y->name) == 0 && x->type == y->type && x->rank == y->rank &&
             x->bytes == y->bytes);
        must(memcmp(x->d, y->d, sizeof x->d) == 0);
        must(x->bytes == 0 || memcmp(x->data, y->data, (size_t)x->bytes) == 0);
    }
}

static void write_again(const Safetensors *file) {
    const char path[] = SCRATCH "/again";
    int64_t count = safetensors_count(file), notes = safetensors_note_count(file);
    SafetensorsEntry *entries = memory_array((size_t)count + 1, sizeof *entries);
    SafetensorsNote *metadata = memory_array((size_t)notes + 1, sizeof *metadata);
    for (int64_t i = 0; i < count; i++) entries[i] = *safetensors_entry(file, i);
    for (int64_t i = 0; i < notes; i++) metadata[i] = safetensors_note(file, i);
    SafetensorsWriter *writer;
    Safetensors *again;
    must(!safetensors_writer_open(path, entries, count, metadata, notes, &writer));
    for (int64_t i = 0; i < count; i++)
        must(!safetensors_writer_append(writer, entries[i].data, entries[i].bytes));
    must(!safetensors_writer_close(writer));
    must(!safetensors_open(path, &again));
    must_equal(file, again);
    safetensors_close(again);
    memory_free(entries);
    memory_free(metadata);
}

static void read_safetensors(const uint8_t *data, size_t size) {
    Safetensors *file;
    Status status = safetensors_parse(data, (int64_t)size, "input", &file);
    must(!status == (file != NULL));
    if (status) {
        must_refuse(status, ERROR_FORMAT);
        return;
    }
    must(read_all(file) <= (int64_t)size - 8);
    status_free(safetensors_verify_all(file));
    write_again(file);
    safetensors_close(file);
}

FUZZ(safetensors, read_safetensors, mutate_safetensors)
