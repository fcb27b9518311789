/* Tokenizer files and texts from bytes. The first byte says what the rest is: 'v' a vocab.json, a zero
 * byte and a merges.txt; 'w' a tokenizer.json; 'p' a WordPiece's vocab.txt; else a text for the fixture's
 * tokenizer. Whatever opens must give ids of its vocabulary, and GPT-2's kind any bytes back. */
#define _GNU_SOURCE
#include "data/tokenizer.h"

#include "data/bpe.h"
#include "data/tokenizer_load.h"
#include "data/wordpiece.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(Tokenizer *tokenizer, bool bytes_back, const uint8_t *text, size_t size) {
    TokenList list = {0};
    Status status = tokenizer_encode_special(tokenizer, text, (int64_t)size, &list);
    if (status) abort();
    size_t at = 0;
    for (int64_t i = 0; i < list.count; i++) {
        if (list.ids[i] < 0 || list.ids[i] >= tokenizer->vocab) abort();
        if (!bytes_back) continue;
        int64_t length;
        const uint8_t *bytes = tokenizer_decode(tokenizer, list.ids[i], &length);
        if (length <= 0 || (size_t)length > size - at || memcmp(bytes, text + at, (size_t)length) != 0)
            abort();
        at += (size_t)length;
    }
    if (bytes_back && at != size) abort();
    token_list_free(&list);
}

/* A file without a name that holds these bytes; `path` is where it can be opened. */
static int memory_file(const uint8_t *data, size_t size, char path[32]) {
    int descriptor = memfd_create("input", 0);
    if (descriptor < 0 || write(descriptor, data, size) != (ssize_t)size) abort();
    snprintf(path, 32, "/proc/self/fd/%d", descriptor);
    return descriptor;
}

static Status load(Tokenizer *tokenizer, const uint8_t *data, size_t size) {
    char paths[2][32];
    const uint8_t *zero = data[0] == 'v' ? memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : size;
    int files[2] = {memory_file(data + 1, first - 1, paths[0]), -1};
    if (zero) files[1] = memory_file(zero + 1, size - first - 1, paths[1]);
    Status status = zero             ? bpe_load(tokenizer, paths[0], paths[1], NULL)
                    : data[0] == 'p' ? wordpiece_load(tokenizer, paths[0], NULL, NULL)
                                     : tokenizer_load_json(tokenizer, paths[0], NULL, NULL);
    close(files[0]);
    if (zero) close(files[1]);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Tokenizer *fixture;
    if (size == 0) return 0;
    if (data[0] != 'v' && data[0] != 'w' && data[0] != 'p') {
        if (!fixture && tokenizer_open("tests/fixtures/tokenizer/plain", &fixture)) abort();
        round_trip(fixture, true, data + 1, size - 1);
        return 0;
    }
    Tokenizer *tokenizer = tokenizer_new();
    Status status = load(tokenizer, data, size);
    if (!status) round_trip(tokenizer, false, data, size);
    status_free(status);
    tokenizer_free(tokenizer);
    return 0;
}
