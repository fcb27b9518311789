#include "kernels/attention/cpu_tile.h"

/* `rows` is a constant wherever this is inlined, so the sums live in registers. */
static inline __attribute__((always_inline)) void panel(const int rows, int64_t k, TileView a, const float *b,
                                                        int64_t ldb, float *c, int64_t ldc, bool accumulate) {
    Lanes sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] = (Lanes){0};
    if (accumulate)
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] = *(const LanesView *)(c + i * ldc + v * LANES);
    for (int64_t p = 0; p < k; p++) {
        Lanes line[TILE_VECTORS];
        for (int v = 0; v < TILE_VECTORS; v++) line[v] = *(const LanesView *)(b + p * ldb + v * LANES);
        for (int i = 0; i < rows; i++) {
            float factor = a.data[i * a.row + p * a.column];
            for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] += factor * line[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < TILE_VECTORS; v++) *(LanesView *)(c + i * ldc + v * LANES) = sum[i][v];
}

void tile_product(int64_t m, int64_t n, int64_t k, TileView a, const float *b, int64_t ldb, float *c,
                  int64_t ldc, bool accumulate) {
    for (int64_t j = 0; j < n; j += TILE_WIDTH)
        for (int64_t i = 0; i < m; i += TILE_ROWS) {
            TileView part = {a.data + i * a.row, a.row, a.column};
            float *to = c + i * ldc + j;
            switch (m - i) {
            case 1: panel(1, k, part, b + j, ldb, to, ldc, accumulate); break;
            case 2: panel(2, k, part, b + j, ldb, to, ldc, accumulate); break;
            case 3: panel(3, k, part, b + j, ldb, to, ldc, accumulate); break;
            default: panel(TILE_ROWS, k, part, b + j, ldb, to, ldc, accumulate);
            }
        }
}

void tile_transpose(const float *from, int64_t from_stride, int64_t rows, int64_t width, float scale,
                    float *to, int64_t stride) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < width; d++) to[d * stride + i] = scale * from[i * from_stride + d];
    if (rows == stride) return;
    for (int64_t d = 0; d < width; d++)
        memset(to + d * stride + rows, 0, (size_t)(stride - rows) * sizeof *to);
}

void tile_pack(const float *from, int64_t from_stride, int64_t rows, int64_t width, float *to,
               int64_t padded) {
    for (int64_t i = 0; i < rows; i++) {
        memcpy(to + i * padded, from + i * from_stride, (size_t)width * sizeof *to);
        memset(to + i * padded + width, 0, (size_t)(padded - width) * sizeof *to);
    }
}
