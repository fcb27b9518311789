#include "kernels/norm/norm.h"

#include "kernels/check.h"

static Status check_weight(const NormForward *n) {
    TRY(check_present("norm", "x", n->x));
    TRY(check_present("norm", "weight", n->weight));
    int64_t width = tensor_width(n->x), columns = tensor_width(n->weight);
    TRY(check_dense("norm", "weight", n->weight, n->x.dtype, 1, n->kind == NORM_LAYER ? width : columns));
    return check_that("norm", columns > 0 && width % columns == 0, "a row of x is made of whole heads");
}

static Status take_outputs(Ctx *ctx, NormForward *n, ArenaKind saved) {
    TRY(check_weight(n));
    Dtype type = n->x.dtype, wide = dtype_wide(type);
    Shape rows = shape1(tensor_rows(n->x) * norm_heads(n));
    if (!tensor_empty(n->skip)) TRY(take_missing(ctx, saved, "norm.residual", type, n->x.shape, &n->r));
    TRY(take_missing(ctx, saved, ctx->call, type, n->x.shape, &n->y));
    if (n->kind == NORM_LAYER) TRY(take_missing(ctx, saved, "norm.mean", wide, rows, &n->mean));
    return take_missing(ctx, saved, "norm.rstd", wide, rows, &n->rstd);
}

/* Checks x, y, dy or dr: dense rows, or possibly strided ones for RMS without a skip. */
static Status check_rows(const NormForward *n, const char *name, Tensor t) {
    int64_t rows = tensor_rows(n->x), width = tensor_width(n->x);
    bool strided = n->kind == NORM_RMS && tensor_empty(n->skip);
    return strided ? check_view("norm", name, t, n->x.dtype, rows, width)
                   : check_dense("norm", name, t, n->x.dtype, rows, width);
}

static Status check_statistics(const NormForward *n) {
    Dtype type = n->x.dtype, wide = dtype_wide(type);
    int64_t rows = tensor_rows(n->x), width = tensor_width(n->x);
    TRY(check_dense("norm", "rstd", n->rstd, wide, 1, rows * norm_heads(n)));
    if (n->kind == NORM_RMS)
        return check_that("norm", tensor_empty(n->bias) && tensor_empty(n->mean),
                          "RMS has neither bias nor mean");
    TRY(check_dense("norm", "bias", n->bias, type, 1, width));
    return check_dense("norm", "mean", n->mean, wide, 1, rows);
}

static Status check_forward(const NormForward *n) {
    TRY(check_weight(n));
    Dtype type = n->x.dtype;
    int64_t rows = tensor_rows(n->x), width = tensor_width(n->x);
    TRY(check_rows(n, "x", n->x));
    TRY(check_rows(n, "y", n->y));
    TRY(check_statistics(n));
    TRY(check_that("norm", tensor_empty(n->skip) == tensor_empty(n->r), "r is there exactly where skip is"));
    TRY(check_that("norm", n->eps >= 0, "eps is not negative"));
    TRY(dropout_check("norm", &n->dropout));
    TRY(dropout_check("norm", &n->depth));
    TRY(check_that("norm", !tensor_empty(n->skip) || !norm_drops(n), "only a skip is dropped from"));
    TRY(check_that("norm", !dropout_on(&n->depth) || (n->depth_rows > 0 && rows % n->depth_rows == 0),
                   "the rows are those of whole samples"));
    if (tensor_empty(n->skip)) return OK;
    TRY(check_that("norm", norm_heads(n) == 1, "heads have no skip"));
    TRY(check_dense("norm", "skip", n->skip, type, rows, width));
    return check_dense("norm", "r", n->r, type, rows, width);
}

TorchName norm_torch(const Ctx *ctx, const NormForward *n) {
    const bool layer = n->kind == NORM_LAYER;
    if (ctx->pass == PASS_FORWARD)
        return torch_part(layer ? "aten::native_layer_norm" : "aten::_fused_rms_norm");
    return torch_part(layer ? "aten::native_layer_norm_backward" : "aten::_fused_rms_norm_backward");
}

Status norm_forward(Ctx *ctx, NormForward *n, ArenaKind saved) {
    TRY(take_outputs(ctx, n, saved));
    TRY(check_forward(n));
    if (tensor_rows(n->x) == 0) return OK;
    double size = (double)dtype_size(n->x.dtype);
    double elements = (double)tensor_count(n->x);
    bool skip = !tensor_empty(n->skip), drop = norm_drops(n), layer = n->kind == NORM_LAYER;
    size_t others =
        tensor_bytes(n->weight) + tensor_bytes(n->bias) + tensor_bytes(n->mean) + tensor_bytes(n->rstd);
    /* Per element: dropout 1, residual 1; LAYER: mean 1, variance 3, normalize 2, scale and shift 2; RMS:
     * mean square 2, normalize 1, scale 1. */
    Call call = {.operation = OP_NORM,
                 .pass = PASS_FORWARD,
                 .dtype = n->x.dtype,
                 .contract = n,
                 .inputs = {n->x, n->skip, n->weight, n->bias},
                 .work = {.flops = elements * ((layer ? 8 : 4) + skip + drop),
                          .bytes = size * elements * (skip ? 4 : 2) + (double)others},
                 .outputs = {{"y", n->y}}};
    int outputs = 1;
    if (layer) call.outputs[outputs++] = (Output){"mean", n->mean};
    call.outputs[outputs++] = (Output){"rstd", n->rstd};
    call.outputs[outputs] = (Output){"r", n->r};
    return op_run(ctx, &call);
}

static Status check_backward(const NormBackward *n) {
    const NormForward *f = n->forward;
    TRY(check_forward(f));
    Dtype type = f->x.dtype, wide = dtype_wide(type);
    int64_t rows = tensor_rows(f->x), width = tensor_width(f->x), columns = tensor_width(f->weight);
    TRY(check_rows(f, "dy", n->dy));
    TRY(check_rows(f, "dr", n->dr));
    bool drop = norm_drops(f);
    TRY(check_that("norm", drop == !tensor_empty(n->dskip),
                   "dskip is there exactly where something is dropped"));
    if (drop) TRY(check_dense("norm", "dskip", n->dskip, type, rows, width));
    TRY(check_dense("norm", "dweight", n->dweight, wide, 1, columns));
    TRY(check_that("norm", tensor_empty(n->dbias) == tensor_empty(f->bias),
                   "dbias is there exactly where bias is"));
    if (!tensor_empty(n->dbias)) TRY(check_dense("norm", "dbias", n->dbias, wide, 1, columns));
    if (tensor_empty(n->dr_sums)) return OK;
    TRY(check_that("norm", n->accumulate && !drop && columns == width,
                   "dr_sums go with accumulate, and not with dropout or heads"));
    return check_dense("norm", "dr_sums", n->dr_sums, wide, 1, width);
}

Status norm_backward(Ctx *ctx, const NormBackward *n) {
    TRY(check_backward(n));
    const NormForward *f = n->forward;
    if (tensor_rows(f->x) == 0) return OK;
    bool drop = norm_drops(f), sums = !tensor_empty(n->dr_sums), layer = f->kind == NORM_LAYER;
    double size = (double)dtype_size(f->x.dtype), elements = (double)tensor_count(f->x);
    size_t others = tensor_bytes(f->weight) + tensor_bytes(f->mean) + tensor_bytes(f->rstd) +
                    2 * (tensor_bytes(n->dweight) + tensor_bytes(n->dbias) + tensor_bytes(n->dr_sums));
    /* Per element, LAYER: n 2, g 1, two means 3, dr 4, dweight 2, dbias 1; RMS: n 1, g 1, a mean 2, dr 3,
     * dweight 2; accumulate 1, dr_sums 1, dropout 1. */
    Call call = {.operation = OP_NORM,
                 .pass = PASS_BACKWARD,
                 .dtype = f->x.dtype,
                 .contract = n,
                 .inputs = {n->dy, f->x, f->skip, f->weight, f->bias},
                 .work = {.flops = elements * ((layer ? 13 : 9) + n->accumulate + sums + drop),
                          .bytes = size * elements * ((n->accumulate ? 4 : 3) + drop) + (double)others},
                 .outputs = {{"dr", n->dr}, {"dweight", n->dweight}}};
    int outputs = 2;
    if (layer) call.outputs[outputs++] = (Output){"dbias", n->dbias};
    call.outputs[outputs] = drop ? (Output){"dskip", n->dskip} : (Output){"dr_sums", n->dr_sums};
    return op_run(ctx, &call);
}
