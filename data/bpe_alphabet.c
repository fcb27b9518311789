/* The byte alphabet of GPT-2's files, which represents any byte as printable text without spaces. */
#include "data/bpe.h"

/* Each byte is one character: printable characters of Latin-1 represent themselves, the other 68 bytes get
 * the code points from 256 on, in order. So the space is U+0120 and the newline U+010A. */

static bool stands_for_itself(uint32_t byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

uint32_t alphabet_code_point(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    if (byte <= 0x20) return 256u + byte;
    return byte < 0xA1 ? 256u + 33 + (byte - 0x7Fu) : 256u + 67; /* 0x7F..0xA0, and 0xAD last */
}

int alphabet_write(uint8_t byte, char out[2]) {
    uint32_t point = alphabet_code_point(byte);
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    out[0] = (char)(0xC0 | point >> 6);
    out[1] = (char)(0x80 | (point & 0x3F));
    return 2;
}

/* The byte that `point` represents, or -1. */
static int byte_of(uint32_t point) {
    if (point < 256) return stands_for_itself(point) ? (int)point : -1;
    uint32_t index = point - 256;
    if (index <= 0x20) return (int)index;
    if (index < 67) return (int)(0x7F + index - 33);
    return index == 67 ? 0xAD : -1;
}

int64_t alphabet_read(const char *text, uint8_t *bytes) {
    int64_t count = 0;
    for (const uint8_t *at = (const uint8_t *)text; *at;) {
        uint32_t point = *at++;
        if (point >= 0x80) {
            if ((point & 0xE0) != 0xC0 || (*at & 0xC0) != 0x80) return -1;
            point = (point & 0x1F) << 6 | (*at++ & 0x3F);
        }
        int byte = byte_of(point);
        if (byte < 0) return -1;
        bytes[count++] = (uint8_t)byte;
    }
    return count;
}
