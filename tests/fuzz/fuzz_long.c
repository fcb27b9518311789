/* Fuzzes tokenizers with long texts, which must take time proportional to the length. The first byte selects
 * a fixture's tokenizer, or with 'w' a tokenizer.json up to a zero byte; the rest is repeated up to LONG
 * bytes. */
#include "data/tokenizer.h"
#include "data/tokenizer_state.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <time.h>

enum { LONG = 1 << 16 /* bytes */ };
/* CPU seconds under sanitizers: for a pattern's first budget of steps, and for each byte. */
static const double SECONDS = 3, SECONDS_PER_BYTE = 2e-5;

static double core_seconds(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static void encode_repeated(Tokenizer *tokenizer, const uint8_t *unit, size_t size) {
    static uint8_t text[LONG];
    TokenList list = {0};
    for (size_t at = 0; at < LONG; at++) text[at] = unit[at % size];
    const double before = core_seconds();
    Status status = tokenizer_encode(tokenizer, text, LONG, &list);
    must(core_seconds() - before < SECONDS + SECONDS_PER_BYTE * LONG);
    for (int64_t i = 0; i < list.count; i++) must(list.ids[i] >= 0 && list.ids[i] < tokenizer->vocab);
    if (status) must_refuse(status, ERROR_FORMAT); // the pattern's budget is used up
    token_list_free(&list);
}

static void read_long(const uint8_t *data, size_t size) {
    static const char *const folders[] = {"tests/fixtures/tokenizer/plain", "tests/fixtures/tokenizer/whole",
                                          "tests/fixtures/wordpiece/cased", "tests/fixtures/wordpiece/lower"};
    static Tokenizer *fixtures[4];
    if (size < 2) return;
    if (data[0] != 'w') {
        const int i = data[0] % 4;
        if (!fixtures[i]) must(!tokenizer_open(folders[i], &fixtures[i]));
        encode_repeated(fixtures[i], data + 1, size - 1);
        return;
    }
    const uint8_t *zero = memchr(data, 0, size);
    if (!zero || zero == data + size - 1) return;
    Tokenizer *tokenizer = tokenizer_new();
    scratch_put("first", data + 1, (size_t)(zero - data) - 1);
    Status status = tokenizer_load_json(tokenizer, SCRATCH "/first", NULL, NULL);
    if (!status) encode_repeated(tokenizer, zero + 1, (size_t)(data + size - zero) - 1);
    status_free(status);
    tokenizer_free(tokenizer);
}

FUZZ(long, read_long, NULL)
