/* patch: one pass turns bytes into the product's rows and initializes its output. */
#include "kernels/gemm/gemm.h"
#include "kernels/patch/patch.h"
#include "kernels/real.h"
#include "kernels/simd.h"

enum { SLAB = 64 }; // columns per thread and pass of a sum

/* The inputs of one patch, from its first pixel. */
static void unfold_patch(const PatchForward *p, const PatchSizes *s, const uint8_t *pixels, stored *x) {
    for (int64_t c = 0; c < s->channels; c++) {
        float scale = (float)(1 / (255 * p->deviation[c])), shift = (float)(-p->mean[c] / p->deviation[c]);
        for (int64_t i = 0; i < s->size; i++, x += s->size) {
            const uint8_t *from = pixels + i * s->width * s->channels + c;
#pragma omp simd
            for (int64_t j = 0; j < s->size; j++) x[j] = store((float)from[j * s->channels] * scale + shift);
        }
    }
}

/* Writes row `row` of x, and the initial values of its row of y. */
static void begin_row(const PatchForward *p, const PatchSizes *s, int64_t row) {
    int64_t b = row / s->rows, t = row % s->rows, n = t - s->first;
    const stored *added = t < s->first ? p->token.data : p->bias.data, *position = stored_row(p->position, t);
    stored *x = (stored *)p->x.data + row * s->inputs, *y = (stored *)p->y.data + row * s->outputs;
#pragma omp simd
    for (int64_t c = 0; c < s->outputs; c++) y[c] = store(load(added[c]) + load(position[c]));
    if (n < 0) {
        memset(x, 0, (size_t)s->inputs * sizeof *x);
        return;
    }
    int64_t top = n / s->across * s->size, left = n % s->across * s->size;
    const uint8_t *pixels = p->pixels.data;
    unfold_patch(p, s, pixels + ((b * s->height + top) * s->width + left) * s->channels, x);
}

static Status patch_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const PatchForward *p = contract;
    const PatchSizes s = patch_sizes(p);
    PRIMITIVE (ctx, "unfold, positions", EMBEDDING, torch_none(), &p->x) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t row = 0; row < s.batch * s.rows; row++) begin_row(p, &s, row);
    }
    Gemm product = gemm_forward(p->x, p->weight, p->y, 1);
    PRIMITIVE (ctx, "product", MATRIX, torch_call("aten::addmm")) TRY(gemm(ctx, &product));
    return OK;
}
SLOT(PATCH, FORWARD, CPU, FUSED, STORED_DTYPE, patch_forward_cpu_fused);

/* Columns [first, last) of every gradient except the weight's: first each position's sum over pictures, then
 * bias and token from these sums. The order of each sum does not depend on the number of threads. */
static void sum_columns(const PatchBackward *p, const PatchSizes *s, int64_t first, int64_t last) {
    const stored *dy = p->dy.data;
    int64_t width = last - first;
    for (int64_t t = 0; t < s->rows; t++) {
        float sum[SLAB] = {0}, *dposition = float_row(p->dposition, t) + first;
        float *shared = (float *)(t < s->first ? p->dtoken.data : p->dbias.data) + first;
        for (int64_t b = 0; b < s->batch; b++) {
            const stored *row = dy + (b * s->rows + t) * s->outputs + first;
#pragma omp simd
            for (int64_t c = 0; c < width; c++) sum[c] += load(row[c]);
        }
#pragma omp simd
        for (int64_t c = 0; c < width; c++) dposition[c] += sum[c];
#pragma omp simd
        for (int64_t c = 0; c < width; c++) shared[c] += sum[c];
    }
}

static Status patch_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const PatchBackward *p = contract;
    const PatchSizes s = patch_sizes(p->forward);
    PRIMITIVE (ctx, "bias, token and position gradients", EMBEDDING) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t first = 0; first < s.outputs; first += SLAB)
            sum_columns(p, &s, first, first + SLAB < s.outputs ? first + SLAB : s.outputs);
    }
    Gemm product = gemm_dweight(p->dy, p->forward->x, p->dweight, 1);
    PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    return OK;
}
SLOT(PATCH, BACKWARD, CPU, FUSED, STORED_DTYPE, patch_backward_cpu_fused);
