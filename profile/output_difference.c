#include "base/bfloat16.h"
#include "base/memory.h"
#include "kernels/guard.h"
#include "profile/compare.h"

#include <math.h>
#include <string.h>

typedef struct {
    void *bytes;
    Dtype dtype;
    int64_t count;
} Kept;

struct Capture {
    Kept *kept;
    int64_t count, room, next; // next: where the second run is
    bool second;
    Difference *differences;
    int difference_count, difference_room;
};

Status capture_open(Capture **capture) {
    *capture = memory_allocate(sizeof **capture);
    return *capture ? OK : fail(ERROR_MEMORY, "out of host memory to compare the paths");
}

void capture_close(Capture *c) {
    if (!c) return;
    for (int64_t i = 0; i < c->count; i++) memory_free(c->kept[i].bytes);
    memory_free(c->kept);
    memory_free(c->differences);
    memory_free(c);
}

void capture_second_run(Capture *c) {
    c->second = true;
}

void capture_take(Capture *c, Difference **differences, int *count) {
    *differences = c->differences;
    *count = c->difference_count;
    c->differences = NULL;
    c->difference_count = c->difference_room = 0;
}

static double value_at(const Kept *k, int64_t i) {
    if (k->dtype == F32) return ((const float *)k->bytes)[i];
    if (k->dtype == BF16) return bfloat16_to_float(((const uint16_t *)k->bytes)[i]);
    if (k->dtype == F64) return ((const double *)k->bytes)[i];
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

static Status note(Capture *c, const Ctx *ctx, const Call *call, double difference) {
    for (int i = 0; i < c->difference_count; i++) {
        Difference *d = &c->differences[i];
        if (d->operation == call->operation && d->pass == call->pass && strcmp(d->call, ctx->call) == 0) {
            if (!(difference <= d->difference)) d->difference = difference; // a NaN stays visible
            return OK;
        }
    }
    if (c->difference_count == c->difference_room) {
        int room = c->difference_room * 2 + 32;
        Difference *moved = memory_resize(c->differences, (size_t)room * sizeof *moved);
        if (!moved) return fail(ERROR_MEMORY, "out of host memory to compare the paths");
        c->differences = moved;
        c->difference_room = room;
    }
    c->differences[c->difference_count++] = (Difference){ctx->call, call->operation, call->pass, difference};
    return OK;
}

static Status keep(Capture *c, Kept kept) {
    if (c->count == c->room) {
        int64_t room = c->room * 2 + 256;
        Kept *moved = memory_resize(c->kept, (size_t)room * sizeof *moved);
        if (!moved) {
            memory_free(kept.bytes);
            return fail(ERROR_MEMORY, "out of host memory to compare the paths");
        }
        c->kept = moved;
        c->room = room;
    }
    c->kept[c->count++] = kept;
    return OK;
}

static Status compare_with_first(Capture *c, const Ctx *ctx, const Call *call, Kept second) {
    if (c->next >= c->count || c->kept[c->next].count != second.count) {
        memory_free(second.bytes);
        return fail(ERROR_INTERNAL, "the two paths part at %s: their calls do not match", ctx->call);
    }
    double difference = relative_difference(&c->kept[c->next], &second);
    memory_free(second.bytes);
    memory_free(c->kept[c->next].bytes);
    c->kept[c->next++].bytes = NULL;
    return note(c, ctx, call, difference);
}

Status capture_observe(Ctx *ctx, const Call *call) {
    Capture *c = ctx->observer;
    enum { OUTPUTS = sizeof call->outputs / sizeof *call->outputs };
    for (int i = 0; i < OUTPUTS && !tensor_empty(call->outputs[i].tensor); i++) {
        Tensor t = call->outputs[i].tensor;
        Kept kept = {.dtype = t.dtype, .count = tensor_count(t)};
        TRY(guard_download(ctx, t, &kept.bytes));
        TRY(c->second ? compare_with_first(c, ctx, call, kept) : keep(c, kept));
    }
    return OK;
}
