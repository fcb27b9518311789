#include "optim/adamw.h"

#include "kernels/check.h"

static Status check(const Ctx *ctx, const Adamw *a) {
    TRY(check_present("adamw", "weight", a->weight));
    Dtype wide = wide_dtype(ctx);
    int64_t elements = tensor_count(a->weight);
    TRY(check_dense("adamw", "weight", a->weight, ctx->dtype, 1, elements));
    TRY(check_that("adamw", tensor_empty(a->master) == (ctx->dtype == wide),
                   "master is there exactly where the weights are narrower than their gradients"));
    if (!tensor_empty(a->master)) TRY(check_dense("adamw", "master", a->master, wide, 1, elements));
    TRY(check_dense("adamw", "gradient", a->gradient, wide, 1, elements));
    TRY(check_dense("adamw", "m", a->m, wide, 1, elements));
    TRY(check_dense("adamw", "v", a->v, wide, 1, elements));
    TRY(check_dense("adamw", "loss", a->loss, wide, 1, 1));
    TRY(check_dense("adamw", "state", a->state, wide, 1, ADAMW_STATE_SIZE));
    TRY(check_that("adamw", a->decayed >= 0 && a->decayed <= elements,
                   "decayed is at most the number of elements"));
    int64_t end = 0;
    for (int i = 0; i < a->count; i++) {
        TRY(check_that("adamw", a->offsets[i] >= end && a->counts[i] >= 0,
                       "the parameters lie in order and do not overlap"));
        end = a->offsets[i] + a->counts[i];
    }
    return check_that("adamw", end <= elements, "the parameters lie inside the flat index space");
}

Status adamw_update(Ctx *ctx, const Adamw *a) {
    TRY(check(ctx, a));
    if (a->count == 0) return OK;
    double elements = 0;
    for (int i = 0; i < a->count; i++) elements += (double)a->counts[i];
    double wide = (double)dtype_size(wide_dtype(ctx));
    double narrow = tensor_empty(a->master) ? 0 : (double)dtype_size(ctx->dtype);
    /* Per element: norm 2, clip 1, moments 3 and 4, corrections 2, root and quotient 3, decay 2, update 2.
     * Read: gradient, m, v, weight; written: m, v, weight, and the narrow copy. */
    Call call = {.operation = OP_ADAMW,
                 .pass = PASS_UPDATE,
                 .dtype = a->weight.dtype,
                 .contract = a,
                 .work = {.flops = 19 * elements, .bytes = elements * (7 * wide + narrow)},
                 .outputs = {{"weight", a->weight}, {"m", a->m}, {"v", a->v}}};
    return op_run(ctx, &call);
}
