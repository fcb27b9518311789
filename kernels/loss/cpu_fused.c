/* loss, in chunks of rows. */
#include "base/checked.h"
#include "kernels/gemm/gemm.h"
#include "kernels/loss/loss.h"
#include "kernels/real.h"
#include "kernels/simd.h"

#include <omp.h>

/* Logits, statistics, loss and gradient are computed while the chunk is in cache, and the gradient overwrites
 * the logits. Only one chunk of logits exists at a time. */

/* Logits per chunk (256 MiB of fp32), and the minimum number of rows: each chunk reads the whole head
 * twice, updates its whole gradient, and repacks the head for its products. */
enum { CHUNK_LOGITS = 64 << 20, FEWEST_ROWS = 64 };

/* Returns the maximum of a row, and widens it to fp32. */
static float widen_row(const stored *x, int64_t count, float *wide) {
    float maximum = -INFINITY;
    if (STORED_DTYPE == F32) {
#pragma omp simd reduction(max : maximum)
        for (int64_t v = 0; v < count; v++) maximum = load(x[v]) > maximum ? load(x[v]) : maximum;
        return maximum;
    }
#pragma omp simd reduction(max : maximum)
    for (int64_t v = 0; v < count; v++) {
        wide[v] = load(x[v]);
        maximum = wide[v] > maximum ? wide[v] : maximum;
    }
    return maximum;
}

/* y = factor * wide - less */
static void scale_row(const float *wide, float factor, float less, int64_t count, stored *y) {
    enum { RUN = 1024 };
    float room[RUN];
    for (int64_t first = 0; first < count; first += RUN) {
        int64_t length = first + RUN < count ? RUN : count - first;
        float *run = run_of(y + first, room);
#pragma omp simd
        for (int64_t v = 0; v < length; v++) run[v] = factor * wide[first + v] - less;
        store_run(run, length, y + first);
    }
}

/* x = exp(x - shift); returns the sum. Partial sums over short runs keep fp32 accurate for any vocabulary. */
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

/* Sums over short runs, like exponentials(). */
static double sum_of(const float *x, int64_t count) {
    enum { RUN = 1024 };
    double total = 0;
    for (int64_t first = 0; first < count; first += RUN) {
        int64_t last = first + RUN < count ? first + RUN : count;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = first; v < last; v++) sum += x[v];
        total += (double)sum;
    }
    return total;
}

/* The weight of one row's loss. */
static double scale_of(const Loss *l) {
    if (tensor_empty(l->count)) return l->scale;
    float count = *(const float *)l->count.data;
    return count > 0 ? l->scale / (double)count : 0;
}

/* Returns the loss of a row of logits and overwrites the row with its gradient. A row that is not fp32 is
 * computed in `room`, which stays in cache. */
static float softmax_row(const Loss *l, double scale, stored *logits, float *room, int32_t target,
                         bool training) {
    if (target < 0) {
        if (training) memset(logits, 0, (size_t)l->vocab * sizeof *logits);
        return 0;
    }
    float *wide = run_of(logits, room), maximum = widen_row(logits, l->vocab, wide);
    double picked = (double)wide[target],
           expected = picked; // the mean of the logits under the smoothed target
    if (l->smoothing > 0) expected += l->smoothing * (sum_of(wide, l->vocab) / (double)l->vocab - picked);
    double sum = exponentials(wide, maximum, l->vocab);
    float loss = (float)(log(sum) + (double)maximum - expected);
    if (!training) return loss;
    float factor = (float)(scale / sum), everywhere = (float)(scale * l->smoothing / (double)l->vocab);
    float wanted = factor * wide[target] - everywhere - (float)(scale * (1 - l->smoothing));
    scale_row(wide, factor, everywhere, l->vocab, logits);
    logits[target] = store(wanted);
    return loss;
}

/* dbias += the sums over rows; each thread owns columns. */
static void add_columns(Ctx *ctx, Tensor x, float *sum) {
    enum { SLAB = 512 };
    int64_t rows = tensor_rows(x), width = tensor_width(x);
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t first = 0; first < width; first += SLAB)
        for (int64_t n = 0; n < rows; n++) {
            const stored *row = stored_row(x, n);
            int64_t last = first + SLAB < width ? first + SLAB : width;
#pragma omp simd
            for (int64_t v = first; v < last; v++) sum[v] += load(row[v]);
        }
}

/* Initializes the logits with the bias; the product adds to them. */
static void fill_bias(Ctx *ctx, Tensor bias, Tensor logits) {
    int64_t rows = tensor_rows(logits);
    size_t bytes = (size_t)tensor_width(logits) * sizeof(stored);
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t n = 0; n < rows; n++) memcpy(stored_row(logits, n), bias.data, bytes);
}

static Tensor rows_of(Tensor t, int64_t first, int64_t count) {
    return tensor_elements(t, first * t.stride, shape2(count, tensor_width(t)));
}

static Status chunk(Ctx *ctx, const Loss *l, Tensor logits, Tensor wide, int64_t first) {
    int64_t rows = tensor_rows(logits);
    bool training = ctx->training, bias = !tensor_empty(l->bias);
    float *losses = (float *)l->losses.data + first;
    const int32_t *targets = (const int32_t *)l->targets.data + first;
    Tensor hidden = rows_of(l->hidden, first, rows), head = rows_of(l->weight, 0, l->vocab);
    Gemm product = gemm_forward(hidden, head, logits, bias ? 1 : 0);
    if (bias)
        PRIMITIVE (ctx, "bias", LOSS) fill_bias(ctx, l->bias, logits);
    PRIMITIVE (ctx, "logits product", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    PRIMITIVE_OF (ctx, ctx->pass, training ? "softmax, loss, gradient" : "softmax, loss", CATEGORY_LOSS,
                  ARITHMETIC_SOFTMAX) {
        double scale = scale_of(l);
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t n = 0; n < rows; n++)
            losses[n] = softmax_row(l, scale, stored_row(logits, n), float_row(wide, omp_get_thread_num()),
                                    targets[n], training);
    }
    if (!training) return OK;
    if (bias)
        PRIMITIVE_OF (ctx, PASS_BACKWARD, "bias gradient", CATEGORY_LOSS, ARITHMETIC_PLAIN,
                      torch_call("aten::sum"))
            add_columns(ctx, logits, l->dbias.data);
    Gemm dhidden = gemm_dinput(logits, head, rows_of(l->dhidden, first, rows), 0);
    PRIMITIVE_OF (ctx, PASS_BACKWARD, "hidden gradient", CATEGORY_MATRIX, ARITHMETIC_PLAIN,
                  torch_call("aten::mm"))
        TRY(gemm(ctx, &dhidden));
    Gemm dweight = gemm_dweight(logits, hidden, rows_of(l->dweight, 0, l->vocab), 1);
    PRIMITIVE_OF (ctx, PASS_BACKWARD, "weight gradient", CATEGORY_MATRIX, ARITHMETIC_PLAIN,
                  torch_call("aten::mm"))
        TRY(gemm(ctx, &dweight));
    return OK;
}

static Status loss_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const Loss *l = contract;
    int64_t rows = tensor_rows(l->hidden), most = CHUNK_LOGITS / l->vocab;
    if (most < FEWEST_ROWS) most = FEWEST_ROWS;
    int64_t chunks = pieces(rows, most);
    int64_t size = chunks ? pieces(rows, chunks) : 0; // equal chunks, so that the last one is not
                                                      // short
    int64_t room = rows < most ? rows : most;         // a shorter batch needs a single, possibly larger chunk
    Tensor logits, wide = {0};                        // (room, vocab), (threads, vocab)
    TRY(take(ctx, ARENA_SCRATCH, "loss.logits", STORED_DTYPE, shape2(room, l->vocab), &logits));
    if (STORED_DTYPE != F32)
        TRY(take(ctx, ARENA_SCRATCH, "loss.wide", F32, shape2(cpu_threads(ctx), l->vocab), &wide));
    for (int64_t first = 0; first < rows; first += size)
        TRY(chunk(ctx, l, rows_of(logits, 0, rows - first < size ? rows - first : size), wide, first));
    PRIMITIVE (ctx, "sum", LOSS) {
        double sum = 0;
        for (int64_t n = 0; n < rows; n++) sum += (double)((const float *)l->losses.data)[n];
        *(float *)l->loss.data += (float)(scale_of(l) * sum);
    }
    return OK;
}
SLOT(LOSS, FORWARD, CPU, FUSED, STORED_DTYPE, loss_forward_cpu_fused);

/* The forward pass has computed the gradients. */
static Status loss_backward_cpu_fused(Ctx *ctx, const void *contract) {
    (void)ctx;
    (void)contract;
    return OK;
}
SLOT(LOSS, BACKWARD, CPU, FUSED, STORED_DTYPE, loss_backward_cpu_fused);
