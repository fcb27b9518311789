/* norm in one pass over memory. */
#include "kernels/dropout/mask.h"
#include "kernels/norm/norm.h"
#include "kernels/real.h"
#include "kernels/simd.h"

/* A row is read once and stays in L1 while short loops add, compute statistics and write it. */

enum { RUN = 256 }; // columns that are computed in fp32 before they are stored

static int64_t run_end(int64_t first, int64_t width) {
    return first + RUN < width ? first + RUN : width;
}

/* Computes r = x + skip and returns its sum. */
static float residual_sum(const stored *x, const stored *skip, int64_t width, stored *r) {
    float sum = 0, room[RUN];
    for (int64_t first = 0, end; first < width; first = end) {
        float *run = run_of(r + first, room);
        end = run_end(first, width);
#pragma omp simd
        for (int64_t c = first; c < end; c++) run[c - first] = load(x[c]) + load(skip[c]);
        store_run(run, end - first, r + first);
#pragma omp simd reduction(+ : sum)
        for (int64_t c = first; c < end; c++) sum += load(r[c]);
    }
    return sum;
}

static float row_sum(const stored *x, int64_t width) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < width; c++) sum += load(x[c]);
    return sum;
}

/* The sum of squared deviations from the mean. Unlike sum r^2 - mean^2 it has no cancellation. */
static float row_spread(const stored *r, float mean, int64_t width) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < width; c++) {
        float distance = load(r[c]) - mean;
        sum += distance * distance;
    }
    return sum;
}

static void normalize(const stored *r, const stored *weight, const stored *bias, float mean, float rstd,
                      int64_t width, stored *y) {
    float room[RUN];
    for (int64_t first = 0, end; first < width; first = end) {
        float *run = run_of(y + first, room);
        end = run_end(first, width);
#pragma omp simd
        for (int64_t c = first; c < end; c++)
            run[c - first] = (load(r[c]) - mean) * rstd * load(weight[c]) + load(bias[c]);
        store_run(run, end - first, y + first);
    }
}

/* r may be y, because each element is read before it is written. */
static float rms_row(const stored *r, const stored *weight, double eps, int64_t width, stored *y) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < width; c++) squares += load(r[c]) * load(r[c]);
    float rstd = 1 / sqrtf(squares / (float)width + (float)eps);
#pragma omp simd
    for (int64_t c = 0; c < width; c++) y[c] = store(load(r[c]) * rstd * load(weight[c]));
    return rstd;
}

/* One row of the skip, or of its gradient, under dropout. */
typedef struct {
    DropoutMask elements, samples;
    bool drops, deepens; // whether dropout and stochastic depth are on
    int64_t rows;        // rows per sample
} SkipMask;

static SkipMask skip_mask(const NormForward *n) {
    SkipMask m = {.drops = dropout_on(&n->dropout), .deepens = dropout_on(&n->depth), .rows = n->depth_rows};
    if (m.drops) m.elements = dropout_mask(&n->dropout);
    if (m.deepens) m.samples = dropout_mask(&n->depth);
    return m;
}

static void skip_row(const SkipMask *m, int64_t row, const stored *x, int64_t width, stored *y) {
    if (m->drops) TYPED(dropout_row)(&m->elements, row, x, width, y);
    if (!m->deepens) return;
    const DropoutMask *s = &m->samples;
    bool kept = dropout_words(s, row / m->rows, NORM_DEPTH_BLOCK).word[0] >= s->least;
    float factor = kept ? (float)s->factor : 0;
    if (m->drops) x = y;
#pragma omp simd
    for (int64_t c = 0; c < width; c++) y[c] = store(kept ? factor * load(x[c]) : 0);
}

static void forward_row(const NormForward *n, const SkipMask *mask, int64_t i) {
    const int64_t width = tensor_width(n->x), columns = tensor_width(n->weight), heads = norm_heads(n);
    const bool skip = !tensor_empty(n->skip), layer = n->kind == NORM_LAYER;
    float *means = n->mean.data, *rstds = n->rstd.data;
    const stored *x = stored_row(n->x, i), *added = skip ? stored_row(n->skip, i) : NULL;
    stored *r = skip ? stored_row(n->r, i) : NULL;
    if (norm_drops(n)) {
        skip_row(mask, i, added, width, r);
        added = r;
    }
    float sum = skip ? residual_sum(x, added, width, r) : layer ? row_sum(x, width) : 0;
    if (skip) x = r;
    if (!layer) {
        for (int64_t h = 0, at = 0; h < heads; h++, at += columns)
            rstds[i * heads + h] = rms_row(x + at, n->weight.data, n->eps, columns, stored_row(n->y, i) + at);
        return;
    }
    means[i] = sum / (float)width;
    rstds[i] = 1 / sqrtf(row_spread(x, means[i], width) / (float)width + (float)n->eps);
    normalize(x, n->weight.data, n->bias.data, means[i], rstds[i], width, stored_row(n->y, i));
}

static Status norm_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const NormForward *n = contract;
    PRIMITIVE (ctx, "add, statistics, output", NORMALIZATION) {
        const SkipMask mask = skip_mask(n);
        SIMD_EACH_ROW(i, tensor_rows(n->x), forward_row(n, &mask, i));
    }
    return OK;
}
SLOT(NORM, FORWARD, CPU, FUSED, STORED_DTYPE, norm_forward_cpu_fused);

/* Writes dskip of the rows [first, last) from their dr. */
static void drop_rows(const NormBackward *b, int64_t first, int64_t last) {
    if (!norm_drops(b->forward)) return;
    const SkipMask mask = skip_mask(b->forward);
    for (int64_t i = first; i < last; i++)
        skip_row(&mask, i, stored_row(b->dr, i), tensor_width(b->dr), stored_row(b->dskip, i));
}

/* Backward pass of one row; dweight, dbias and dr_sums are this thread's own sums. */
static void backward_row(const NormBackward *b, int64_t row, float *dweight, float *dbias, float *dr_sums) {
    const NormForward *f = b->forward;
    int64_t width = tensor_width(f->x);
    const stored *r = stored_row(tensor_empty(f->skip) ? f->x : f->r, row), *dy = stored_row(b->dy, row);
    const stored *weight = f->weight.data;
    float mean = ((const float *)f->mean.data)[row], rstd = ((const float *)f->rstd.data)[row];
    float sum = 0, product = 0; // sums of g, and of g * n
#pragma omp simd reduction(+ : sum, product)
    for (int64_t c = 0; c < width; c++) {
        float n = (load(r[c]) - mean) * rstd, d = load(dy[c]), g = d * load(weight[c]);
        sum += g;
        product += g * n;
        dweight[c] += d * n;
        dbias[c] += d;
    }
    sum /= (float)width;
    product /= (float)width;
    stored *dr = stored_row(b->dr, row);
    if (!tensor_empty(b->dr_sums)) {
#pragma omp simd
        for (int64_t c = 0; c < width; c++) dr_sums[c] += load(dr[c]);
    }
    float room[RUN];
    for (int64_t first = 0, end; first < width; first = end) {
        float *run = run_of(dr + first, room);
        end = run_end(first, width);
        if (b->accumulate) {
#pragma omp simd
            for (int64_t c = first; c < end; c++)
                run[c - first] = load(dr[c]) + rstd * (load(dy[c]) * load(weight[c]) - sum -
                                                       (load(r[c]) - mean) * rstd * product);
        } else {
#pragma omp simd
            for (int64_t c = first; c < end; c++)
                run[c - first] =
                    rstd * (load(dy[c]) * load(weight[c]) - sum - (load(r[c]) - mean) * rstd * product);
        }
        store_run(run, end - first, dr + first);
    }
}

/* The same for RMS norm, for each of the row's heads. */
static void rms_backward_row(const NormBackward *b, int64_t row, float *dweight, float *dr_sums) {
    const NormForward *f = b->forward;
    int64_t width = tensor_width(f->weight), heads = norm_heads(f);
    const stored *weight = f->weight.data;
    const float *rstds = (const float *)f->rstd.data + row * heads;
    for (int64_t h = 0, at = 0; h < heads; h++, at += width) {
        const stored *r = stored_row(tensor_empty(f->skip) ? f->x : f->r, row) + at;
        const stored *dy = stored_row(b->dy, row) + at;
        stored *dr = stored_row(b->dr, row) + at;
        float rstd = rstds[h], product = 0; // product: sum of g * n
#pragma omp simd reduction(+ : product)
        for (int64_t c = 0; c < width; c++) {
            float n = load(r[c]) * rstd, d = load(dy[c]);
            product += d * load(weight[c]) * n;
            dweight[c] += d * n;
        }
        product /= (float)width;
        if (!tensor_empty(b->dr_sums)) {
#pragma omp simd
            for (int64_t c = 0; c < width; c++) dr_sums[c] += load(dr[c]);
        }
        if (b->accumulate) {
#pragma omp simd
            for (int64_t c = 0; c < width; c++)
                dr[c] =
                    store(load(dr[c]) + rstd * (load(dy[c]) * load(weight[c]) - load(r[c]) * rstd * product));
        } else {
#pragma omp simd
            for (int64_t c = 0; c < width; c++)
                dr[c] = store(rstd * (load(dy[c]) * load(weight[c]) - load(r[c]) * rstd * product));
        }
    }
}

/* Each thread sums the parameters' gradients over its own block of rows; the blocks are then added in order.
 * The split depends only on the number of threads, so equal runs give equal bits. */
static Status norm_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const NormBackward *b = contract;
    int64_t rows = tensor_rows(b->dy), width = tensor_width(b->forward->weight), threads = cpu_threads(ctx);
    bool rms = b->forward->kind == NORM_RMS;
    Tensor partial; // (threads, 3, C): dweight, dbias, dr_sums
    TRY(take(ctx, ARENA_SCRATCH, "norm.partial", F32, shape3(threads, 3, width), &partial));
    float *sums[3] = {b->dweight.data, b->dbias.data, b->dr_sums.data};
    PRIMITIVE (ctx, "gradients", NORMALIZATION) {
#pragma omp parallel num_threads(cpu_threads(ctx))
        {
#pragma omp for schedule(static)
            for (int64_t t = 0; t < threads; t++) {
                float *own = float_row(partial, 3 * t);
                memset(own, 0, 3 * (size_t)width * sizeof *own);
                for (int64_t i = t * rows / threads; i < (t + 1) * rows / threads; i++)
                    if (rms)
                        rms_backward_row(b, i, own, own + 2 * width);
                    else
                        backward_row(b, i, own, own + width, own + 2 * width);
                drop_rows(b, t * rows / threads, (t + 1) * rows / threads);
            }
            for (int64_t s = 0; s < 3; s++) {
                float *sum = sums[s];
                if (!sum) continue; // the condition is the same for all threads
#pragma omp for simd schedule(static)
                for (int64_t c = 0; c < width; c++)
                    for (int64_t t = 0; t < threads; t++) sum[c] += float_row(partial, 3 * t + s)[c];
            }
        }
    }
    return OK;
}
SLOT(NORM, BACKWARD, CPU, FUSED, STORED_DTYPE, norm_backward_cpu_fused);
