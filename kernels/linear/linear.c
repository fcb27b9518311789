#include "kernels/linear/linear.h"

#include "kernels/check.h"

/* The names of an activation and of its gradient, here and in PyTorch; a gated activation is two
 * primitives. */
static const struct {
    const char *name, *gradient, *torch, *torch_gradient;
    Arithmetic arithmetic;
} activations[ACTIVATION_COUNT] = {
    [ACTIVATION_NONE] = {"identity", "identity gradient", NULL, NULL, ARITHMETIC_PLAIN},
    [ACTIVATION_GELU_TANH] = {"GELU", "GELU gradient", "aten::gelu", "aten::gelu_backward",
                              ARITHMETIC_EXPONENTIAL},
    [ACTIVATION_GELU] = {"GELU", "GELU gradient", "aten::gelu", "aten::gelu_backward",
                         ARITHMETIC_EXPONENTIAL},
    [ACTIVATION_RELU] = {"ReLU", "ReLU gradient", "aten::relu", "aten::threshold_backward", ARITHMETIC_PLAIN},
    [ACTIVATION_TANH] = {"tanh", "tanh gradient", "aten::tanh", "aten::tanh_backward",
                         ARITHMETIC_EXPONENTIAL},
    [ACTIVATION_SWIGLU] = {"SwiGLU", "SwiGLU gradient", NULL, NULL, ARITHMETIC_EXPONENTIAL},
};

const char *activation_name(Activation activation) {
    return activations[activation].name;
}

const char *activation_gradient_name(Activation activation) {
    return activations[activation].gradient;
}

Arithmetic activation_arithmetic(Activation activation) {
    return activations[activation].arithmetic;
}

TorchName activation_torch(Activation activation) {
    return torch_call(activations[activation].torch);
}

TorchName activation_gradient_torch(Activation activation) {
    return torch_call(activations[activation].torch_gradient);
}

TorchName linear_torch(const LinearForward *l) {
    return torch_call(tensor_empty(l->bias) ? "aten::mm" : "aten::addmm");
}

static Tensor elements_of(Tensor t, int part, int parts) {
    int64_t count = tensor_count(t) / parts;
    if (tensor_empty(t)) return t;
    t.data = (void *)((uintptr_t)t.data + (size_t)(part * count) * dtype_size(t.dtype));
    t.shape.d[0] /= parts; // rows of a matrix, elements of a vector
    if (t.shape.rank == 1) t.stride = count;
    return t;
}

static Tensor columns_of(Tensor t, int part, int parts) {
    int64_t width = tensor_width(t) / parts;
    return tensor_columns(t, part * width, width);
}

/* ---- products of 8 bits ---- */

static bool in_fp8(const Ctx *ctx, const LinearForward *l) {
    return l->fp8 && ctx->fuses & FUSE_FP8 && !dtype_grouped(l->weight.dtype);
}

bool linear_multiplies_fp8(const Ctx *ctx) {
    return ctx->device->backend == BACKEND_CUDA && linear_fp8_cuda && linear_fp8_cuda(ctx);
}

/* cuBLASLt's fp8 products require all extents to be multiples of 16. */
static bool multiplies_bytes(const Ctx *ctx, const LinearForward *l) {
    return linear_multiplies_fp8(ctx) && tensor_rows(l->x) % 16 == 0 && tensor_width(l->weight) % 16 == 0 &&
           tensor_rows(l->weight) % 16 == 0;
}

static Tensor element(Tensor rows, Operand operand, Shape shape) {
    return tensor_empty(rows) ? rows : tensor_elements(rows, operand * shape_count(shape), shape);
}

/* Only training has scales from the previous step, and records maxima for the next. */
static Cast cast_of(const Ctx *ctx, const LinearForward *l, Operand operand, Tensor x) {
    Cast c = {.x = x};
    if (!ctx->training) return c;
    if (ctx->scaled) c.given = element(l->scales, operand, shape1(1));
    c.seen = element(l->seen, operand, shape1(CAST_SEEN));
    return c;
}

/* Whether the caller has already cast this operand. Its bytes use training's scales. */
static bool is_cast(const Ctx *ctx, const Cast *c) {
    return ctx->training && !tensor_empty(c->y);
}

Status linear_cast_weight(Ctx *ctx, const LinearForward *l, Cast *weight8) {
    Cast c = cast_of(ctx, l, OPERAND_WEIGHT, l->weight);
    c.y = weight8->y;
    c.t = weight8->t;
    c.scale = weight8->scale;
    *weight8 = c;
    return cast_forward(ctx, weight8);
}

/* *values = x rounded to 8 bits, in x's dtype. */
static Status round_operand(Ctx *ctx, const LinearForward *l, Operand operand, Tensor x, Tensor *values) {
    Cast c = cast_of(ctx, l, operand, x);
    if (operand == OPERAND_WEIGHT && is_cast(ctx, &l->weight8)) c.seen = (Tensor){0}; // already recorded
    TRY(cast_values(ctx, &c));
    *values = c.rounded;
    return OK;
}

static bool defers(const Ctx *ctx, const LinearForward *l) {
    return l->may_defer && in_fp8(ctx, l) && multiplies_bytes(ctx, l) && l->activation != ACTIVATION_NONE;
}

static bool deferred(const LinearForward *l) {
    return l && l->deferred;
}

/* Puts the contract to run in `cast`; the parts of x8 and weight8 that the backward pass reads are allocated
 * from `saved`. Takes scratch, which the caller releases. */
static Status cast_forward_operands(Ctx *ctx, LinearForward *l, LinearForward *cast, ArenaKind saved,
                                    ArenaMark *mark) {
    const bool bytes = multiplies_bytes(ctx, l), keeps = bytes && ctx->training;
    const bool weight_is_cast = is_cast(ctx, &l->weight8);
    l->x8 = cast_of(ctx, l, OPERAND_X, l->x);
    if (!weight_is_cast) l->weight8 = cast_of(ctx, l, OPERAND_WEIGHT, l->weight);
    if (keeps) TRY(cast_take_transpose(ctx, saved, &l->x8));
    if (keeps && !weight_is_cast) TRY(cast_take_transpose(ctx, saved, &l->weight8));
    *mark = arena_mark(&ctx->arenas[ARENA_SCRATCH]);
    *cast = *l;
    if (!bytes) {
        TRY(round_operand(ctx, l, OPERAND_X, l->x, &cast->x));
        return round_operand(ctx, l, OPERAND_WEIGHT, l->weight, &cast->weight);
    }
    TRY(cast_take_bytes(ctx, &cast->x8));
    cast->casts_input = deferred(l->input);
    if (!cast->casts_input) TRY(cast_forward(ctx, &cast->x8));
    if (weight_is_cast) return OK;
    TRY(cast_take_bytes(ctx, &cast->weight8));
    return cast_forward(ctx, &cast->weight8);
}

/* Casts the operands that the forward pass has not cast, which happens if its block was recomputed without
 * it. */
static Status cast_missing(Ctx *ctx, LinearForward *l, bool x, bool weight) {
    if (x && tensor_empty(l->x8.t)) {
        l->x8 = cast_of(ctx, l, OPERAND_X, l->x);
        TRY(cast_take_transpose(ctx, ARENA_SCRATCH, &l->x8));
        l->casts_input = deferred(l->input);
        if (!l->casts_input) TRY(cast_forward(ctx, &l->x8));
    }
    if (!weight || !tensor_empty(l->weight8.t)) return OK;
    l->weight8 = cast_of(ctx, l, OPERAND_WEIGHT, l->weight);
    TRY(cast_take_transpose(ctx, ARENA_SCRATCH, &l->weight8));
    return cast_forward(ctx, &l->weight8);
}

/* Casts dpre to bytes. Each gradient reads one of its two forms; the same pass sums the bias's gradient. */
static Status cast_gradient(Ctx *ctx, LinearBackward *l) {
    const LinearForward *f = l->forward;
    Tensor dpre = l->dy; // if the activation is deferred, the form computes dpre from dy and pre
    if (f->deferred) dpre = tensor_view(NULL, dpre.dtype, linear_pre_shape(f));
    l->dy8 = cast_of(ctx, f, OPERAND_DPRE, dpre);
    l->dy8.sums = l->dbias;
    if (!tensor_empty(l->dweight)) TRY(cast_take_transpose(ctx, ARENA_SCRATCH, &l->dy8));
    if (!tensor_empty(l->dx)) TRY(cast_take_bytes(ctx, &l->dy8));
    if (f->deferred) return OK;
    l->dbias = (Tensor){0};
    return cast_forward(ctx, &l->dy8);
}

/* The same for a backward pass; `forward` receives its forward contract. */
static Status cast_backward_operands(Ctx *ctx, const LinearBackward *l, LinearForward *forward,
                                     LinearBackward *cast) {
    const LinearForward *f = l->forward;
    const bool dx = !tensor_empty(l->dx), dweight = !tensor_empty(l->dweight);
    *forward = *f;
    *cast = *l;
    cast->forward = forward;
    if (multiplies_bytes(ctx, f)) {
        TRY(cast_missing(ctx, forward, dweight, dx));
        return cast_gradient(ctx, cast);
    }
    if (dweight) TRY(round_operand(ctx, f, OPERAND_X, f->x, &forward->x));
    if (dx) TRY(round_operand(ctx, f, OPERAND_WEIGHT, f->weight, &forward->weight));
    return round_operand(ctx, f, OPERAND_DPRE, l->dy, &cast->dy8.rounded);
}

/* ---- the products ---- */

/* c = beta * c + a b^T on bytes, a (m, k) and b (n, k). */
static Gemm product_of_bytes(const Cast *a, Tensor a_bytes, const Cast *b, Tensor b_bytes, Tensor c,
                             double beta) {
    Gemm g = gemm_forward(a_bytes, b_bytes, c, beta);
    g.a_scale = a->scale.data;
    g.b_scale = b->scale.data;
    return g;
}

/* The forward pass may use fast accumulation; a weight's gradient may not, because it sums far more terms. */
Gemm linear_product(const LinearForward *l, Tensor y, double beta) {
    if (tensor_empty(l->x8.y)) return gemm_forward(l->x, l->weight, y, beta);
    Gemm g = product_of_bytes(&l->x8, l->x8.y, &l->weight8, l->weight8.y, y, beta);
    g.fast = true;
    return g;
}

static Tensor factor(const LinearBackward *l, Tensor dpre) {
    return tensor_empty(l->dy8.rounded) ? dpre : l->dy8.rounded;
}

Gemm linear_input_gradient(const LinearBackward *l, Tensor dpre, Tensor dx) {
    const LinearForward *f = l->forward;
    if (tensor_empty(l->dy8.y)) return gemm_dinput(factor(l, dpre), f->weight, dx, l->accumulate);
    return product_of_bytes(&l->dy8, l->dy8.y, &f->weight8, f->weight8.t, dx, l->accumulate);
}

Gemm linear_weight_gradient(const LinearBackward *l, Tensor dpre) {
    const LinearForward *f = l->forward;
    if (tensor_empty(l->dy8.t)) return gemm_dweight(factor(l, dpre), f->x, l->dweight, 1);
    return product_of_bytes(&l->dy8, l->dy8.t, &f->x8, f->x8.t, l->dweight, 1);
}

/* ---- parts, and the plain layer of a gated one ---- */

LinearForward linear_part(const LinearForward *l, int part) {
    LinearForward one = *l;
    one.parts = 1;
    one.weight = elements_of(l->weight, part, l->parts);
    one.bias = elements_of(l->bias, part, l->parts);
    one.y = columns_of(l->y, part, l->parts);
    return one;
}

LinearBackward linear_backward_part(const LinearBackward *l, int part, LinearForward *forward) {
    LinearBackward one = *l;
    int parts = l->forward->parts;
    *forward = linear_part(l->forward, part);
    one.forward = forward;
    one.dy = columns_of(l->dy, part, parts);
    if (!tensor_empty(l->dy8.rounded)) one.dy8.rounded = columns_of(l->dy8.rounded, part, parts);
    one.dweight = elements_of(l->dweight, part, parts);
    one.dbias = elements_of(l->dbias, part, parts);
    one.accumulate = l->accumulate || part > 0;
    return one;
}

LinearForward linear_ungated(const LinearForward *l, Tensor pre) {
    LinearForward plain = *l;
    plain.activation = ACTIVATION_NONE;
    plain.pre = (Tensor){0};
    plain.y = pre;
    return plain;
}

LinearBackward linear_ungated_backward(const LinearBackward *l, Tensor dpre) {
    LinearBackward rest = *l;
    rest.dy = dpre;
    rest.dy_is_dpre = true;
    return rest;
}

Shape linear_pre_shape(const LinearForward *l) {
    Shape shape = l->x.shape;
    shape.d[shape.rank - 1] = tensor_rows(l->weight);
    return shape;
}

/* The width of y. */
static int64_t y_width(const LinearForward *l) {
    return tensor_rows(l->weight) / (activation_gated(l->activation) ? 2 : 1);
}

static Status take_outputs(Ctx *ctx, LinearForward *l, ArenaKind saved) {
    TRY(check_present("linear", "x", l->x));
    TRY(check_present("linear", "weight", l->weight));
    Shape shape = linear_pre_shape(l);
    l->deferred = defers(ctx, l);
    if (l->activation != ACTIVATION_NONE && (ctx->training || l->deferred))
        TRY(take_missing(ctx, saved, "before activation", l->x.dtype, shape, &l->pre));
    shape.d[shape.rank - 1] = y_width(l);
    if (l->deferred) l->y = tensor_view(NULL, l->x.dtype, shape);
    return take_missing(ctx, saved, ctx->call, l->x.dtype, shape, &l->y);
}

static Status check_forward(const Ctx *ctx, const LinearForward *l) {
    TRY(check_present("linear", "x", l->x));
    TRY(check_present("linear", "weight", l->weight));
    Dtype type = l->x.dtype;
    int64_t rows = tensor_rows(l->x), in = tensor_width(l->weight), out = tensor_rows(l->weight);
    bool bias = !tensor_empty(l->bias), active = l->activation != ACTIVATION_NONE;
    TRY(check_dense("linear", "x", l->x, type, rows, in));
    bool grouped = dtype_grouped(l->weight.dtype);
    TRY(check_dense("linear", "weight", l->weight, grouped ? l->weight.dtype : type, out, in));
    TRY(check_that("linear", !grouped || !ctx->training, "a weight by groups is for inference only"));
    if (bias) TRY(check_dense("linear", "bias", l->bias, type, 1, out));
    TRY(check_that("linear", l->activation >= 0 && l->activation < ACTIVATION_COUNT,
                   "the activation is a known one"));
    TRY(check_that("linear", !activation_gated(l->activation) || out % 2 == 0,
                   "a gated layer has as many outputs for the gate as for what it lets through"));
    TRY(check_that("linear", l->parts >= 0 && (l->parts < 2 || (out % l->parts == 0 && !active)),
                   "parts are of one size, and have no activation"));
    bool skip = !tensor_empty(l->skip);
    TRY(check_that("linear", !skip || (!active && l->parts < 2),
                   "a skip goes with one layer, not activated"));
    if (skip) TRY(check_dense("linear", "skip", l->skip, type, rows, out));
    bool plain_product = !bias && !active && !skip;
    Dtype y_type = plain_product && type == BF16 && l->y.dtype == F32 ? F32 : type;
    TRY(check_dense("linear", "y", l->y, y_type, rows, y_width(l)));
    if (tensor_empty(l->pre))
        return check_that("linear", !active || !ctx->training, "training saves an activation's input in pre");
    TRY(check_that("linear", active, "pre is empty without an activation"));
    return check_dense("linear", "pre", l->pre, type, rows, out);
}

/* FLOPs per output of an activation and of its derivative; a transcendental function counts as one. */
double activation_flops(Activation activation, Pass pass) {
    static const double flops[ACTIVATION_COUNT][PASS_UPDATE] = {
        [ACTIVATION_GELU_TANH] = {8, 12}, [ACTIVATION_GELU] = {5, 10},   [ACTIVATION_RELU] = {1, 1},
        [ACTIVATION_TANH] = {1, 4},       [ACTIVATION_SWIGLU] = {4, 11},
    };
    return flops[activation][pass];
}

static Status run_forward(Ctx *ctx, const LinearForward *l) {
    double rows = (double)tensor_rows(l->x), in = (double)tensor_width(l->weight);
    double all = (double)tensor_rows(l->weight), out = l->asked ? (double)l->asked : all;
    double added = (tensor_empty(l->bias) ? 0 : 1) + (tensor_empty(l->skip) ? 0 : 1);
    double activated = activation_flops(l->activation, PASS_FORWARD) * (double)tensor_count(l->y);
    double bytes = (double)(tensor_bytes(l->x) + tensor_bytes(l->skip) + tensor_bytes(l->pre)) +
                   (double)(tensor_bytes(l->weight) + tensor_bytes(l->bias) + tensor_bytes(l->y)) * out / all;
    Call call = {.operation = OP_LINEAR,
                 .pass = PASS_FORWARD,
                 .dtype = l->x.dtype,
                 .contract = l,
                 .inputs = {l->x, l->weight, l->bias, l->skip},
                 .work = {.flops = rows * out * (2 * in + added) + activated,
                          .bytes = bytes,
                          .flops8 = tensor_empty(l->x8.y) ? 0 : 2 * rows * in * out},
                 .outputs = {{l->deferred ? "pre" : "y", l->y}, {"pre", l->pre}}};
    return op_run(ctx, &call);
}

/* Whether the selected form has kernels for weights quantized by groups. */
static bool reads_groups(const Ctx *ctx, const LinearForward *l) {
    return ctx->device->backend == BACKEND_CPU &&
           (tensor_rows(l->x) <= LINEAR_CODED_ROWS || ctx->fuses & FUSE_INVARIANT) &&
           op_form(ctx, OP_LINEAR, l->x.dtype) == FORM_FUSED;
}

static Status run_dequantized(Ctx *ctx, const LinearForward *l) {
    LinearForward plain = *l;
    const ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SCRATCH]);
    TRY(dequantize_values(ctx, l->weight, l->x.dtype, &plain.weight));
    TRY(run_forward(ctx, &plain));
    arena_release(&ctx->arenas[ARENA_SCRATCH], mark);
    return OK;
}

Status linear_forward(Ctx *ctx, LinearForward *l, ArenaKind saved) {
    TRY(take_outputs(ctx, l, saved));
    TRY(check_forward(ctx, l));
    if (tensor_rows(l->x) == 0) return OK;
    if (dtype_grouped(l->weight.dtype) && !reads_groups(ctx, l)) return run_dequantized(ctx, l);
    if (!in_fp8(ctx, l)) return run_forward(ctx, l);
    LinearForward cast;
    ArenaMark mark;
    TRY(cast_forward_operands(ctx, l, &cast, saved, &mark));
    if (l->deferred) cast = linear_ungated(&cast, l->pre);
    TRY(run_forward(ctx, &cast));
    arena_release(&ctx->arenas[ARENA_SCRATCH], mark);
    return OK;
}

static Status check_backward(const Ctx *ctx, const LinearBackward *l) {
    const LinearForward *f = l->forward;
    TRY(check_forward(ctx, f));
    Dtype type = f->x.dtype, wide = dtype_wide(type);
    int64_t rows = tensor_rows(f->x), in = tensor_width(f->weight), out = tensor_rows(f->weight);
    TRY(check_dense("linear", "dy", l->dy, type, rows, l->dy_is_dpre ? out : y_width(f)));
    TRY(check_that("linear",
                   !in_fp8(ctx, f) || f->activation == ACTIVATION_NONE || l->dy_is_dpre || f->deferred,
                   "in 8 bits a layer with an activation is given dpre, which is what is rounded"));
    TRY(check_that("linear", !tensor_empty(l->dweight) || (!tensor_empty(l->dx) && tensor_empty(l->dbias)),
                   "a pass without dweight has dx, and no dbias"));
    if (!tensor_empty(l->dweight)) TRY(check_dense("linear", "dweight", l->dweight, wide, out, in));
    TRY(check_that("linear", tensor_empty(l->dbias) || !tensor_empty(f->bias), "dbias goes with a bias"));
    if (!tensor_empty(l->dbias)) TRY(check_dense("linear", "dbias", l->dbias, wide, 1, out));
    bool gated_input = l->input && activation_gated(l->input->activation);
    int64_t pre_width = gated_input ? 2 * in : in; // the width of the input layer's pre
    if (!tensor_empty(l->dx)) TRY(check_dense("linear", "dx", l->dx, type, rows, pre_width));
    TRY(check_that("linear", f->activation == ACTIVATION_NONE || l->dy_is_dpre || !tensor_empty(f->pre),
                   "an activation's backward pass has its saved input pre"));
    TRY(check_that("linear", !l->accumulate || (!tensor_empty(l->dx) && !l->input),
                   "only a dx that is no activated layer's gradient is accumulated"));
    if (!l->input) return OK;
    TRY(check_that("linear", f->parts < 2, "what has parts is no activated layer's consumer"));
    TRY(check_that("linear", l->input->activation != ACTIVATION_NONE,
                   "the layer named as input has an activation"));
    return check_dense("linear", "input.pre", l->input->pre, type, rows, pre_width);
}

static Status run_backward(Ctx *ctx, const LinearBackward *l) {
    const LinearForward *f = l->forward;
    double rows = (double)tensor_rows(f->x), in = (double)tensor_width(f->weight);
    double out = (double)tensor_rows(f->weight);
    bool active = f->activation != ACTIVATION_NONE && !l->dy_is_dpre, dx = !tensor_empty(l->dx);
    bool dweight = !tensor_empty(l->dweight);
    double flops =
        rows * out * (2 * in * (dx + dweight) + (tensor_empty(l->dbias) ? 0 : 1)) +
        (active ? activation_flops(f->activation, PASS_BACKWARD) * (double)tensor_count(l->dy) : 0);
    size_t bytes = tensor_bytes(l->dy) + (dweight ? tensor_bytes(f->x) : 0) + 2 * tensor_bytes(l->dweight) +
                   2 * tensor_bytes(l->dbias) + (active ? tensor_bytes(f->pre) : 0);
    if (dx) bytes += tensor_bytes(f->weight) + tensor_bytes(l->dx) * (l->accumulate ? 2 : 1);
    if (dx && l->input) {
        flops += activation_flops(l->input->activation, PASS_BACKWARD) * rows * in;
        bytes += tensor_bytes(l->input->pre);
    }
    Call call = {
        .operation = OP_LINEAR,
        .pass = PASS_BACKWARD,
        .dtype = f->x.dtype,
        .contract = l,
        .inputs = {l->dy, f->x, f->weight, f->bias, f->skip},
        .work = {.flops = flops,
                 .bytes = (double)bytes,
                 .flops8 = 2 * rows * in * out *
                           ((dx && !tensor_empty(l->dy8.y)) + (dweight && !tensor_empty(l->dy8.t)))}};
    int outputs = 0;
    if (dx) call.outputs[outputs++] = (Output){l->input ? "dpre" : "dx", l->dx};
    call.outputs[outputs++] = (Output){"dweight", l->dweight};
    call.outputs[outputs] = (Output){"dbias", l->dbias};
    return op_run(ctx, &call);
}

/* Runs in 8 bits if the layer and the fuse request it. */
static Status compute_backward(Ctx *ctx, const LinearBackward *l) {
    if (!in_fp8(ctx, l->forward)) return run_backward(ctx, l);
    LinearForward forward;
    LinearBackward cast;
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SCRATCH]);
    TRY(cast_backward_operands(ctx, l, &forward, &cast));
    TRY(run_backward(ctx, &cast));
    arena_release(&ctx->arenas[ARENA_SCRATCH], mark);
    return OK;
}

/* Resolves deferred activations, of which the caller does not know. dpre in bytes serves both gradients, so
 * these are not split. */
static LinearBackward resolve_deferred(const Ctx *ctx, const LinearBackward *l) {
    LinearBackward b = *l;
    if (deferred(l->input)) b.input = NULL;
    if (l->forward->deferred) b.dy_is_dpre = false;
    if (in_fp8(ctx, l->forward)) b.lasts = false;
    return b;
}

/* Defers only gradients of weights, because the next operation needs only dx. */
Status linear_backward(Ctx *ctx, const LinearBackward *given) {
    LinearBackward l = resolve_deferred(ctx, given);
    TRY(check_backward(ctx, &l));
    if (tensor_rows(l.dy) == 0) return OK;
    if (l.lasts && ctx->defers && ctx->defers(ctx, &l)) l.dweight = l.dbias = (Tensor){0};
    return compute_backward(ctx, &l);
}

Status linear_take_gradient(Ctx *ctx, const LinearForward *l, Tensor *gradient) {
    *gradient = l->y; // the last reader of y is the product that writes the gradient
    if (l->deferred) return take(ctx, ARENA_SCRATCH, "d hidden", l->y.dtype, l->y.shape, gradient);
    if (!activation_gated(l->activation)) return OK;
    return take(ctx, ARENA_SCRATCH, "d gate and up", l->pre.dtype, l->pre.shape, gradient);
}
