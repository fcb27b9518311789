#include "optim/adamw.h"

#include "base/checked.h"
#include "kernels/check.h"

int64_t adamw_blocks(int64_t first, int64_t count) {
    return pieces(first + count, ADAMW_BLOCK) - first / ADAMW_BLOCK;
}

int64_t adamw_words(int64_t elements) {
    return pieces(elements, ADAMW_WORD);
}

void adamw_mark(const AdamwParameter *parameters, int count, int32_t *words) {
    for (int i = 0; i < count; i++) {
        const AdamwParameter *p = &parameters[i];
        for (int64_t unit = p->first / ADAMW_UNIT; p->decays && unit * ADAMW_UNIT < p->first + p->count;
             unit++)
            words[unit / 32] |= (int32_t)(1u << unit % 32);
    }
}

/* The part of the range that lies in [first, last) of the flat space. */
static AdamwParameter part(const Adamw *a, int64_t first, int64_t last) {
    int64_t end = a->first + tensor_count(a->gradient);
    first = first > a->first ? first : a->first;
    last = last < end ? last : end;
    return (AdamwParameter){.first = first - a->first, .count = last > first ? last - first : 0};
}

AdamwParameter adamw_block(const Adamw *a, int64_t b) {
    int64_t block = a->first / ADAMW_BLOCK + b;
    return part(a, block * ADAMW_BLOCK, (block + 1) * ADAMW_BLOCK);
}

AdamwParameter adamw_part(const Adamw *a, int i) {
    const AdamwParameter *p = &a->parameters[i];
    AdamwParameter inside = part(a, p->first, p->first + p->count);
    inside.decays = p->decays;
    return inside;
}

static Status check_range(const Adamw *a, Dtype wide) {
    TRY(check_present("adamw", "gradient", a->gradient));
    int64_t elements = tensor_count(a->gradient);
    TRY(check_dense("adamw", "gradient", a->gradient, wide, 1, elements));
    return check_that("adamw", a->first >= 0 && a->first % ADAMW_UNIT == 0 && elements % ADAMW_UNIT == 0,
                      "the range begins and ends at multiples of 64 elements");
}

static Status check_apply(const Ctx *ctx, const Adamw *a, Dtype wide) {
    int64_t elements = tensor_count(a->gradient);
    TRY(check_dense("adamw", "weight", a->weight, ctx->dtype, 1, elements));
    TRY(check_that("adamw", tensor_empty(a->master) == (ctx->dtype == wide),
                   "master is there exactly where the weights are narrower than their gradients"));
    if (!tensor_empty(a->master)) TRY(check_dense("adamw", "master", a->master, wide, 1, elements));
    Dtype moments = a->m.dtype == BF16 ? BF16 : wide;
    TRY(check_dense("adamw", "m", a->m, moments, 1, elements));
    TRY(check_dense("adamw", "v", a->v, moments, 1, elements));
    TRY(check_present("adamw", "decays", a->decays));
    int64_t words = tensor_count(a->decays), end = 0;
    TRY(check_dense("adamw", "decays", a->decays, I32, 1, words));
    TRY(check_that("adamw", a->first + elements <= words * ADAMW_WORD,
                   "decays has a mark for all the range"));
    for (int i = 0; i < a->count; i++) {
        const AdamwParameter *p = &a->parameters[i];
        TRY(check_that("adamw", p->first >= end && p->first % ADAMW_UNIT == 0 && p->count >= 0,
                       "the parameters lie in order, at multiples of 64 elements, and do not overlap"));
        end = p->first + p->count;
    }
    return check_that("adamw", end <= words * ADAMW_WORD, "the parameters lie inside the flat space");
}

static Status check(const Ctx *ctx, const Adamw *a) {
    Dtype wide = wide_dtype(ctx);
    TRY(check_that("adamw", a->steps > 0 && a->steps <= ADAMW_WHOLE, "one of the three steps is taken"));
    TRY(check_dense("adamw", "state", a->state, wide, 1, ADAMW_STATE_SIZE));
    if (a->steps & (ADAMW_SUM | ADAMW_APPLY)) TRY(check_range(a, wide));
    if (a->steps & (ADAMW_SUM | ADAMW_CLIP)) {
        TRY(check_present("adamw", "squares", a->squares));
        bool all = !(a->steps & ADAMW_SUM);
        int64_t blocks = all ? tensor_count(a->squares) : adamw_blocks(a->first, tensor_count(a->gradient));
        TRY(check_dense("adamw", "squares", a->squares, F64, 1, blocks));
    }
    if (a->steps & ADAMW_CLIP) TRY(check_dense("adamw", "loss", a->loss, wide, 1, 1));
    return a->steps & ADAMW_APPLY ? check_apply(ctx, a, wide) : OK;
}

Status adamw_update(Ctx *ctx, const Adamw *a) {
    TRY(check(ctx, a));
    bool sum = a->steps & ADAMW_SUM, apply = a->steps & ADAMW_APPLY;
    double elements = 0, wide = (double)dtype_size(wide_dtype(ctx));
    double narrow = tensor_empty(a->master) ? 0 : (double)dtype_size(ctx->dtype);
    for (int i = 0; (sum || apply) && i < a->count; i++) elements += (double)adamw_part(a, i).count;
    /* Per element: norm 2, clip 1, moments 3 and 4, corrections 2, root and quotient 3, decay 2, update 2.
     * Read: gradient, m, v, weight; written: m, v, weight, and the narrow copy. */
    double moments = 4 * (double)dtype_size(a->m.dtype);
    Call call = {.operation = OP_ADAMW,
                 .pass = PASS_UPDATE,
                 .dtype = a->weight.dtype,
                 .contract = a,
                 .inputs = {a->weight, a->gradient, a->m, a->v},
                 .work = {.flops = elements * (2 * sum + 17 * apply),
                          .bytes = elements * (apply ? 3 * wide + moments + narrow : wide)}};
    if (apply) {
        call.outputs[0] = (Output){"weight", a->weight};
        call.outputs[1] = (Output){"m", a->m};
        call.outputs[2] = (Output){"v", a->v};
    }
    return op_run(ctx, &call);
}
