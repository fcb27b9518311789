#include "kernels/attention/cpu_tile.h"

/* Vectors in the last, narrower group of columns. */
enum { REST_VECTORS = TILE_WIDTH > TILE_UNIT ? TILE_UNIT / LANES : TILE_VECTORS };
_Static_assert(TILE_WIDTH == 2 * TILE_UNIT || TILE_UNIT % TILE_WIDTH == 0, "there is no other rest");

/* `rows` and `vectors` are constants after inlining, so the sums stay in registers. */
static inline __attribute__((always_inline)) void panel(const int rows, const int vectors, int64_t k,
                                                        TileView a, const float *b, int64_t ldb, float *c,
                                                        int64_t ldc, bool accumulate) {
    Lanes sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            if (accumulate)
                sum[i][v] = *(const LanesView *)(c + i * ldc + v * LANES);
            else
                sum[i][v] = (Lanes){0};
    for (int64_t p = 0; p < k; p++) {
        Lanes line[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) line[v] = *(const LanesView *)(b + p * ldb + v * LANES);
        for (int i = 0; i < rows; i++) {
            float factor = a.data[i * a.row + p * a.column];
            for (int v = 0; v < vectors; v++) sum[i][v] += factor * line[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) *(LanesView *)(c + i * ldc + v * LANES) = sum[i][v];
}

/* Computes a group of `vectors` vectors of columns. */
static inline __attribute__((always_inline)) void columns(const int vectors, int64_t m, int64_t k, TileView a,
                                                          const float *b, int64_t ldb, float *c, int64_t ldc,
                                                          bool accumulate) {
    for (int64_t i = 0; i < m; i += TILE_ROWS, a.data += TILE_ROWS * a.row, c += TILE_ROWS * ldc)
        switch (m - i) {
        case 1: panel(1, vectors, k, a, b, ldb, c, ldc, accumulate); break;
        case 2: panel(2, vectors, k, a, b, ldb, c, ldc, accumulate); break;
        case 3: panel(3, vectors, k, a, b, ldb, c, ldc, accumulate); break;
        default: panel(TILE_ROWS, vectors, k, a, b, ldb, c, ldc, accumulate);
        }
}

void tile_product(int64_t m, int64_t n, int64_t k, TileView a, const float *b, int64_t ldb, float *c,
                  int64_t ldc, bool accumulate) {
    for (int64_t j = 0; j < n; j += TILE_WIDTH)
        if (n - j < TILE_WIDTH)
            columns(REST_VECTORS, m, k, a, b + j, ldb, c + j, ldc, accumulate);
        else
            columns(TILE_VECTORS, m, k, a, b + j, ldb, c + j, ldc, accumulate);
}
