/* dequantize, a tile at a time (base/groups.h): its codes lie by words of each row, so they are sorted by row
 * first, and a row's group is then one vectorized pass. */
#include "base/bfloat16.h"
#include "base/groups.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/real.h"

enum { CODES = GROUP_ROWS * GROUP, LOOKED_UP = sizeof(int8_t[LEVELS]), WORD = 4 };

typedef int8_t Levels __attribute__((vector_size(LOOKED_UP)));

/* Sets the tile's codes of 8 bits, in the order of I8. */
static void levels_of_halves(const int8_t *tile, int8_t codes[CODES]) {
    Levels levels, halves;
    memcpy(&levels, groups_levels, sizeof levels);
    for (int i = 0; i < CODES / 2; i += LOOKED_UP) {
        memcpy(&halves, tile + i, sizeof halves);
        const Levels low = __builtin_shuffle(levels, halves & 15);
        const Levels high = __builtin_shuffle(levels, halves >> 4 & 15);
        memcpy(codes + i, &low, sizeof low);
        memcpy(codes + CODES / 2 + i, &high, sizeof high);
    }
}

static void write_tile(const int8_t *codes, const uint16_t *scales, Tensor y, int64_t row, int64_t column) {
    int8_t sorted[GROUP_ROWS][GROUP];
    for (int r = 0; r < GROUP_ROWS; r++)
        for (int w = 0; w < GROUP / WORD; w++)
            memcpy(sorted[r] + w * WORD, codes + (w * GROUP_ROWS + r) * WORD, WORD);
    for (int r = 0; r < GROUP_ROWS; r++) {
        stored *to = stored_row(y, row + r) + column;
        const float scale = bfloat16_to_float(scales[r]);
        float room[GROUP], *run = run_of(to, room);
#pragma omp simd
        for (int i = 0; i < GROUP; i++) run[i] = scale * (float)sorted[r][i];
        store_run(run, GROUP, to);
    }
}

static Status dequantize_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const Dequantize *d = contract;
    const int64_t groups = tensor_width(d->x) / GROUP, bytes = dtype_bytes(d->x.dtype, CODES);
    const uint16_t *scales = d->x.scales;
    PRIMITIVE (ctx, "dequantize", ELEMENTWISE) {
        EACH (ctx, t, tensor_count(d->x) / CODES, CODES) {
            int8_t room[CODES];
            const int8_t *codes = (const int8_t *)d->x.data + t * bytes;
            if (d->x.dtype == I4) {
                levels_of_halves(codes, room);
                codes = room;
            }
            write_tile(codes, scales + t * GROUP_ROWS, d->y, t / groups * GROUP_ROWS, t % groups * GROUP);
        }
    }
    return OK;
}
SLOT(DEQUANTIZE, FORWARD, CPU, FUSED, STORED_DTYPE, dequantize_forward_cpu_fused);
