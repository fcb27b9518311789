#include "model/scales.h"

#include "base/float8.h"
#include "base/memory.h"
#include "model/parameter_values.h"

bool scale_valid(float scale) {
    int exponent;
    return scale > 0 && isfinite(scale) && frexpf(scale, &exponent) == 0.5F;
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
        scales[i] = renewed(scales[i], of[0] / (float)micro_batches);
        *clipped += (int64_t)of[1];
    }
    ctx->scaled = true;
    return values_write(ctx, p->scales, 0, count, scales);
}
