#include "tasks/pictures/images/grid.h"

#include <math.h>

/* Inputs of an interpolated position: four neighbours and their weights. */
typedef struct {
    int64_t at[4];
    double share[4];
} Taps;

/* The weight of a neighbour at a distance from 0 to 2. */
static double cubic(double x) {
    const double a = -0.75;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* Aligned at centres; beyond the edge the edge's value repeats. */
static Taps taps_of(int64_t i, int64_t side, int64_t new_side) {
    double place = ((double)i + 0.5) * (double)side / (double)new_side - 0.5, whole = floor(place);
    Taps taps;
    for (int k = 0; k < 4; k++) {
        int64_t at = (int64_t)whole - 1 + k;
        taps.at[k] = at < 0 ? 0 : at >= side ? side - 1 : at;
        taps.share[k] = cubic(fabs(place - (whole - 1 + k)));
    }
    return taps;
}

void grid_resize(const float *from, int64_t side, int64_t new_side, int64_t width, float *to) {
    for (int64_t i = 0; i < new_side; i++)
        for (int64_t j = 0; j < new_side; j++, to += width) {
            const Taps rows = taps_of(i, side, new_side), columns = taps_of(j, side, new_side);
            for (int64_t c = 0; c < width; c++) {
                double sum = 0;
                for (int k = 0; k < 16; k++) {
                    const float *at = from + (rows.at[k / 4] * side + columns.at[k % 4]) * width;
                    sum += rows.share[k / 4] * columns.share[k % 4] * (double)at[c];
                }
                to[c] = (float)sum;
            }
        }
}
