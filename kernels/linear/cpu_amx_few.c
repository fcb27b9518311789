#include "kernels/linear/cpu_amx.h"

#ifdef __AMX_BF16__

#include "kernels/device/amx_turn.h"
#include "kernels/simd.h"

#include <string.h>

/* Reading a matrix as tiles, a line of each of 16 rows at a time, takes longer than by four distant readers,
 * each in the order of memory. So few rows are multiplied without tiles, with the arithmetic of a tile's
 * product (Intel's manual, TDPBF16PS): the products of each piece of 32 inputs are summed by fused
 * multiply-adds, even and odd ones apart, and both sums are added to the output; denormals are zero. Each
 * lane of a vector has such a piece: four neighbours of each of the four readers. */

enum {
    SIDE = AMX_SIDE,
    FOUR = 4, // readers, and pieces that each reads at once
    EACH = 8, // outputs that a reader computes at once
    MOST_ROWS = 3,
    SOON = 2 * FOUR * SIDE,   // words ahead of a reader from where lines are fetched to L1,
    LATER = 24 * FOUR * SIDE, // and to the last cache
};

/* x beside four neighbouring pieces of weights. */
typedef struct {
    float even[SIDE][FOUR], odd[SIDE][FOUR]; // (pairs of a piece, pieces)
} Beside;

/* The pieces of a row. */
static int64_t pieces_of(const LinearForward *l) {
    return tensor_width(l->weight) / AMX_DEPTH;
}

/* After so many times four pieces a reader begins with a row again. */
static int64_t besides_of(const LinearForward *l) {
    const int64_t of_row = pieces_of(l);
    return of_row % 4 == 0 ? of_row / 4 : of_row % 2 == 0 ? of_row / 2 : of_row;
}

static void put_beside(const LinearForward *l, int64_t n, int64_t which, Beside *to) {
    const uint16_t *x = (const uint16_t *)l->x.data + n * l->x.stride;
    for (int64_t j = 0; j < FOUR; j++)
        for (int64_t k = 0; k < SIDE; k++) {
            const uint16_t *pair = x + (which * FOUR + j) % pieces_of(l) * AMX_DEPTH + 2 * k;
            to->even[k][j] = bfloat16_to_float(pair[0]);
            to->odd[k][j] = bfloat16_to_float(pair[1]);
        }
}

static __m512 four_times(const float *four) {
    return _mm512_broadcast_f32x4(_mm_loadu_ps(four));
}

/* sums (rows, readers, pieces): of four pieces of each reader. `rows` is a constant after inlining. */
static inline __attribute__((always_inline)) void multiply_pieces(const int rows,
                                                                  const AmxPair *const from[FOUR],
                                                                  const Beside *x, int64_t besides,
                                                                  float (*sums)[FOUR][FOUR]) {
    __m512i lines[SIDE];
    __m512 even[MOST_ROWS] = {0}, odd[MOST_ROWS] = {0};
    for (int i = 0; i < SIDE; i++) lines[i] = _mm512_loadu_si512(from[i / FOUR] + i % FOUR * SIDE);
    amx_turn(lines); // lines[k]: the k-th pairs of all pieces
    for (int k = 0; k < SIDE; k++) {
        const AmxPair *line = from[k % FOUR] + k / FOUR * SIDE;
        _mm_prefetch((const char *)(line + SOON), _MM_HINT_T0);
        _mm_prefetch((const char *)(line + LATER), _MM_HINT_T2);
        const __m512 evens = amx_evens(lines[k]), odds = amx_odds(lines[k]);
        for (int n = 0; n < rows; n++) {
            even[n] = _mm512_fmadd_ps(evens, four_times(x[n * besides].even[k]), even[n]);
            odd[n] = _mm512_fmadd_ps(odds, four_times(x[n * besides].odd[k]), odd[n]);
        }
    }
    for (int n = 0; n < rows; n++) _mm512_storeu_ps(sums[n], _mm512_add_ps(even[n], odd[n]));
}

/* Computes EACH outputs of each reader, from begin[r] on, for all rows: outputs (rows, readers, EACH). */
static inline __attribute__((always_inline)) void read_outputs(const int rows, const LinearForward *l,
                                                               const Beside *x, const int64_t begin[FOUR],
                                                               float outputs[][FOUR][EACH]) {
    const int64_t of_row = pieces_of(l), besides = besides_of(l);
    float sums[MOST_ROWS][FOUR][FOUR], sum[MOST_ROWS][FOUR] = {0};
    const AmxPair *from[FOUR];
    for (int r = 0; r < FOUR; r++) from[r] = (const AmxPair *)l->weight.data + begin[r] * of_row * SIDE;
    for (int64_t piece = 0, output = 0, left = of_row; piece < EACH * of_row; piece += FOUR) {
        multiply_pieces(rows, from, x + piece / FOUR % besides, besides, sums);
        for (int r = 0; r < FOUR; r++) from[r] += FOUR * SIDE;
        for (int j = 0; j < FOUR; j++) {
            for (int n = 0; n < rows; n++)
                for (int r = 0; r < FOUR; r++) sum[n][r] += sums[n][r][j];
            if (--left > 0) continue;
            for (int n = 0; n < rows; n++)
                for (int r = 0; r < FOUR; r++) outputs[n][r][output] = sum[n][r];
            memset(sum, 0, sizeof sum);
            output++;
            left = of_row;
        }
    }
}

/* The same. Not inlined, because the compiler may move arithmetic across the change of its mode. */
static __attribute__((noinline)) void read_rows(const LinearForward *l, const Beside *x,
                                                const int64_t begin[FOUR], float outputs[][FOUR][EACH]) {
    switch (tensor_rows(l->x)) {
    case 1: read_outputs(1, l, x, begin, outputs); break;
    case 2: read_outputs(2, l, x, begin, outputs); break;
    default: read_outputs(3, l, x, begin, outputs);
    }
}

/* Computes the group-th outputs of each reader. The last outputs begin earlier, so that they are whole. */
static void read_group(const LinearForward *l, const Beside *x, int64_t group, int64_t groups,
                       LinearFinish *finish) {
    const int64_t out = tensor_rows(l->weight), rows = tensor_rows(l->x);
    const unsigned mode = _mm_getcsr();
    float outputs[MOST_ROWS][FOUR][EACH];
    int64_t begin[FOUR];
    for (int64_t r = 0; r < FOUR; r++) begin[r] = least((r * groups + group) * EACH, out - EACH);
    _mm_setcsr(mode | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    read_rows(l, x, begin, outputs);
    _mm_setcsr(mode);
    for (int64_t r = 0; r < FOUR; r++) {
        const int64_t first = (r * groups + group) * EACH, skip = first - begin[r];
        for (int64_t n = 0; n < rows && first < out; n++)
            finish(l, n, first, EACH - skip, outputs[n][r] + skip);
    }
}

bool linear_amx_few_serves(const LinearForward *l) {
    return tensor_rows(l->x) <= MOST_ROWS && l->weight.stride == tensor_width(l->weight);
}

int64_t linear_amx_few_words(int64_t width) {
    return MOST_ROWS * FOUR * width;
}

void linear_amx_few(Ctx *ctx, const LinearForward *l, uint32_t *words, LinearFinish *finish) {
    Beside *const x = (Beside *)words;
    const int64_t rows = tensor_rows(l->x), besides = besides_of(l);
    const int64_t groups = pieces(tensor_rows(l->weight), FOUR * EACH);
#pragma omp parallel num_threads(cpu_threads(ctx))
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < rows * besides; i++) put_beside(l, i / besides, i % besides, x + i);
#pragma omp for schedule(static)
        for (int64_t group = 0; group < groups; group++) read_group(l, x, group, groups, finish);
    }
}

#endif
