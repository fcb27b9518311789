/* Fuzzes tokenizer files and texts. The first byte selects the rest's meaning: 'v' a vocab.json, a zero byte
 * and a merges.txt; 'w' a tokenizer.json; 'p' a WordPiece's vocab.txt; else a text for the fixture's
 * tokenizer. Accepted tokenizers must give ids in their vocabulary, and GPT-2's kind must restore any
 * bytes. */
#include "data/tokenizer.h"

#include "data/bpe.h"
#include "data/tokenizer_state.h"
#include "data/wordpiece.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { TEXT_MOST = 1024 }; // bytes; longer texts only take longer

static void round_trip(Tokenizer *tokenizer, bool bytes_back, const uint8_t *text, size_t size) {
    if (size > TEXT_MOST) size = TEXT_MOST;
    TokenList list = {0};
    must(!tokenizer_encode_special(tokenizer, text, (int64_t)size, &list));
    size_t at = 0;
    for (int64_t i = 0; i < list.count; i++) {
        must(list.ids[i] >= 0 && list.ids[i] < tokenizer->vocab);
        if (!bytes_back) continue;
        int64_t length;
        const uint8_t *bytes = tokenizer_decode(tokenizer, list.ids[i], &length);
        must(length > 0 && (size_t)length <= size - at && memcmp(bytes, text + at, (size_t)length) == 0);
        at += (size_t)length;
    }
    must(!bytes_back || at == size);
    token_list_free(&list);
}

static Status load(Tokenizer *tokenizer, const uint8_t *data, size_t size) {
    const char first[] = SCRATCH "/first", second[] = SCRATCH "/second";
    const uint8_t *zero = data[0] == 'v' ? memchr(data, 0, size) : NULL;
    size_t length = zero ? (size_t)(zero - data) : size;
    scratch_put("first", data + 1, length - 1);
    if (zero) scratch_put("second", zero + 1, size - length - 1);
    return zero             ? bpe_load(tokenizer, first, second, NULL)
           : data[0] == 'p' ? wordpiece_load(tokenizer, first, NULL, NULL)
                            : tokenizer_load_json(tokenizer, first, NULL, NULL);
}

static void read_tokenizer(const uint8_t *data, size_t size) {
    static Tokenizer *fixture;
    if (size == 0) return;
    if (data[0] != 'v' && data[0] != 'w' && data[0] != 'p') {
        if (!fixture) must(!tokenizer_open("tests/fixtures/tokenizer/plain", &fixture));
        round_trip(fixture, true, data + 1, size - 1);
        return;
    }
    Tokenizer *tokenizer = tokenizer_new();
    Status status = load(tokenizer, data, size);
    if (!status) round_trip(tokenizer, false, data, size);
    status_free(status);
    tokenizer_free(tokenizer);
}

FUZZ(tokenizer, read_tokenizer, NULL)
