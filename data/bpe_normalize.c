/* Normalization before a text is split. Invalid UTF-8 stays unchanged. */
#define _GNU_SOURCE // memmem
#include "base/utf8.h"
#include "data/bpe.h"
#include "data/decompose.h"

#include <string.h>
#include <utf8proc.h>

/* Whether all characters are below U+0300, where NFC changes nothing. */
static bool is_composed(const uint8_t *text, int64_t length) {
    uint8_t highest = 0;
    for (int64_t i = 0; i < length; i++) highest = text[i] > highest ? text[i] : highest;
    return highest < 0xCC;
}

/* Composes a run of valid UTF-8. */
static void compose_run(Bpe *bpe, const uint8_t *text, int64_t length, Bytes *out) {
    if (is_composed(text, length)) {
        bytes_put(out, text, length);
        return;
    }
    int64_t count = unicode_decompose(text, length, &bpe->points, &bpe->point_room);
    count = utf8proc_normalize_utf32(bpe->points, count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    bytes_reserve(out, 4 * count);
    for (int64_t i = 0; i < count; i++)
        out->count += utf8proc_encode_char(bpe->points[i], out->bytes + out->count);
}

static void compose(Bpe *bpe, const uint8_t *text, int64_t length, Bytes *out) {
    for (int64_t at = 0; at < length;) {
        int64_t end = utf8_valid_end(text, at, length);
        if (end > at) compose_run(bpe, text + at, end - at, out);
        if (end < length) bytes_put(out, text + end, 1);
        at = end + 1;
    }
}

static void replace(const uint8_t *text, int64_t length, const char *from, const char *to, Bytes *out) {
    int64_t size = (int64_t)strlen(from), done = 0;
    for (const uint8_t *found;
         (found = memmem(text + done, (size_t)(length - done), from, (size_t)size)) != NULL;) {
        bytes_put(out, text + done, found - (text + done));
        bytes_put(out, to, (int64_t)strlen(to));
        done = found - text + size;
    }
    bytes_put(out, text + done, length - done);
}

const uint8_t *bpe_normalize(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool whole,
                             int64_t *count) {
    Bpe *bpe = tokenizer->bpe;
    for (int i = 0; i < bpe->normal_count; i++) {
        const NormalStep *step = &bpe->normal[i];
        Bytes *out = &bpe->normalized[i % 2];
        out->count = 0;
        if (step->kind == NORMAL_PREPEND && whole && length)
            bytes_put(out, step->to, (int64_t)strlen(step->to));
        if (step->kind == NORMAL_NFC)
            compose(bpe, text, length, out);
        else if (step->kind == NORMAL_REPLACE)
            replace(text, length, step->from, step->to, out);
        else
            bytes_put(out, text, length);
        text = out->bytes;
        length = out->count;
    }
    *count = length;
    return text;
}

const uint8_t *bpe_mark_spaces(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                               int64_t *count) {
    Bpe *bpe = tokenizer->bpe;
    const char *mark = bpe->spaces_marked ? SPACE_MARK : " ";
    int64_t size = (int64_t)strlen(mark);
    bool wanted = bpe->spaces_marked ? bpe->mark_always || (bpe->mark_first && first)
                                     : bpe->step_count && bpe->steps[0].prefix;
    bool marked = length && (text[0] == ' ' || (length >= size && memcmp(text, mark, (size_t)size) == 0));
    Bytes *out = &bpe->marked;
    *count = length;
    if (!bpe->spaces_marked && (!wanted || marked)) return text;
    out->count = 0;
    if (wanted && !marked && length) bytes_put(out, mark, size);
    if (bpe->spaces_marked)
        replace(text, length, " ", mark, out);
    else
        bytes_put(out, text, length);
    *count = out->count;
    return out->bytes;
}
