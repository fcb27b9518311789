#include "kernels/device/amx.h"

#ifdef __AMX_BF16__

#include "kernels/device/amx_turn.h"

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

enum { SIDE = AMX_SIDE };

/* A block of C: 32 rows, and 32 columns if it is wide, else 16. Tiles 0 to 3 hold sums, 4 and 5 A, 6 and 7 B.
 * B is loaded past L1, where the rows of A stay for the next columns. `wide` is a constant after inlining. */
static inline __attribute__((always_inline)) void product_block(const bool wide, int64_t k, const bf16 *a,
                                                                int64_t a_stride, const AmxPair *b,
                                                                int64_t b_stride, float *c, int64_t c_stride,
                                                                bool accumulate) {
    float *below = c + SIDE * c_stride;
    if (accumulate) {
        _tile_loadd(0, c, 4 * c_stride);
        _tile_loadd(2, below, 4 * c_stride);
        if (wide) _tile_loadd(1, c + SIDE, 4 * c_stride);
        if (wide) _tile_loadd(3, below + SIDE, 4 * c_stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t p = 0; p < k; p += AMX_DEPTH, b += AMX_DEPTH / 2 * b_stride) {
        _tile_loadd(4, a + p, 2 * a_stride);
        _tile_loadd(5, a + p + SIDE * a_stride, 2 * a_stride);
        _tile_stream_loadd(6, b, 4 * b_stride);
        if (wide) _tile_stream_loadd(7, b + SIDE, 4 * b_stride);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        if (wide) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 4 * c_stride);
    _tile_stored(2, below, 4 * c_stride);
    if (wide) _tile_stored(1, c + SIDE, 4 * c_stride);
    if (wide) _tile_stored(3, below + SIDE, 4 * c_stride);
}

/* The asm clobbers memory because the compiler does not know that tiles access it. */
void amx_product(int64_t m, int64_t n, int64_t k, const bf16 *a, int64_t a_stride, const AmxPair *b,
                 int64_t b_stride, float *c, int64_t c_stride, bool accumulate) {
    __asm__ volatile("" ::: "memory");
    for (int64_t i = 0; i < m; i += 2 * SIDE)
        for (int64_t j = 0; j < n; j += 2 * SIDE) {
            const bf16 *left = a + i * a_stride;
            float *to = c + i * c_stride + j;
            if (n - j > SIDE)
                product_block(true, k, left, a_stride, b + j, b_stride, to, c_stride, accumulate);
            else
                product_block(false, k, left, a_stride, b + j, b_stride, to, c_stride, accumulate);
        }
    __asm__ volatile("" ::: "memory");
}

void amx_transpose(const void *from, int64_t from_stride, void *to, int64_t to_stride) {
    __m512i lines[AMX_SIDE];
    for (int i = 0; i < AMX_SIDE; i++)
        lines[i] = _mm512_loadu_si512((const uint32_t *)from + i * from_stride);
    amx_turn(lines);
    for (int i = 0; i < AMX_SIDE; i++) _mm512_storeu_si512((uint32_t *)to + i * to_stride, lines[i]);
}

#endif
