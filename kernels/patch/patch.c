#include "kernels/patch/patch.h"

#include "kernels/check.h"

PatchSizes patch_sizes(const PatchForward *p) {
    const int64_t *d = p->pixels.shape.d;
    PatchSizes s = {.batch = d[0], .height = d[1], .width = d[2], .channels = d[3], .size = p->size};
    s.down = s.height / s.size;
    s.across = s.width / s.size;
    s.first = tensor_empty(p->token) ? 0 : 1;
    s.rows = s.down * s.across + s.first;
    s.inputs = s.channels * s.size * s.size;
    s.outputs = tensor_rows(p->weight);
    return s;
}

static Status check_pictures(const PatchForward *p) {
    TRY(check_present("patch", "pixels", p->pixels));
    TRY(check_present("patch", "weight", p->weight));
    TRY(check_that("patch", p->pixels.dtype == U8 && p->pixels.shape.rank == 4 && tensor_dense(p->pixels),
                   "pixels are dense bytes of four axes"));
    const int64_t *d = p->pixels.shape.d;
    TRY(check_that("patch", d[3] >= 1 && d[3] <= PATCH_CHANNELS, "a pixel has from 1 to 4 channels"));
    for (int64_t c = 0; c < d[3]; c++)
        TRY(check_that("patch", p->deviation[c] > 0, "each channel's deviation is above 0"));
    return check_that("patch", p->size > 0 && d[1] >= p->size && d[2] >= p->size,
                      "a picture has room for a patch");
}

static Status take_x(Ctx *ctx, PatchForward *p, ArenaKind arena) {
    const PatchSizes s = patch_sizes(p);
    return take_missing(ctx, arena, "patch.x", p->weight.dtype, shape3(s.batch, s.rows, s.inputs), &p->x);
}

static Status check_forward(const PatchForward *p) {
    TRY(check_pictures(p));
    const PatchSizes s = patch_sizes(p);
    Dtype type = p->weight.dtype;
    TRY(check_dense("patch", "weight", p->weight, type, s.outputs, s.inputs));
    TRY(check_dense("patch", "bias", p->bias, type, 1, s.outputs));
    if (s.first) TRY(check_dense("patch", "token", p->token, type, 1, s.outputs));
    TRY(check_dense("patch", "position", p->position, type, s.rows, s.outputs));
    TRY(check_dense("patch", "x", p->x, type, s.batch * s.rows, s.inputs));
    return check_dense("patch", "y", p->y, type, s.batch * s.rows, s.outputs);
}

static Status run_forward(Ctx *ctx, PatchForward *p) {
    TRY(check_forward(p));
    const PatchSizes s = patch_sizes(p);
    if (s.batch == 0) return OK;
    double patches = (double)(s.batch * s.down * s.across);
    size_t bytes = tensor_bytes(p->pixels) + tensor_bytes(p->weight) + tensor_bytes(p->bias) +
                   tensor_bytes(p->token) + tensor_bytes(p->position) + tensor_bytes(p->y) +
                   (ctx->training ? tensor_bytes(p->x) : 0);
    /* Per input a scale and a shift; per output a product, a bias and a position. */
    Call call = {
        .operation = OP_PATCH,
        .pass = PASS_FORWARD,
        .dtype = p->weight.dtype,
        .contract = p,
        .inputs = {p->pixels, p->weight, p->bias, p->position},
        .work = {.flops = patches * ((double)s.inputs * 2 + (double)s.outputs * (2 * (double)s.inputs + 2)),
                 .bytes = (double)bytes},
        .outputs = {{"y", p->y}}};
    return op_run(ctx, &call);
}

Status patch_forward(Ctx *ctx, PatchForward *p, ArenaKind saved) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    TRY(check_pictures(p));
    const PatchSizes s = patch_sizes(p);
    Shape shape = shape3(s.batch, s.rows, s.outputs);
    TRY(take_missing(ctx, saved, ctx->call, p->weight.dtype, shape, &p->y));
    ArenaMark mark = arena_mark(scratch);
    TRY(take_x(ctx, p, ctx->training ? saved : ARENA_SCRATCH));
    TRY(run_forward(ctx, p));
    if (!ctx->training) arena_release(scratch, mark);
    return OK;
}

Status patch_backward(Ctx *ctx, const PatchBackward *p) {
    const PatchForward *f = p->forward;
    TRY(check_forward(f));
    const PatchSizes s = patch_sizes(f);
    Dtype type = f->weight.dtype, wide = dtype_wide(type);
    TRY(check_dense("patch", "dy", p->dy, type, s.batch * s.rows, s.outputs));
    TRY(check_dense("patch", "dweight", p->dweight, wide, s.outputs, s.inputs));
    TRY(check_dense("patch", "dbias", p->dbias, wide, 1, s.outputs));
    TRY(check_that("patch", tensor_empty(p->dtoken) == tensor_empty(f->token),
                   "dtoken is there exactly where token is"));
    if (s.first) TRY(check_dense("patch", "dtoken", p->dtoken, wide, 1, s.outputs));
    TRY(check_dense("patch", "dposition", p->dposition, wide, s.rows, s.outputs));
    if (s.batch == 0) return OK;
    double patches = (double)(s.batch * s.down * s.across), elements = (double)tensor_count(p->dy);
    size_t bytes = tensor_bytes(p->dy) + tensor_bytes(f->x) +
                   2 * (tensor_bytes(p->dweight) + tensor_bytes(p->dbias) + tensor_bytes(p->dtoken) +
                        tensor_bytes(p->dposition));
    Call call = {.operation = OP_PATCH,
                 .pass = PASS_BACKWARD,
                 .dtype = type,
                 .contract = p,
                 .inputs = {p->dy, f->pixels, f->weight, f->bias, f->position},
                 .work = {.flops = 2 * patches * (double)s.inputs * (double)s.outputs + 2 * elements,
                          .bytes = (double)bytes},
                 .outputs = {{"dweight", p->dweight}, {"dbias", p->dbias}, {"dposition", p->dposition}}};
    if (s.first) call.outputs[3] = (Output){"dtoken", p->dtoken};
    return op_run(ctx, &call);
}
