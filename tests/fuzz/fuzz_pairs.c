/* Fuzzes sentence pairs from two texts, separated by a zero byte. Accepted sentences must fit the size
 * limits. */
#include "base/memory.h"
#include "tasks/pairs/pairs.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { SEQ = 12, BATCH = 3 };

/* Reads one epoch and the beginning of the next. */
static void read_batches(const PairSource *pairs) {
    const LoaderOptions options = {.batch = BATCH, .seq = SEQ, .shuffle = true};
    Loader *loader;
    Batch batch;
    must(!loader_open_pairs(&options, pairs, &loader));
    for (int64_t rows = 0; rows <= pairs_count(pairs) + BATCH; rows += BATCH) {
        must(!loader_next(loader, &batch) && batch.seq <= SEQ && batch.source_seq <= SEQ);
        for (int i = 0; i < BATCH; i++)
            must(batch.lengths[i] <= batch.seq && batch.source_lengths[i] <= batch.source_seq);
        for (int64_t i = 0; i < BATCH * batch.seq; i++)
            must(batch.inputs[i] >= 0 && batch.inputs[i] < TRAINED_LEAST && batch.targets[i] < TRAINED_LEAST);
    }
    loader_close(loader);
}

static void read_pairs(const uint8_t *data, size_t size) {
    Tokenizer *tokenizer = fuzz_tokenizer();
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : size;
    PairOptions options = {SCRATCH "/source", SCRATCH "/target", tokenizer, SEQ};
    PairSource *pairs;
    PairPadding padding;
    scratch_put("source", data, first);
    scratch_put("target", data + first + (zero != NULL), size - first - (zero != NULL));
    char *names = memory_text_slice((const char *)data, first), *sides[2];
    Status status = pairs_split_names(names, &sides[0], &sides[1]);
    must(!status == (sides[0] && sides[1]));
    for (int side = 0; side < 2; side++) memory_free(sides[side]);
    memory_free(names);
    status_free(status);
    status = pairs_open(&options, &pairs);
    if (status) {
        must_refuse(status, ERROR_FORMAT);
        return;
    }
    int64_t sum = 0, length;
    for (int64_t i = 0; i < pairs_count(pairs); i++)
        for (int side = 0; side < 2; side++) {
            const int32_t *ids = pairs_sentence(pairs, side, i, &length);
            must(length >= 1 && length < SEQ);
            for (int64_t k = 0; k < length; k++) must(ids[k] >= 0 && ids[k] < tokenizer_vocab(tokenizer));
            sum += length + 1;
        }
    must(pairs_count(pairs) > 0 && pairs_left_out(pairs) >= 0);
    must(!pairs_padding(pairs, BATCH, 1, &padding));
    must(padding.tokens <= sum && padding.padded >= padding.tokens);
    read_batches(pairs);
    pairs_close(pairs);
}

FUZZ(pairs, read_pairs, NULL)
