/* Fuzzes a model in several files, from an input of scratch_unpack: model.safetensors.index.json and its
 * shards. An accepted model must have each tensor once, and whole. */
#include "data/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void read_index(const uint8_t *data, size_t size) {
    Safetensors *file;
    scratch_unpack(data, size);
    Status status = safetensors_open_folder(SCRATCH, &file);
    must(!status == (file != NULL));
    if (status) {
        must(status_code(status) == ERROR_FILE || status_code(status) == ERROR_FORMAT);
        status_free(status);
        return;
    }
    int64_t bytes = 0;
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        const SafetensorsEntry *entry = safetensors_entry(file, i);
        must(safetensors_find(file, entry->name) == entry);
        bytes += entry->bytes;
        volatile uint8_t last = entry->bytes ? entry->data[entry->bytes - 1] : 0;
        (void)last;
        status_free(safetensors_verify(entry));
    }
    must(bytes <= (int64_t)size);
    safetensors_close(file);
}

FUZZ(index, read_index, mutate_folder)
