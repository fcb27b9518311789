#include "base/utf8.h"

#include <string.h>

int utf8_character(const uint8_t *at, int64_t left) {
    if (at[0] < 0x80) return 1;
    int bytes = at[0] >= 0xC2 && at[0] <= 0xDF   ? 2
                : at[0] >= 0xE0 && at[0] <= 0xEF ? 3
                : at[0] >= 0xF0 && at[0] <= 0xF4 ? 4
                                                 : 0;
    if (!bytes || left < bytes) return 0;
    uint8_t low = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < low || at[1] > high) return 0;
    for (int i = 2; i < bytes; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return bytes;
}

int64_t utf8_valid_end(const uint8_t *text, int64_t from, int64_t length) {
    while (from < length) {
        uint64_t eight;
        if (length - from >= 8) {
            memcpy(&eight, text + from, 8);
            if (!(eight & 0x8080808080808080)) { /* ASCII, the common case */
                from += 8;
                continue;
            }
        }
        int bytes = utf8_character(text + from, length - from);
        if (!bytes) break;
        from += bytes;
    }
    return from;
}

static bool shown(const char *at, int bytes, bool lines) {
    uint8_t first = (uint8_t)at[0];
    if (bytes == 2) return first != 0xC2 || (uint8_t)at[1] >= 0xA0; // C1 controls
    return bytes > 2 || (bytes == 1 && first >= ' ' && first != 127) ||
           (lines && (first == '\n' || first == '\t'));
}

void utf8_tame(char *text, int64_t length, bool lines) {
    for (int64_t at = 0; at < length;) {
        int bytes = utf8_character((const uint8_t *)text + at, length - at), step = bytes ? bytes : 1;
        if (!shown(text + at, bytes, lines)) memset(text + at, '?', (size_t)step);
        at += step;
    }
}
