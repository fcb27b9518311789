#include "kernels/gemm/gemm.h"
#include "kernels/loss/loss.h"
#include "kernels/real.h"

#include <tgmath.h>

/* In place. Columns from `vocab` to `stride` are padding and unchanged. */
static void log_softmax(const Ctx *ctx, int64_t rows, int64_t vocab, int64_t stride, real *logits) {
    EACH (ctx, n, rows, vocab) {
        real *row = logits + n * stride, max = row[0], sum = 0;
#pragma omp simd reduction(max : max)
        for (int64_t v = 1; v < vocab; v++) max = row[v] > max ? row[v] : max;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < vocab; v++) sum += real_exp(row[v] - max);
        real log_sum = log(sum);
        for (int64_t v = 0; v < vocab; v++) row[v] -= max + log_sum;
    }
}

static void add_bias(const Ctx *ctx, const stored *bias, int64_t rows, int64_t vocab, int64_t stride,
                     real *logits) {
    EACH (ctx, n, rows, vocab)
        for (int64_t v = 0; v < vocab; v++) logits[n * stride + v] += load(bias[v]);
}

static void pick(const real *log_p, const int32_t *targets, int64_t rows, int64_t stride, real *losses) {
    for (int64_t n = 0; n < rows; n++) losses[n] = targets[n] < 0 ? 0 : -log_p[n * stride + targets[n]];
}

/* losses = (1 - smoothing) * losses + smoothing * mean of -log p */
static void smooth(const Ctx *ctx, const real *log_p, const int32_t *targets, int64_t rows, int64_t vocab,
                   int64_t stride, real smoothing, real *losses) {
    EACH (ctx, n, rows, vocab) {
        real sum = 0;
#pragma omp simd reduction(- : sum)
        for (int64_t v = 0; v < vocab; v++) sum -= log_p[n * stride + v];
        if (targets[n] >= 0) losses[n] = (1 - smoothing) * losses[n] + smoothing * (sum / (real)vocab);
    }
}

/* The weight of one row's loss. */
static real scale_of(const Loss *l) {
    if (tensor_empty(l->count)) return (real)l->scale;
    real count = *(const real *)l->count.data;
    return count > 0 ? (real)l->scale / count : 0;
}

static void sum_scaled(const real *losses, int64_t rows, real scale, real *loss) {
    real sum = 0;
    for (int64_t n = 0; n < rows; n++) sum += losses[n];
    *loss += scale * sum;
}

/* The first `vocab` rows or columns of a padded tensor. */
static Tensor vocab_rows(const Loss *l, Tensor t) {
    t.shape = shape2(l->vocab, tensor_width(t));
    return t;
}

static Status loss_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const Loss *l = contract;
    int64_t rows = tensor_rows(l->hidden), padded = tensor_rows(l->weight);
    Tensor log_p = l->log_probabilities; // (N, Vp): logits, then their log-softmax
    if (tensor_empty(log_p))
        TRY(take(ctx, ARENA_SCRATCH, "loss.log_probabilities", l->losses.dtype, shape2(rows, padded),
                 &log_p));
    Gemm product = gemm_forward(l->hidden, vocab_rows(l, l->weight), log_p, 0);
    PRIMITIVE (ctx, "logits product", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    if (!tensor_empty(l->bias))
        PRIMITIVE (ctx, "bias add", LOSS, torch_call("aten::add"))
            add_bias(ctx, l->bias.data, rows, l->vocab, padded, log_p.data);
    PRIMITIVE (ctx, "log-softmax", LOSS, torch_call("aten::_log_softmax"))
        log_softmax(ctx, rows, l->vocab, padded, log_p.data);
    PRIMITIVE (ctx, "pick", LOSS, torch_part("aten::nll_loss_forward"), &l->losses)
        pick(log_p.data, l->targets.data, rows, padded, l->losses.data);
    if (l->smoothing > 0)
        PRIMITIVE (ctx, "smoothing", LOSS, torch_call("aten::sum"))
            smooth(ctx, log_p.data, l->targets.data, rows, l->vocab, padded, (real)l->smoothing,
                   l->losses.data);
    PRIMITIVE (ctx, "sum", LOSS, torch_part("aten::nll_loss_forward"))
        sum_scaled(l->losses.data, rows, scale_of(l), l->loss.data);
    return OK;
}
SLOT(LOSS, FORWARD, CPU, NAIVE, STORED_DTYPE, loss_forward_cpu_naive);

static void exponential(const Ctx *ctx, const real *log_p, int64_t rows, int64_t vocab, int64_t stride,
                        stored *p) {
    EACH (ctx, n, rows, vocab)
#pragma omp simd
        for (int64_t v = n * stride; v < n * stride + vocab; v++) p[v] = store(real_exp(log_p[v]));
}

static void subtract_targets(const int32_t *targets, int64_t rows, int64_t stride, real share, stored *p) {
    for (int64_t n = 0; n < rows; n++) {
        if (targets[n] < 0) continue;
        stored *at = p + n * stride + targets[n];
        *at = store(load(*at) - share);
    }
}

static void subtract_all(const Ctx *ctx, int64_t rows, int64_t vocab, int64_t stride, real share, stored *p) {
    EACH (ctx, n, rows, vocab)
        for (int64_t v = n * stride; v < n * stride + vocab; v++) p[v] = store(load(p[v]) - share);
}

static void add_columns(const Ctx *ctx, const stored *x, int64_t rows, int64_t width, int64_t stride,
                        real *sum) {
#pragma omp parallel num_threads(cpu_threads(ctx)) if (rows * width >= EACH_LEAST)
    for (int64_t n = 0; n < rows; n++)
#pragma omp for simd schedule(static) nowait
        for (int64_t v = 0; v < width; v++) sum[v] += load(x[n * stride + v]);
}

static void scale_rows(const Ctx *ctx, const int32_t *targets, int64_t rows, int64_t vocab, int64_t stride,
                       real scale, stored *dlogits) {
    EACH (ctx, n, rows, vocab)
        for (int64_t v = n * stride; v < n * stride + vocab; v++)
            dlogits[v] = store(targets[n] < 0 ? 0 : scale * load(dlogits[v]));
}

static Status loss_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const Loss *l = contract;
    int64_t rows = tensor_rows(l->hidden), padded = tensor_rows(l->weight);
    Tensor dlogits; // (N, Vp)
    TRY(take(ctx, ARENA_SCRATCH, "loss.dlogits", l->hidden.dtype, shape2(rows, padded), &dlogits));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax", CATEGORY_LOSS, ARITHMETIC_SOFTMAX,
                  torch_call("aten::_log_softmax_backward_data"))
        exponential(ctx, l->log_probabilities.data, rows, l->vocab, padded, dlogits.data);
    PRIMITIVE (ctx, "subtract target", LOSS, torch_part("aten::nll_loss_backward"))
        subtract_targets(l->targets.data, rows, padded, 1 - (real)l->smoothing, dlogits.data);
    if (l->smoothing > 0)
        PRIMITIVE (ctx, "smoothing", LOSS, torch_call("aten::sum"))
            subtract_all(ctx, rows, l->vocab, padded, (real)l->smoothing / (real)l->vocab, dlogits.data);
    PRIMITIVE (ctx, "scale", LOSS, torch_part("aten::nll_loss_backward"))
        scale_rows(ctx, l->targets.data, rows, l->vocab, padded, scale_of(l), dlogits.data);
    if (!tensor_empty(l->dbias))
        PRIMITIVE (ctx, "bias gradient", LOSS, torch_call("aten::sum"))
            add_columns(ctx, dlogits.data, rows, l->vocab, padded, l->dbias.data);
    Gemm hidden_gradient = gemm_dinput(dlogits, vocab_rows(l, l->weight), l->dhidden, 0);
    PRIMITIVE (ctx, "hidden gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &hidden_gradient));
    Gemm weight_gradient = gemm_dweight(tensor_columns(dlogits, 0, l->vocab), l->hidden, l->dweight, 1);
    PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &weight_gradient));
    return OK;
}
SLOT(LOSS, BACKWARD, CPU, NAIVE, STORED_DTYPE, loss_backward_cpu_naive);
