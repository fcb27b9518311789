#include "profile/output_difference.h"

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/memory.h"
#include "kernels/guard.h"

#include <math.h>
#include <string.h>

typedef struct {
    const char *name;
    void *bytes;
    Dtype dtype;
    int64_t count;
} Kept;

typedef struct KeptCall {
    const char *call;
    Operation operation;
    Pass pass;
    Kept outputs[CALL_OUTPUTS];
} KeptCall;

static void forget(KeptCall *c) {
    for (int i = 0; i < CALL_OUTPUTS; i++) {
        memory_free(c->outputs[i].bytes);
        c->outputs[i] = (Kept){0};
    }
}

void output_difference_close(OutputDifference *o) {
    for (int64_t i = 0; i < o->kept_count; i++) forget(&o->kept[i]);
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

static void note(OutputDifference *o, const KeptCall *c, double difference) {
    const char *operation = operation_name(c->operation);
    Difference *known =
        (Difference *)difference_find(o->differences, o->difference_count, c->call, operation, c->pass);
    if (known) {
        if (!(difference <= known->difference)) known->difference = difference; // so that NaN stays
        return;
    }
    o->differences =
        memory_grow(o->differences, &o->difference_room, o->difference_count + 1, sizeof *o->differences);
    o->differences[o->difference_count++] = (Difference){c->call, operation, c->pass, difference};
}

static bool same_call(const KeptCall *a, const KeptCall *b) {
    return a->operation == b->operation && a->pass == b->pass && strcmp(a->call, b->call) == 0;
}

static void compare_outputs(OutputDifference *o, const KeptCall *first, const KeptCall *second) {
    for (int i = 0; i < CALL_OUTPUTS && second->outputs[i].name; i++)
        for (int k = 0; k < CALL_OUTPUTS && first->outputs[k].name; k++) {
            const Kept *a = &first->outputs[k], *b = &second->outputs[i];
            if (strcmp(a->name, b->name) == 0 && a->count == b->count)
                note(o, first, relative_difference(a, b));
        }
}

static Status compare_with_first(OutputDifference *o, const KeptCall *second) {
    KeptCall *first = o->next < o->kept_count ? &o->kept[o->next] : NULL;
    if (first && same_call(first, second)) {
        o->next++;
        compare_outputs(o, first, second);
        forget(first);
        return OK;
    }
    for (int64_t i = 0; i < o->kept_count; i++)
        if (same_call(&o->kept[i], second))
            return fail(ERROR_INTERNAL, "the two paths diverge at %s: their calls do not match",
                        second->call);
    return OK;
}

static Status download(Ctx *ctx, const Call *call, KeptCall *kept) {
    for (int i = 0; i < CALL_OUTPUTS && !tensor_empty(call->outputs[i].tensor); i++) {
        const Tensor t = call->outputs[i].tensor;
        Kept *output = &kept->outputs[i];
        *output = (Kept){.name = call->outputs[i].name, .dtype = t.dtype, .count = tensor_count(t)};
        TRY(guard_download(ctx, t, &output->bytes));
    }
    return OK;
}

Status output_difference_observe(Ctx *ctx, const Call *call) {
    OutputDifference *o = ctx->observer;
    KeptCall kept = {.call = ctx->call ? ctx->call : operation_name(call->operation),
                     .operation = call->operation,
                     .pass = call->pass};
    Status status = download(ctx, call, &kept);
    if (!status && !o->second) {
        o->kept = memory_grow(o->kept, &o->kept_room, o->kept_count + 1, sizeof *o->kept);
        o->kept[o->kept_count++] = kept;
        return OK;
    }
    if (!status) status = compare_with_first(o, &kept);
    forget(&kept);
    return status;
}
