#include "kernels/accumulate/accumulate.h"

#include "kernels/check.h"

bool accumulates_in_products(const Ctx *ctx) {
    return ctx->device->backend == BACKEND_CUDA && op_form(ctx, OP_ACCUMULATE, wide_dtype(ctx)) == FORM_FUSED;
}

Status accumulate(Ctx *ctx, const Accumulate *a) {
    Dtype wide = wide_dtype(ctx);
    TRY(check_present("accumulate", "x", a->x));
    TRY(check_dense("accumulate", "x", a->x, wide, 1, tensor_count(a->x)));
    TRY(check_dense("accumulate", "sum", a->sum, wide, 1, tensor_count(a->x)));
    double elements = (double)tensor_count(a->x);
    Call call = {.operation = OP_ACCUMULATE,
                 .pass = PASS_BACKWARD,
                 .dtype = wide,
                 .contract = a,
                 .inputs = {a->x, a->sum},
                 .work = {.flops = elements, .bytes = 3 * elements * (double)dtype_size(wide)},
                 .outputs = {{"sum", a->sum}}};
    return op_run(ctx, &call);
}
