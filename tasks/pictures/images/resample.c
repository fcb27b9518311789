#include "tasks/pictures/images/resample.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* The input pixels along an axis for one output pixel, and their weights. */
typedef struct {
    int64_t first, count;
    float *weights; // (count), whose sum is 1
} Taps;

/* ---- filters, of the distance in pixels ---- */

static double bilinear(double x) {
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* Keys 1981, a = -1/2. */
static double bicubic(double x) {
    x = fabs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* The taps of pixels [first, first + count) of `size` pixels scaled to `scaled`, in one block of memory. */
static Taps *make_taps(Resample filter, int64_t size, int64_t scaled, int64_t first, int64_t count) {
    double ratio = (double)size / (double)scaled, wide = ratio > 1 ? ratio : 1;
    double reach = wide * (filter == RESAMPLE_BICUBIC ? 2 : 1);
    int64_t most = 2 * (int64_t)ceil(reach) + 1;
    Taps *taps = memory_allocate((size_t)count * (sizeof *taps + (size_t)most * sizeof(float)));
    float *weights = (float *)(taps + count);
    for (int64_t i = 0; i < count; i++, weights += most) {
        double center = ((double)(first + i) + 0.5) * ratio, sum = 0;
        int64_t begin = (int64_t)(center - reach + 0.5), end = (int64_t)(center + reach + 0.5);
        if (center - reach + 0.5 < 0) begin = 0;
        if (end > size) end = size;
        for (int64_t j = begin; j < end; j++) {
            double x = ((double)j + 0.5 - center) / wide;
            double weight = filter == RESAMPLE_BICUBIC ? bicubic(x) : bilinear(x);
            weights[j - begin] = (float)weight;
            sum += weight;
        }
        for (int64_t j = 0; j < end - begin; j++) weights[j] = (float)(weights[j] / sum);
        taps[i] = (Taps){begin, end - begin, weights};
    }
    return taps;
}

/* ---- rows ---- */

/* The weighted mean of rows, `stride` bytes apart: `count` values each. */
static void mix_rows(const uint8_t *rows, int64_t stride, const Taps *taps, int64_t count,
                     float *restrict mixed) {
    memset(mixed, 0, (size_t)count * sizeof *mixed);
    for (int64_t j = 0; j < taps->count; j++) {
        const uint8_t *restrict row = rows + (taps->first + j) * stride;
        float weight = taps->weights[j];
        for (int64_t x = 0; x < count; x++) mixed[x] += weight * (float)row[x];
    }
}

static uint8_t to_byte(float value) {
    return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5f);
}

static inline void mix_columns(const float *row, const Taps *taps, int64_t channels, uint8_t *out) {
    float sums[IMAGE_CHANNELS] = {0};
    row += taps->first * channels;
    for (int64_t j = 0; j < taps->count; j++, row += channels)
        for (int64_t c = 0; c < channels; c++) sums[c] += taps->weights[j] * row[c];
    for (int64_t c = 0; c < channels; c++) out[c] = to_byte(sums[c]);
}

/* The pixels of one row of the result. */
static void shrink_row(const float *row, const Taps *columns, int64_t width, int64_t channels, bool mirrored,
                       uint8_t *out) {
    for (int64_t x = 0; x < width; x++) {
        uint8_t *pixel = out + (mirrored ? width - 1 - x : x) * channels;
        if (channels == 1) /* so that the compiler knows the count */
            mix_columns(row, &columns[x], 1, pixel);
        else
            mix_columns(row, &columns[x], IMAGE_CHANNELS, pixel);
    }
}

/* Rows first, because they are mixed fastest, then columns. */
static void resample(const Image *image, const Cut *cut, Resample filter, int64_t height, int64_t width,
                     uint8_t *out) {
    int64_t channels = image->channels, stride = image->width * channels;
    const uint8_t *corner = image->pixels + cut->top * stride + cut->left * channels;
    OWNED Taps *rows = make_taps(filter, cut->height, cut->scaled_height, cut->first_row, height);
    OWNED Taps *columns = make_taps(filter, cut->width, cut->scaled_width, cut->first_column, width);
    /* The columns of the picture that are used: a narrow cut does not need all of them. */
    int64_t first = columns[0].first, end = columns[width - 1].first + columns[width - 1].count;
    OWNED float *mixed = memory_array((size_t)(cut->width * channels), sizeof *mixed);
    for (int64_t y = 0; y < height; y++) {
        mix_rows(corner + first * channels, stride, &rows[y], (end - first) * channels,
                 mixed + first * channels);
        shrink_row(mixed, columns, width, channels, cut->mirrored, out + y * width * channels);
    }
}

/* If a filter overshoots, the order of the axes matters, because Pillow rounds to bytes between the two:
 * since version 13 the rows go first if their number shrinks by more than twice the factor of the columns. */
static bool rows_go_first(const Cut *cut) {
    int64_t rows_lost = cut->height - cut->scaled_height, columns_lost = cut->width - cut->scaled_width;
    return rows_lost > 0 && rows_lost > 2 * columns_lost;
}

void image_resample(const Image *image, const Cut *cut, Resample filter, int64_t height, int64_t width,
                    uint8_t *out) {
    if (filter == RESAMPLE_BILINEAR) {
        resample(image, cut, filter, height, width, out);
        return;
    }
    bool rows_first = rows_go_first(cut);
    Image between = {NULL, rows_first ? height : cut->height, rows_first ? cut->width : width,
                     image->channels};
    between.pixels = memory_allocate((size_t)(between.height * between.width * image->channels));
    Cut rows = *cut, columns = *cut;
    rows.scaled_width = rows.width = between.width;
    rows.first_column = 0;
    rows.mirrored = false;
    columns.scaled_height = columns.height = between.height;
    columns.first_row = 0;
    const Cut *first = rows_first ? &rows : &columns;
    Cut second = rows_first ? columns : rows;
    second.top = second.left = 0;
    resample(image, first, filter, between.height, between.width, between.pixels);
    resample(&between, &second, filter, height, width, out);
    image_free(&between);
}
