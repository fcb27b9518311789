#include "profile/output_difference.h"

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/memory.h"
#include "kernels/guard.h"

#include <math.h>
#include <string.h>

typedef struct KeptOutput {
    void *bytes;
    Dtype dtype;
    int64_t count;
} Kept;

void output_difference_close(OutputDifference *o) {
    for (int64_t i = 0; i < o->kept_count; i++) memory_free(o->kept[i].bytes);
    memory_free(o->kept);
    memory_free(o->differences);
}

static double value_at(const Kept *k, int64_t i) {
    if (k->dtype == F32) return ((const float *)k->bytes)[i];
    if (k->dtype == BF16) return bfloat16_to_float(((const uint16_t *)k->bytes)[i]);
    if (k->dtype == F64) return ((const double *)k->bytes)[i];
    if (k->dtype == E4M3) return e4m3_to_float(((const uint8_t *)k->bytes)[i]);
    return ((const int32_t *)k->bytes)[i];
}

static double relative_difference(const Kept *a, const Kept *b) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < a->count; i++) {
        double x = value_at(a, i), d = x - value_at(b, i);
        difference += d * d;
        norm += x * x;
    }
    if (difference == 0) return 0;
    return norm > 0 ? sqrt(difference / norm) : INFINITY;
}

static void note(OutputDifference *o, const Ctx *ctx, const Call *call, double difference) {
    Difference *known = (Difference *)difference_find(o->differences, o->difference_count, ctx->call,
                                                      operation_name(call->operation), call->pass);
    if (known) {
        if (!(difference <= known->difference)) known->difference = difference; // so that a NaN stays visible
        return;
    }
    o->differences =
        memory_grow(o->differences, &o->difference_room, o->difference_count + 1, sizeof *o->differences);
    o->differences[o->difference_count++] =
        (Difference){ctx->call, operation_name(call->operation), call->pass, difference};
}

static void keep(OutputDifference *o, Kept kept) {
    o->kept = memory_grow(o->kept, &o->kept_room, o->kept_count + 1, sizeof *o->kept);
    o->kept[o->kept_count++] = kept;
}

static Status compare_with_first(OutputDifference *o, const Ctx *ctx, const Call *call, Kept second) {
    bool matches = o->next < o->kept_count && o->kept[o->next].count == second.count;
    if (matches) {
        Kept *first = &o->kept[o->next++];
        note(o, ctx, call, relative_difference(first, &second));
        memory_free(first->bytes);
        first->bytes = NULL;
    }
    memory_free(second.bytes);
    if (matches) return OK;
    return fail(ERROR_INTERNAL, "the two paths diverge at %s: their calls do not match", ctx->call);
}

Status output_difference_observe(Ctx *ctx, const Call *call) {
    OutputDifference *o = ctx->observer;
    enum { OUTPUTS = sizeof call->outputs / sizeof *call->outputs };
    for (int i = 0; i < OUTPUTS && !tensor_empty(call->outputs[i].tensor); i++) {
        Tensor t = call->outputs[i].tensor;
        Kept kept = {.dtype = t.dtype, .count = tensor_count(t)};
        TRY(guard_download(ctx, t, &kept.bytes));
        if (o->second)
            TRY(compare_with_first(o, ctx, call, kept));
        else
            keep(o, kept);
    }
    return OK;
}
