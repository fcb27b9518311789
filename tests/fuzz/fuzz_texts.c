/* Fuzzes data from an input of scratch_unpack: texts, compressed or not, JSON lines with a text under "text",
 * or token shards. A text is tokenized in memory and into a cached shard; both must be equal. */
#include "data/tokens.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { ROW = 64 };

static Status open_all(const TokenOptions *options, uint64_t *hash) {
    TokenSource *source;
    int32_t row[ROW];
    Status status = tokens_open(SCRATCH "/data", options, &source);
    *hash = 0;
    must(!status == (source != NULL));
    if (status) return status;
    int64_t count = tokens_count(source);
    must(tokens_text_bytes(source) <= 0 || count > 0);
    for (int64_t at = 0; at < count && !status; at += ROW) {
        int64_t here = count - at < ROW ? count - at : ROW;
        status = tokens_read(source, at, here, row);
        for (int64_t i = 0; !status && i < here; i++) {
            must(row[i] >= 0 && row[i] < tokenizer_vocab(options->tokenizer));
            *hash = *hash * 31 + (uint64_t)row[i];
        }
    }
    tokens_close(source);
    return status;
}

static void read_texts(const uint8_t *data, size_t size) {
    TokenOptions options = {.tokenizer = fuzz_tokenizer()};
    uint64_t hash, again;
    scratch_unpack(data, size);
    Status status = open_all(&options, &hash);
    if (!status)
        for (int times = 0; times < 2; times++) { // written, then found
            options.cache = SCRATCH "/cache";
            must(!open_all(&options, &again) && hash == again);
        }
    must(!status || status_code(status) == ERROR_FORMAT || status_code(status) == ERROR_FILE ||
         status_code(status) == ERROR_USAGE);
    status_free(status);
    options.cache = NULL;
    options.field = "text";
    status_free(open_all(&options, &hash));
}

FUZZ(texts, read_texts, mutate_folder)
