#include "kernels/device/amx.h"

#ifdef __AMX_BF16__

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

bool amx_ready(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA of Linux
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

void amx_begin(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.bytes[i] = 64;
        shape.rows[i] = AMX_SIDE;
    }
    __asm__ volatile("" ::"r"(&shape) : "memory"); // the compiler assumes that only the first bytes are read
    _tile_loadconfig(&shape);
}

void amx_transpose(const void *from, int64_t from_stride, void *to, int64_t to_stride) {
    __m512i r[AMX_SIDE], t[AMX_SIDE];
    for (int i = 0; i < AMX_SIDE; i++) r[i] = _mm512_loadu_si512((const uint32_t *)from + i * from_stride);
    for (int i = 0; i < AMX_SIDE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < AMX_SIDE; i += 4) { // r[i + c]: rows i to i + 3 of columns c, c + 4, c + 8, c + 12
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; c++) {
        __m512i even = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
        __m512i odd = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xDD);
        __m512i even_below = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
        __m512i odd_below = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xDD);
        uint32_t *column = (uint32_t *)to + c * to_stride;
        _mm512_storeu_si512(column, _mm512_shuffle_i32x4(even, even_below, 0x88));
        _mm512_storeu_si512(column + 4 * to_stride, _mm512_shuffle_i32x4(odd, odd_below, 0x88));
        _mm512_storeu_si512(column + 8 * to_stride, _mm512_shuffle_i32x4(even, even_below, 0xDD));
        _mm512_storeu_si512(column + 12 * to_stride, _mm512_shuffle_i32x4(odd, odd_below, 0xDD));
    }
}

#endif
