/* linear, with bias, residual and activation in the product or in one extra pass. */
#include "kernels/gemm/cpu.h"
#include "kernels/linear/cpu_amx.h"
#include "kernels/linear/cpu_groups.h"
#include "kernels/linear/linear.h"
#include "kernels/real.h"
#include "kernels/simd.h"

/* With oneDNN or AMX tiles the product itself applies bias, residual and activation. Otherwise the product
 * accumulates on top of the bias, which therefore costs no extra pass, and an activation or its derivative is
 * one vectorized pass. A few rows (decoding) are dot products instead, and up to TILED_ROWS in bf16 are
 * multiplied on AMX tiles, with everything in one pass over the weights. */

enum {
    STREAMS = GROUP_STREAMS, // rows of weights that a thread reads at once
    TILE = 4,                // rows of x whose sums stay in registers
    NEAR = 8,                // rows of x that stay in the L1 cache, a multiple of TILE
    ROWS = 64,               // rows for which a thread reads its weights from memory once
    BLOCK = 8,               // outputs that a thread finishes at a time
    TILED_ROWS = 32,         // most rows for which AMX tiles are faster than the library
    SLAB = 256,              // most columns of a bias gradient that one thread sums at a time
    RUN = 128,               // rows summed in fp32 before they are added to the total
    PIECE = 2048,            // elements of an activation that a thread processes at a time
};

/* Fills every row of pre with the bias, plus skip; either may be empty. The product then accumulates on
 * top. */
static void fill(Ctx *ctx, Tensor bias, Tensor skip, Tensor pre) {
    int64_t rows = tensor_rows(pre), width = tensor_width(pre);
    const stored *added = tensor_empty(bias) ? NULL : bias.data;
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        stored *out = stored_row(pre, i);
        const stored *from = tensor_empty(skip) ? added : stored_row(skip, i);
        memcpy(out, from, (size_t)width * sizeof(stored));
        if (from == added || !added) continue;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) out[c] = store(load(out[c]) + load(added[c]));
    }
}

#define FOR_EACH(value)                                                                                      \
    _Pragma("omp simd") for (int64_t i = 0; i < count; i++) run[i] = value;                                  \
    break

/* One loop per activation, so that each is vectorized; at most PIECE elements. */
static void activate_run(Activation activation, const stored *pre, int64_t count, stored *y) {
    float room[PIECE], *run = run_of(y, room);
    switch (activation) {
    case ACTIVATION_NONE: FOR_EACH(load(pre[i]));
    case ACTIVATION_GELU_TANH: FOR_EACH(simd_gelu(load(pre[i])));
    case ACTIVATION_GELU: FOR_EACH(simd_gelu_erf(load(pre[i])));
    case ACTIVATION_RELU: FOR_EACH(load(pre[i]) > 0 ? load(pre[i]) : 0);
    case ACTIVATION_TANH: FOR_EACH(simd_tanh(load(pre[i])));
    case ACTIVATION_SWIGLU: return; // not elementwise: see gate_row
    }
    store_run(run, count, y);
}

/* y = dy * activation'(pre); y may be dy. */
static void slope_run(Activation activation, const stored *pre, const stored *dy, int64_t count, stored *y) {
    float room[PIECE], *run = run_of(y, room);
    switch (activation) {
    case ACTIVATION_NONE: FOR_EACH(load(dy[i]));
    case ACTIVATION_GELU_TANH: FOR_EACH(load(dy[i]) * simd_gelu_slope(load(pre[i])));
    case ACTIVATION_GELU: FOR_EACH(load(dy[i]) * simd_gelu_erf_slope(load(pre[i])));
    case ACTIVATION_RELU: FOR_EACH(load(pre[i]) > 0 ? load(dy[i]) : 0);
    case ACTIVATION_TANH: FOR_EACH(load(dy[i]) * (1 - simd_tanh(load(pre[i])) * simd_tanh(load(pre[i]))));
    case ACTIVATION_SWIGLU: return;
    }
    store_run(run, count, y);
}

static void activate(Ctx *ctx, Activation activation, const stored *pre, int64_t count, stored *y) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t first = 0; first < count; first += PIECE)
        activate_run(activation, pre + first, first + PIECE < count ? PIECE : count - first, y + first);
}

/* dx *= activation'(pre) */
static void activation_gradient(Ctx *ctx, Activation activation, const stored *pre, int64_t count,
                                stored *dx) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t first = 0; first < count; first += PIECE)
        slope_run(activation, pre + first, dx + first, first + PIECE < count ? PIECE : count - first,
                  dx + first);
}

static void gate_row(const stored *gate, const stored *up, int64_t width, stored *y) {
#pragma omp simd
    for (int64_t c = 0; c < width; c++) y[c] = store(simd_silu(load(gate[c])) * load(up[c]));
}

/* dy may be dgate's memory. */
static void gate_gradient_row(const stored *gate, const stored *up, const stored *dy, int64_t width,
                              stored *dgate, stored *dup) {
#pragma omp simd
    for (int64_t c = 0; c < width; c++) {
        float d = load(dy[c]), z = load(gate[c]);
        dup[c] = store(d * simd_silu(z));
        dgate[c] = store(d * load(up[c]) * simd_silu_slope(z));
    }
}

/* y = silu(gate) * up, from pre (..., 2 * width). */
static void gate(Ctx *ctx, Tensor pre, Tensor y) {
    int64_t rows = tensor_rows(y), width = tensor_width(y);
    PRIMITIVE_OF (ctx, ctx->pass, "SwiGLU", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL) {
        SIMD_EACH_ROW(i, rows,
                      gate_row(stored_row(pre, i), stored_row(pre, i) + width, width, stored_row(y, i)));
    }
}

/* Computes dpre (..., 2 * width) from dy, which may be the first half of dpre's columns. */
static void gate_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre) {
    int64_t rows = tensor_rows(dy), width = tensor_width(dy);
    PRIMITIVE_OF (ctx, ctx->pass, "SwiGLU gradient", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t i = 0; i < rows; i++)
            gate_gradient_row(stored_row(pre, i), stored_row(pre, i) + width, stored_row(dy, i), width,
                              stored_row(dpre, i), stored_row(dpre, i) + width);
    }
}

/* Adds the upper half to the lower half repeatedly. */
static inline float sum_of_lanes(Lanes x) {
    typedef float Half __attribute__((vector_size(sizeof(Lanes) / 2)));
    typedef float Quarter __attribute__((vector_size(sizeof(Lanes) / 4)));
    Half halves[2];
    Quarter quarters[2];
    memcpy(halves, &x, sizeof halves);
    halves[0] += halves[1];
    memcpy(quarters, halves, sizeof quarters);
    quarters[0] += quarters[1];
    float sum = quarters[0][0];
    for (int l = 1; l < LANES / 4; l++) sum += quarters[0][l];
    return sum;
}

/* sums[r][s] = row r of x . row outputs[s] of weight. Each sum has one order, whatever the number of rows.
 * Several rows of weights, far apart in memory, are read at once and prefetched explicitly. A single row with
 * the hardware's prefetcher reaches only two thirds of this rate in bf16. `rows` is a constant after
 * inlining, so the lanes stay in registers. */
static inline __attribute__((always_inline)) void tile_dots(const int rows, Tensor x, int64_t n,
                                                            Tensor weight, const int64_t outputs[STREAMS],
                                                            float sums[TILE][STREAMS]) {
    const int64_t count = tensor_width(weight);
    const stored *from[TILE], *weights[STREAMS];
    Lanes lanes[TILE][STREAMS] = {{{0}}};
    int64_t i = 0;
    for (int r = 0; r < rows; r++) from[r] = stored_row(x, n + r);
    for (int s = 0; s < STREAMS; s++) weights[s] = stored_row(weight, outputs[s]);
    for (; i + PRODUCTS <= count; i += PRODUCTS) {
        Lanes line[TILE];
        for (int r = 0; r < rows; r++) memcpy(&line[r], from[r] + i, sizeof line[r]);
        for (int s = 0; s < STREAMS; s++) {
            Lanes factor;
            memcpy(&factor, weights[s] + i, sizeof factor);
            simd_prefetch_weights(weights[s] + i);
            for (int r = 0; r < rows; r++)
                lanes[r][s] = add_products(lanes[r][s], (const stored *)&line[r], (const stored *)&factor);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < STREAMS; s++) {
            sums[r][s] = sum_of_lanes(lanes[r][s]);
            for (int64_t rest = i; rest < count; rest++)
                sums[r][s] += load(from[r][rest]) * load(weights[s][rest]);
        }
}

static void dots(int64_t rows, Tensor x, int64_t n, Tensor weight, const int64_t outputs[STREAMS],
                 float sums[TILE][STREAMS]) {
    switch (rows) {
    case 1: tile_dots(1, x, n, weight, outputs, sums); break;
    case 2: tile_dots(2, x, n, weight, outputs, sums); break;
    case 3: tile_dots(3, x, n, weight, outputs, sums); break;
    default: tile_dots(TILE, x, n, weight, outputs, sums);
    }
}

/* Finishes outputs of row n, from `first` on: bias, skip and activation of their sums. Only plain products
 * have a y in fp32. */
static void finish_outputs(const LinearForward *l, int64_t n, int64_t first, int64_t count, float *sums) {
    const stored *bias = tensor_empty(l->bias) ? NULL : (const stored *)l->bias.data + first;
    const stored *skip = tensor_empty(l->skip) ? NULL : stored_row(l->skip, n) + first;
    if (l->y.dtype != STORED_DTYPE) {
        memcpy(float_row(l->y, n) + first, sums, (size_t)count * sizeof(float));
        return;
    }
    for (int64_t o = 0; bias && o < count; o++) sums[o] += load(bias[o]);
    for (int64_t o = 0; skip && o < count; o++) sums[o] += load(skip[o]);
    stored *y = stored_row(l->y, n) + first, *pre = tensor_empty(l->pre) ? y : stored_row(l->pre, n) + first;
    store_run(sums, count, pre);
    if (l->activation != ACTIVATION_NONE) activate_run(l->activation, pre, count, y);
}

/* Quantizes a row to 8 bits by groups: integer dot products are faster than dequantized ones. */
static void quantize_row(const stored *x, int64_t count, GroupOfX *groups) {
    for (int64_t group = 0; group < count; group++) {
        float room[GROUP];
        for (int i = 0; i < GROUP; i++) room[i] = load(x[group * GROUP + i]);
        group_of_x(room, &groups[group]);
    }
}

/* Computes sums[n][s][o ...] of `count` <= TILE rows: row n of the sums is row top + n of x. */
static void tile_of_sums(const LinearForward *l, int64_t top, int64_t n, int64_t count,
                         const int64_t outputs[STREAMS], int64_t o, float sums[ROWS][STREAMS][BLOCK]) {
    float plain[TILE][STREAMS];
    dots(count, l->x, top + n, l->weight, outputs, plain);
    for (int64_t r = 0; r < count; r++)
        for (int s = 0; s < STREAMS; s++) sums[n + r][s][o] = plain[r][s];
}

/* The same with the groups of x, for GROUP_ROWS outputs from `o` on. */
static void tile_of_grouped_sums(const LinearForward *l, const GroupOfX *groups, int64_t top, int64_t n,
                                 int64_t count, const int64_t outputs[STREAMS], int64_t o,
                                 float sums[ROWS][STREAMS][BLOCK]) {
    const int64_t each = tensor_width(l->weight) / GROUP;
    float grouped[GROUP_TOGETHER][STREAMS][GROUP_ROWS];
    for (int64_t r = 0; r < count; r += GROUP_TOGETHER) {
        const int64_t together = count - r < GROUP_TOGETHER ? 1 : GROUP_TOGETHER;
        group_dots(groups + (top + n + r) * each, together, l->weight, outputs, grouped);
        for (int64_t i = 0; i < together; i++)
            for (int s = 0; s < STREAMS; s++)
                memcpy(&sums[n + r + i][s][o], grouped[i][s], sizeof grouped[i][s]);
    }
}

/* Computes the outputs in blocks `block` + s * stride, for rows [top, top + rows). */
static void block_of_outputs(const LinearForward *l, const GroupOfX *groups, int64_t top, int64_t rows,
                             int64_t block, int64_t stride) {
    const int64_t out = tensor_rows(l->weight);
    const int64_t step = groups ? GROUP_ROWS : 1; // outputs of a stream that are computed together
    float sums[ROWS][STREAMS][BLOCK];
    for (int64_t near = 0; near < rows; near += NEAR)
        for (int64_t o = 0; o < BLOCK; o += step) {
            int64_t outputs[STREAMS];
            for (int s = 0; s < STREAMS; s++) {
                int64_t output = (block + s * stride) * BLOCK + o;
                outputs[s] = output < out ? output : out - step;
            }
            for (int64_t n = near; n < rows && n < near + NEAR; n += TILE) {
                const int64_t count = rows - n < TILE ? rows - n : TILE;
                if (groups)
                    tile_of_grouped_sums(l, groups, top, n, count, outputs, o, sums);
                else
                    tile_of_sums(l, top, n, count, outputs, o, sums);
            }
        }
    for (int s = 0; s < STREAMS; s++) {
        int64_t first = (block + s * stride) * BLOCK, count = first + BLOCK < out ? BLOCK : out - first;
        for (int64_t n = 0; n < rows && count > 0; n++) finish_outputs(l, top + n, first, count, sums[n][s]);
    }
}

/* A thread takes outputs, in STREAMS blocks at a time, and reads their weights once for ROWS rows. A thread
 * whose core is busy leaves outputs to the others. `groups` are those of x if the weights are quantized, else
 * NULL. */
static void dot_rows(Ctx *ctx, const LinearForward *l, const GroupOfX *groups) {
    int64_t rows = tensor_rows(l->x), out = tensor_rows(l->weight);
    int64_t blocks = pieces(out, BLOCK), stride = pieces(blocks, STREAMS);
    const int64_t parts = pieces(rows, ROWS) * stride;
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(guided)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t top = part / stride * ROWS;
        block_of_outputs(l, groups, top, rows - top < ROWS ? rows - top : ROWS, part % stride, stride);
    }
}

/* The part of the activation that the product can apply: all of it, unless the activation's input is saved
 * too. */
static Finish finish_of(const LinearForward *l) {
    static const Finish finishes[ACTIVATION_COUNT] = {[ACTIVATION_GELU_TANH] = FINISH_GELU_TANH,
                                                      [ACTIVATION_GELU] = FINISH_GELU,
                                                      [ACTIVATION_RELU] = FINISH_RELU,
                                                      [ACTIVATION_TANH] = FINISH_TANH};
    return tensor_empty(l->pre) ? finishes[l->activation] : FINISH_PLAIN;
}

static const char *product_name(const LinearForward *l) {
    bool bias = !tensor_empty(l->bias);
    if (finish_of(l)) return "product, bias, activation";
    if (!tensor_empty(l->skip)) return bias ? "product, bias, residual add" : "product, residual add";
    return bias ? "product, bias" : "product";
}

/* For products that the library cannot finish: fills pre with bias and skip, and the product accumulates. */
static Status fill_and_multiply(Ctx *ctx, const LinearForward *l, Gemm *product, Tensor pre) {
    bool bias = !tensor_empty(l->bias), skip = !tensor_empty(l->skip);
    if (bias || skip)
        PRIMITIVE (ctx, skip ? "bias, residual add" : "bias", ELEMENTWISE) fill(ctx, l->bias, l->skip, pre);
    product->beta = bias || skip ? 1 : 0;
    PRIMITIVE (ctx, "product", MATRIX) TRY(gemm_cpu_openblas(ctx, product));
    return OK;
}

static bool on_tiles(const LinearForward *l) {
    return linear_amx_serves && linear_amx_serves(l->x, l->weight);
}

static Status take_pairs(Ctx *ctx, const LinearForward *l, int64_t rows, Tensor *pairs) {
    const Shape shape = shape1(linear_amx_pairs(rows, tensor_width(l->x)));
    return take(ctx, ARENA_SCRATCH, "x in pairs", I32, shape, pairs);
}

static Status multiply_on_tiles(Ctx *ctx, const LinearForward *l) {
    Tensor pairs;
    TRY(take_pairs(ctx, l, tensor_rows(l->x), &pairs));
    PRIMITIVE (ctx, "product, bias, activation", MATRIX) linear_amx_rows(ctx, l, pairs.data, finish_outputs);
    return OK;
}

static Status forward(Ctx *ctx, const LinearForward *l) {
    const bool grouped = dtype_grouped(l->weight.dtype), invariant = ctx->fuses & FUSE_INVARIANT;
    const bool tiles = on_tiles(l);
    const int64_t rows = tensor_rows(l->x);
    if (tiles && (invariant || (rows > LINEAR_FEW_ROWS && rows <= TILED_ROWS)))
        return multiply_on_tiles(ctx, l);
    if (tiles && ctx->measuring) // fewer rows may follow
        TRY(take_pairs(ctx, l, rows < TILED_ROWS ? rows : TILED_ROWS, &(Tensor){0}));
    if (grouped || rows <= LINEAR_FEW_ROWS || invariant) {
        Tensor groups = {0};
        const int64_t each = tensor_width(l->x) / GROUP;
        if (grouped)
            TRY(take(ctx, ARENA_SCRATCH, "x by groups", U8, shape1(rows * each * (int64_t)sizeof(GroupOfX)),
                     &groups));
        PRIMITIVE (ctx, "product, bias, activation", MATRIX) {
            if (grouped)
                SIMD_EACH_ROW(i, rows,
                              quantize_row(stored_row(l->x, i), each, (GroupOfX *)groups.data + i * each));
            dot_rows(ctx, l, groups.data);
        }
        return OK;
    }
    Tensor pre = tensor_empty(l->pre) ? l->y : l->pre;
    Gemm product = linear_product(l, pre, 0);
    const GemmFinish finish = {l->bias.data, l->skip.data, finish_of(l)};
    const CpuPlan *plan = NULL;
    if (!ctx->measuring) TRY(gemm_cpu_finishes(ctx, &product, &finish, &plan));
    if (plan)
        PRIMITIVE (ctx, product_name(l), MATRIX) TRY(gemm_cpu_finish(ctx, plan, &product, &finish));
    else
        TRY(fill_and_multiply(ctx, l, &product, pre));
    if (l->activation != ACTIVATION_NONE && !(plan && finish.finish))
        PRIMITIVE_OF (ctx, ctx->pass, activation_name(l->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(l->activation), activation_torch(l->activation), &l->y)
            activate(ctx, l->activation, pre.data, tensor_count(pre), l->y.data);
    return OK;
}

static Status linear_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const LinearForward *l = contract;
    if (!activation_gated(l->activation)) return forward(ctx, l);
    Tensor pre = l->pre; // (..., O)
    TRY(take_missing(ctx, ARENA_SCRATCH, "linear.pre", STORED_DTYPE, linear_pre_shape(l), &pre));
    LinearForward plain = linear_ungated(l, pre);
    TRY(forward(ctx, &plain));
    gate(ctx, pre, l->y);
    return OK;
}
SLOT(LINEAR, FORWARD, CPU, FUSED, STORED_DTYPE, linear_forward_cpu_fused);

/* Columns [first, last) of dpre = dy * activation'(pre), unless dpre is dy itself, and of dbias. Sums over
 * rows run in order, whatever the number of threads. */
static void bias_slab(const LinearBackward *l, Tensor dpre, int64_t first, int64_t last) {
    int64_t rows = tensor_rows(dpre), width = last - first;
    float *dbias = tensor_empty(l->dbias) ? NULL : (float *)l->dbias.data + first;
    for (int64_t top = 0; top < rows; top += RUN) {
        float sum[SLAB] = {0};
        for (int64_t n = top; n < rows && n < top + RUN; n++) {
            const stored *dy = stored_row(l->dy, n) + first;
            if (dpre.data != l->dy.data) {
                const stored *pre = stored_row(l->forward->pre, n) + first;
                stored *out = stored_row(dpre, n) + first;
                slope_run(l->forward->activation, pre, dy, width, out);
                dy = out;
            }
#pragma omp simd
            for (int64_t c = 0; c < width; c++) sum[c] += load(dy[c]);
        }
        if (!dbias) continue;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) dbias[c] += sum[c];
    }
}

/* Columns per slab, so that narrow layers have work for all threads. */
static int64_t slab_of(Ctx *ctx, int64_t width) {
    const int64_t share = (width / cpu_threads(ctx) + CACHE_LINE_FLOATS - 1) & -CACHE_LINE_FLOATS;
    return share > SLAB ? SLAB : share > CACHE_LINE_FLOATS ? share : CACHE_LINE_FLOATS;
}

static Status input_gradient(Ctx *ctx, const LinearBackward *l, Tensor dpre) {
    bool gated = l->input && activation_gated(l->input->activation);
    Tensor dx = gated ? tensor_columns(l->dx, 0, tensor_width(l->forward->x)) : l->dx;
    Gemm dinput = linear_input_gradient(l, dpre, dx);
    PRIMITIVE (ctx, "input gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &dinput));
    if (gated)
        gate_gradient(ctx, l->input->pre, dx, l->dx);
    else if (l->input)
        PRIMITIVE_OF (ctx, ctx->pass, activation_gradient_name(l->input->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(l->input->activation),
                      activation_gradient_torch(l->input->activation))
            activation_gradient(ctx, l->input->activation, l->input->pre.data, tensor_count(l->dx),
                                l->dx.data);
    return OK;
}

static Status backward(Ctx *ctx, const LinearBackward *l) {
    const LinearForward *f = l->forward;
    int64_t width = tensor_width(l->dy);
    bool active = f->activation != ACTIVATION_NONE && !l->dy_is_dpre;
    Tensor dpre = l->dy; // (..., O)
    if (active) TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", STORED_DTYPE, l->dy.shape, &dpre));
    if (active || !tensor_empty(l->dbias))
        PRIMITIVE_OF (ctx, ctx->pass, active ? "activation and bias gradient" : "bias gradient",
                      active ? CATEGORY_ACTIVATION : CATEGORY_ELEMENTWISE,
                      activation_arithmetic(active ? f->activation : ACTIVATION_NONE)) {
            const int64_t slab = slab_of(ctx, width);
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
            for (int64_t first = 0; first < width; first += slab)
                bias_slab(l, dpre, first, first + slab < width ? first + slab : width);
        }
    Gemm dweight = linear_weight_gradient(l, dpre);
    if (!tensor_empty(l->dweight))
        PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &dweight));
    return tensor_empty(l->dx) ? OK : input_gradient(ctx, l, dpre);
}

static Status linear_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const LinearBackward *l = contract;
    if (!activation_gated(l->forward->activation) || l->dy_is_dpre) return backward(ctx, l);
    Tensor dpre; // (..., O)
    TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", STORED_DTYPE, linear_pre_shape(l->forward), &dpre));
    gate_gradient(ctx, l->forward->pre, l->dy, dpre);
    LinearBackward rest = linear_ungated_backward(l, dpre);
    return backward(ctx, &rest);
}
SLOT(LINEAR, BACKWARD, CPU, FUSED, STORED_DTYPE, linear_backward_cpu_fused);
