#include "model/scales.h"

#include "base/float8.h"
#include "base/memory.h"
#include "model/parameter_values.h"

bool scale_valid(float scale) {
    int exponent;
    return scale > 0 && isfinite(scale) && frexpf(scale, &exponent) == 0.5F;
}

static Status take_weight(Ctx *ctx, Parameter *p) {
    Cast c = {.x = p->weight};
    if (tensor_rows(c.x) % 16 != 0 || tensor_width(c.x) % 16 != 0) return OK;
    TRY(take(ctx, ARENA_PARAMETERS, "weights, 8 bits", E4M3, c.x.shape, &c.y));
    TRY(cast_take_transpose(ctx, ARENA_PARAMETERS, &c));
    p->bytes = c;
    return OK;
}

typedef Status (*OnWeight)(Ctx *ctx, Parameter *p);

/* The blocks' matrices that a single layer reads unchanged. */
static Status each_weight(Ctx *ctx, const StackParameters *s, int64_t layers, int first_layer, OnWeight f) {
    for (int64_t i = 0; i < layers; i++) {
        BlockParameters *b = &s->blocks[i];
        Parameter *const weights[] = {&b->qkv.weight, &b->projection.weight, &b->expand.weight,
                                      &b->contract.weight};
        ctx->layer = first_layer + (int)i;
        for (int w = 0; w < 4; w++) TRY(f(ctx, weights[w]));
    }
    ctx->layer = -1;
    return OK;
}

static Status each(Ctx *ctx, Parameters *p, OnWeight f) {
    const int64_t encoder = p->config.encoder_layers;
    TRY(each_weight(ctx, &p->encoder, encoder, 0, f));
    return each_weight(ctx, &p->stack, p->config.layers, (int)encoder, f);
}

Status scales_take_weights(Ctx *ctx, Parameters *p) {
    if (!(ctx->fuses & FUSE_FP8) || !linear_multiplies_fp8(ctx)) return OK;
    return each(ctx, p, take_weight);
}

static Status cast_weight(Ctx *ctx, Parameter *p) {
    const LinearForward l = {.weight = p->weight, .scales = p->scales, .seen = p->seen};
    return tensor_empty(p->bytes.y) ? OK : linear_cast_weight(ctx, &l, &p->bytes);
}

bool scales_casts_weights(const Ctx *ctx, const Parameters *p) {
    for (int i = 0; i < p->count && ctx->fuses & FUSE_FP8; i++)
        if (!tensor_empty(p->info[i].parameter->bytes.y)) return true;
    return false;
}

Status scales_cast_weights(Ctx *ctx, Parameters *p) {
    if (!scales_casts_weights(ctx, p)) return OK;
    ctx->call = "weights in 8 bits";
    ctx->training = true;
    return each(ctx, p, cast_weight);
}

static float renewed(float scale, float mean) {
    const float most = SCALE_MARGIN * mean;
    if (most > 0 && isfinite(most)) return e4m3_scale(most);
    return scale > 0 ? scale : 1;
}

Status scales_renew(Ctx *ctx, Parameters *p, int64_t micro_batches, int64_t *clipped) {
    const int64_t count = tensor_count(p->scales);
    OWNED float *scales = memory_array((size_t)count, sizeof *scales);
    OWNED float *seen = memory_array((size_t)(count * CAST_SEEN), sizeof *seen);
    TRY(values_read(ctx, p->scales, 0, count, scales));
    TRY(values_read(ctx, parameters_seen(p), 0, count * CAST_SEEN, seen));
    for (int64_t i = 0; i < count; i++) {
        const float *of = seen + i * CAST_SEEN;
        const bool once =
            i % OPERANDS == OPERAND_WEIGHT && !tensor_empty(p->info[i / OPERANDS].parameter->bytes.y);
        scales[i] = renewed(scales[i], of[0] / (once ? 1 : (float)micro_batches));
        *clipped += (int64_t)of[1];
    }
    ctx->scaled = true;
    return values_write(ctx, p->scales, 0, count, scales);
}
