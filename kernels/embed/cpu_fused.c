/* embed: one pass over memory adds the rows of all tables. */
#include "base/checked.h"
#include "kernels/embed/embed.h"
#include "kernels/real.h"
#include "kernels/simd.h"

static Status embed_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const EmbedForward *e = contract;
    int64_t rows = tensor_count(e->tokens), columns = tensor_width(e->tokens), width = tensor_width(e->y);
    bool positioned = !tensor_empty(e->position), segmented = !tensor_empty(e->segment);
    const int32_t *tokens = e->tokens.data, *segments = tensor_empty(e->segments) ? NULL : e->segments.data;
    const int32_t *pasts = tensor_empty(e->pasts) ? NULL : e->pasts.data;
    float scale = (float)e->scale;
    PRIMITIVE (ctx, "gather and add", EMBEDDING) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t n = 0; n < rows; n++) {
            const stored *token = stored_row(e->token, tokens[n]);
            const int64_t past = pasts ? pasts[n / columns] : e->past;
            const stored *position = positioned ? stored_row(e->position, past + n % columns) : token;
            const stored *segment = segmented ? stored_row(e->segment, segments ? segments[n] : 0) : token;
            stored *y = stored_row(e->y, n);
            float with_position = positioned, with_segment = segmented;
            if (!positioned && !segmented && scale == 1) {
                memcpy(y, token, (size_t)width * sizeof *y);
                continue;
            }
#pragma omp simd
            for (int64_t c = 0; c < width; c++)
                y[c] = store(scale * load(token[c]) + with_position * load(position[c]) +
                             with_segment * load(segment[c]));
        }
    }
    return OK;
}
SLOT(EMBED, FORWARD, CPU, FUSED, STORED_DTYPE, embed_forward_cpu_fused);

/* Adds columns [first, last) of every row of dy, in order. */
static void scatter_columns(const EmbedBackward *e, int64_t first, int64_t last) {
    const EmbedForward *f = e->forward;
    int64_t rows = tensor_count(f->tokens), columns = tensor_width(f->tokens);
    bool learned = !tensor_empty(e->dposition), segmented = !tensor_empty(e->dsegment);
    const int32_t *tokens = f->tokens.data, *segments = tensor_empty(f->segments) ? NULL : f->segments.data;
    float scale = (float)f->scale;
    for (int64_t n = 0; n < rows; n++) {
        const stored *dy = stored_row(e->dy, n);
        float *dtoken = float_row(e->dtoken, tokens[n]);
#pragma omp simd
        for (int64_t c = first; c < last; c++) dtoken[c] += scale * load(dy[c]);
        if (learned) {
            float *dposition = float_row(e->dposition, f->past + n % columns);
#pragma omp simd
            for (int64_t c = first; c < last; c++) dposition[c] += load(dy[c]);
        }
        if (!segmented) continue;
        float *dsegment = float_row(e->dsegment, segments ? segments[n] : 0);
#pragma omp simd
        for (int64_t c = first; c < last; c++) dsegment[c] += load(dy[c]);
    }
}

/* Each thread owns whole cache lines of columns and walks all rows. Threads never write to the same line,
 * and each sum runs in row order, whatever the number of threads. */
static Status embed_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const EmbedBackward *e = contract;
    int64_t width = tensor_width(e->dy), threads = cpu_threads(ctx);
    int64_t share = pieces(pieces(width, threads), CACHE_LINE_FLOATS) * CACHE_LINE_FLOATS;
    PRIMITIVE (ctx, "scatter add", EMBEDDING) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static, 1)
        for (int64_t first = 0; first < width; first += share)
            scatter_columns(e, first, first + share < width ? first + share : width);
    }
    return OK;
}
SLOT(EMBED, BACKWARD, CPU, FUSED, STORED_DTYPE, embed_backward_cpu_fused);
