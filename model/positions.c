#include "model/positions.h"

#include "base/memory.h"
#include "model/parameter_values.h"

#include <math.h>

/* PE(t, 2i) = sin(t / 10000^(2i/C)), PE(t, 2i + 1) = cos of the same: Vaswani et al. 2017, section 3.5. */
static double sinusoid(const Config *c, int64_t k) {
    int64_t t = k / c->width, i = k % c->width;
    double angle = (double)t / pow(10000, (double)(i / 2 * 2) / (double)c->width);
    return i % 2 ? cos(angle) : sin(angle);
}

/* Llama 3.1's: pairs that turn often within the original context keep their frequency, those that turn seldom
 * are slowed by the factor, and between the two it goes over in a straight line.
 *
 *     turns  = context * f / (2 pi)
 *     kept   = (turns - low) / (high - low), from 0 to 1
 *     scaled = kept * f + (1 - kept) * f / factor */
static double llama3_frequency(const Rotary *r, double f) {
    const double two_pi = 6.283185307179586;
    double turns = (double)r->context * f / two_pi;
    double kept = fmin(fmax((turns - r->low) / (r->high - r->low), 0), 1);
    return kept * f + (1 - kept) * f / r->factor;
}

double rotary_frequency(const Config *c, int64_t i) {
    const Rotary *r = &c->rotary;
    double f = pow(r->theta, -(double)(2 * i) / (double)c->head_size);
    switch (r->scaling) {
    case ROTARY_PLAIN: return f;
    case ROTARY_LINEAR: return f / r->factor; // Chen et al. 2023, eq. 4
    case ROTARY_LLAMA3: return llama3_frequency(r, f);
    }
    return f;
}

static Status fill(Ctx *ctx, const Config *c, double (*value)(const Config *, int64_t), Tensor table) {
    int64_t count = tensor_count(table);
    bool wide = table.dtype == F64;
    void *values = memory_array((size_t)count, wide ? sizeof(double) : sizeof(float));
    for (int64_t k = 0; k < count; k++) {
        if (wide)
            ((double *)values)[k] = value(c, k);
        else
            ((float *)values)[k] = (float)value(c, k);
    }
    Status status = wide ? ctx->device->upload(ctx->device, table.data, values, tensor_bytes(table))
                         : values_write(ctx, table, 0, count, values);
    memory_free(values);
    return status;
}

Status positions_take(Ctx *ctx, const Config *c, PositionTables *t) {
    *t = (PositionTables){0};
    if (c->positions == POSITIONS_SINUSOID) {
        TRY(take(ctx, ARENA_PARAMETERS, "sinusoids", ctx->dtype, shape2(c->context, c->width),
                 &t->sinusoids));
        return ctx->measuring ? OK : fill(ctx, c, sinusoid, t->sinusoids);
    }
    if (c->positions != POSITIONS_ROTARY) return OK;
    Shape pairs = shape1(c->head_size / 2);
    TRY(take(ctx, ARENA_PARAMETERS, "rotary frequencies", wide_dtype(ctx), pairs, &t->frequencies));
    return ctx->measuring ? OK : fill(ctx, c, rotary_frequency, t->frequencies);
}
