#include "data/text_stream.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "data/tokenizer_state.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; // U+FFFD

/* How many bytes at `at` are the beginning of a character that more bytes could complete; 0 if the first
 * cannot begin one. */
static int64_t beginning(const uint8_t *at, int64_t left) {
    int needed = at[0] >= 0xC2 && at[0] <= 0xDF   ? 2
                 : (at[0] & 0xF0) == 0xE0         ? 3
                 : at[0] >= 0xF0 && at[0] <= 0xF4 ? 4
                                                  : 0;
    uint8_t low = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (needed == 0) return 0;
    int64_t count = 1;
    if (count < left && at[1] >= low && at[1] <= high)
        for (count = 2; count < left && count < needed - 1 && (at[count] & 0xC0) == 0x80;) count++;
    return count;
}

/* Moves whole characters out of the bytes, and replaces invalid ones; returns how many bytes at the end could
 * still become a character. */
static int64_t put_characters(const uint8_t *bytes, int64_t count, Bytes *out) {
    int64_t at = 0;
    while (at < count) {
        int whole = utf8_character(bytes + at, count - at);
        int64_t begun = whole ? whole : beginning(bytes + at, count - at);
        if (!whole && begun && at + begun == count) return begun;
        bytes_put(out, whole ? (const void *)(bytes + at) : replacement, whole ? whole : 3);
        at += begun ? begun : 1;
    }
    return 0;
}

static bool is_special(const Tokenizer *t, int32_t id) {
    for (int set = 0; set < 2; set++)
        for (int64_t i = 0; i < t->added[set].count; i++)
            if (t->added[set].tokens[i].id == id) return t->added[set].tokens[i].special;
    return false;
}

/* A WordPiece that continues a word begins with ##; all others start a word, after a blank unless they are
 * punctuation that has no blank before it. */
static void put_piece(TextStream *stream, const uint8_t *bytes, int64_t length, Bytes *out) {
    bool within = length > 2 && memcmp(bytes, "##", 2) == 0, mark = length == 1 && strchr(".,!?", bytes[0]);
    if (stream->begun && !within && !mark) bytes_put(out, " ", 1);
    bytes_put(out, bytes + 2 * within, length - 2 * within);
    stream->begun = true;
}

void tokenizer_stream(const Tokenizer *tokenizer, TextStream *stream, int32_t id, Bytes *out) {
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(tokenizer, id, &length);
    if (length == 0 || is_special(tokenizer, id)) return;
    if (tokenizer->kind == TOKENIZER_WORDPIECE) {
        put_piece(stream, bytes, length, out);
        return;
    }
    bool drop = !stream->begun && tokenizer->decoding.leading_gone && bytes[0] == ' ';
    stream->begun = true;
    Bytes joined = {0}; /* the held bytes, and the token's */
    bytes_put(&joined, stream->held, stream->count);
    bytes_put(&joined, bytes + drop, length - drop);
    stream->count = (int)put_characters(joined.bytes, joined.count, out);
    memcpy(stream->held, joined.bytes + joined.count - stream->count, (size_t)stream->count);
    memory_free(joined.bytes);
}

void tokenizer_stream_end(TextStream *stream, Bytes *out) {
    if (stream->count) bytes_put(out, replacement, 3);
    stream->count = 0;
}
