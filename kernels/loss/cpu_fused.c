/* loss, a chunk of rows at a time: logits, statistics, loss and gradient are made while the chunk is at hand,
 * the gradient in the logits' own memory. No more than one chunk of logits ever exists. */
#include "kernels/gemm/gemm.h"
#include "kernels/loss/loss.h"
#include "kernels/simd.h"

/* Floats of a chunk of logits, 64 MiB, and the fewest rows of one: each chunk reads the whole head, so
 * a chunk of few rows would spend its time on that. */
enum { CHUNK_FLOATS = 16 << 20, FEWEST_ROWS = 64 };

static float row_maximum(const float *x, int64_t count) {
    float maximum = -INFINITY;
#pragma omp simd reduction(max : maximum)
    for (int64_t v = 0; v < count; v++) maximum = x[v] > maximum ? x[v] : maximum;
    return maximum;
}

/* x = exp(x - shift); returns the sum. Partial sums of short runs keep fp32 exact enough for any vocabulary.
 */
static double exponentials(float *x, float shift, int64_t count) {
    enum { RUN = 1024 };
    double total = 0;
    for (int64_t first = 0; first < count; first += RUN) {
        int64_t last = first + RUN < count ? first + RUN : count;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = first; v < last; v++) {
            x[v] = simd_exp(x[v] - shift);
            sum += x[v];
        }
        total += (double)sum;
    }
    return total;
}

/* One row of logits: returns its loss and leaves the gradient in its place. */
static float softmax_row(const Loss *l, float *logits, int32_t target, bool training) {
    if (target < 0) {
        if (training) memset(logits, 0, (size_t)l->vocab * sizeof *logits);
        return 0;
    }
    float picked = logits[target], maximum = row_maximum(logits, l->vocab);
    double sum = exponentials(logits, maximum, l->vocab);
    float loss = (float)(log(sum) + (double)maximum - (double)picked);
    if (!training) return loss;
    float factor = (float)(l->scale / sum);
#pragma omp simd
    for (int64_t v = 0; v < l->vocab; v++) logits[v] *= factor;
    logits[target] -= (float)l->scale;
    return loss;
}

static Tensor rows_of(Tensor t, int64_t first, int64_t count) {
    Tensor view = t;
    view.data = (float *)t.data + first * t.stride;
    view.shape = shape2(count, tensor_width(t));
    return view;
}

static Status chunk(Ctx *ctx, const Loss *l, Tensor logits, int64_t first) {
    int64_t rows = tensor_rows(logits);
    bool training = ctx->training;
    float *losses = (float *)l->losses.data + first;
    const int32_t *targets = (const int32_t *)l->targets.data + first;
    Tensor hidden = rows_of(l->hidden, first, rows), head = rows_of(l->weight, 0, l->vocab);
    Gemm product = gemm_forward(hidden, head, logits, 0);
    PRIMITIVE (ctx, "logits product") TRY(gemm(ctx, &product));
    PRIMITIVE (ctx, training ? "softmax, loss, gradient" : "softmax, loss") {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t n = 0; n < rows; n++)
            losses[n] = softmax_row(l, float_row(logits, n), targets[n], training);
    }
    if (!training) return OK;
    Gemm dhidden = gemm_dinput(logits, head, rows_of(l->dhidden, first, rows), 0);
    PRIMITIVE_OF(ctx, PASS_BACKWARD, "hidden gradient") TRY(gemm(ctx, &dhidden));
    Gemm dweight = gemm_dweight(logits, hidden, rows_of(l->dweight, 0, l->vocab), 1);
    PRIMITIVE_OF(ctx, PASS_BACKWARD, "weight gradient") TRY(gemm(ctx, &dweight));
    return OK;
}

Status loss_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const Loss *l = contract;
    int64_t rows = tensor_rows(l->hidden), most = CHUNK_FLOATS / l->vocab;
    if (most < FEWEST_ROWS) most = FEWEST_ROWS;
    int64_t chunks = (rows + most - 1) / most;
    int64_t size = chunks ? (rows + chunks - 1) / chunks : 0; // equal chunks: no short last one
    Tensor logits;                                            // (size, vocab)
    TRY(take(ctx, ARENA_SCRATCH, "loss.logits", F32, shape2(size, l->vocab), &logits));
    for (int64_t first = 0; first < rows; first += size)
        TRY(chunk(ctx, l, rows_of(logits, 0, rows - first < size ? rows - first : size), first));
    PRIMITIVE (ctx, "sum") {
        double sum = 0;
        for (int64_t n = 0; n < rows; n++) sum += (double)((const float *)l->losses.data)[n];
        *(float *)l->loss.data += (float)(l->scale * sum);
    }
    return OK;
}

/* The forward pass has left the gradients. */
Status loss_backward_cpu_fused(Ctx *ctx, const void *contract) {
    (void)ctx;
    (void)contract;
    return OK;
}
