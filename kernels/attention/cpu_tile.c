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
