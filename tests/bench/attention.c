/* attention: times bf16 attention on the GPU at one shape, forward and backward, from and to packed
 * projections, as a training step runs it. Usage: attention BATCH HEADS SEQ SIZE REPEATS [full]; causal,
 * unless full; prints one JSON line. A part of `make bench`. */
#include "base/bfloat16.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernels/attention/attention.h"
#include "run/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 5 };

typedef struct {
    int64_t batch, heads, seq, size, repeats;
    bool causal;
    Tensor packed, gradient; // (B, T, 3C): q, k, v, and their gradients
    Tensor dy;               // (B, T, C)
    AttentionForward forward;
    AttentionBackward backward;
} Bench;

static Status run(Ctx *ctx, void *program) {
    Bench *b = program;
    int64_t C = b->heads * b->size;
    Tensor *in = &b->packed, *out = &b->gradient;
    TRY(take(ctx, ARENA_SAVED, "q, k, v", BF16, shape3(b->batch, b->seq, 3 * C), in));
    TRY(take(ctx, ARENA_SAVED, "dq, dk, dv", BF16, shape3(b->batch, b->seq, 3 * C), out));
    TRY(take(ctx, ARENA_SAVED, "dy", BF16, shape3(b->batch, b->seq, C), &b->dy));
    b->forward = (AttentionForward){.q = tensor_columns(*in, 0, C),
                                    .k = tensor_columns(*in, C, C),
                                    .v = tensor_columns(*in, 2 * C, C),
                                    .heads = b->heads,
                                    .kv_heads = b->heads,
                                    .causal = b->causal,
                                    .scale = 1 / sqrt((double)b->size)};
    TRY(take(ctx, ARENA_SAVED, "y", BF16, shape3(b->batch, b->seq, C), &b->forward.y));
    b->backward = (AttentionBackward){.forward = &b->forward,
                                      .dy = b->dy,
                                      .dq = tensor_columns(*out, 0, C),
                                      .dk = tensor_columns(*out, C, C),
                                      .dv = tensor_columns(*out, 2 * C, C)};
    if (!ctx->measuring) return OK;
    TRY(attention_forward(ctx, &b->forward, ARENA_SAVED));
    return attention_backward(ctx, &b->backward);
}

/* Standard normal numbers; a GPU would run faster on zeros. */
static Status fill(Ctx *ctx, Tensor t, uint64_t stream) {
    int64_t count = tensor_count(t);
    float *normal = memory_array((size_t)count, sizeof *normal);
    uint16_t *half = memory_array((size_t)count, sizeof *half);
    Status status = normal && half ? OK : fail(ERROR_MEMORY, "out of host memory for the inputs");
    if (!status) random_normals(1, stream, 0, 1, normal, count);
    for (int64_t i = 0; i < count && !status; i++) half[i] = bfloat16_from_float(normal[i]);
    if (!status) status = ctx->device->upload(ctx->device, t.data, half, tensor_bytes(t));
    memory_free(normal);
    memory_free(half);
    return status;
}

/* Like captured steps, runs follow each other without waiting. */
static Status time_pass(Ctx *ctx, Bench *b, Pass pass, Event **events) {
    Device *device = ctx->device;
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    for (int64_t i = -WARMUP; i < b->repeats; i++) {
        if (i >= 0) TRY(device->event_record(device, events[i]));
        if (pass == PASS_FORWARD) {
            arena_release(&ctx->arenas[ARENA_SAVED], mark);
            TRY(attention_forward(ctx, &b->forward, ARENA_SAVED));
        } else {
            TRY(attention_backward(ctx, &b->backward));
        }
    }
    TRY(device->event_record(device, events[b->repeats]));
    return device->synchronize(device);
}

static Status print_times(Ctx *ctx, const Bench *b, const char *name, Event **events) {
    printf("\"%s\": [", name);
    for (int64_t i = 0; i < b->repeats; i++) {
        double ms;
        TRY(ctx->device->elapsed(ctx->device, events[i], events[i + 1], &ms));
        printf("%s%.5f", i ? ", " : "", ms);
    }
    printf("]");
    return OK;
}

static Status measure(Ctx *ctx, Bench *b, Event **events) {
    ctx->dtype = BF16;
    ctx->fuses = 1u << OP_ATTENTION;
    ctx->training = true;
    TRY(plan_measure(ctx, run, b, NULL));
    TRY(plan_allocate(ctx));
    TRY(run(ctx, b));
    TRY(fill(ctx, b->packed, 0));
    TRY(fill(ctx, b->dy, 1));
    for (int64_t i = 0; i <= b->repeats; i++) TRY(ctx->device->event_create(ctx->device, &events[i]));
    printf("{");
    TRY(time_pass(ctx, b, PASS_FORWARD, events));
    TRY(print_times(ctx, b, "forward", events));
    printf(", ");
    TRY(time_pass(ctx, b, PASS_BACKWARD, events));
    TRY(print_times(ctx, b, "backward", events));
    printf("}\n");
    return OK;
}

static Status bench(int argc, char **argv) {
    bool full = argc == 7 && strcmp(argv[6], "full") == 0;
    if (argc != 6 && !full) return fail(ERROR_USAGE, "usage: attention BATCH HEADS SEQ SIZE REPEATS [full]");
    int64_t n[5];
    for (int i = 0; i < 5; i++) {
        n[i] = strtol(argv[i + 1], NULL, 10);
        if (n[i] < 1 || n[i] > 1 << 20)
            return fail(ERROR_USAGE, "%s: expected a number from 1 to 1048576", argv[i + 1]);
    }
    Bench b = {.batch = n[0], .heads = n[1], .seq = n[2], .size = n[3], .repeats = n[4], .causal = !full};
    Event **events = memory_array((size_t)b.repeats + 1, sizeof *events);
    if (!events) return fail(ERROR_MEMORY, "out of host memory for %" PRId64 " times", b.repeats);
    Device *device;
    Ctx ctx;
    TRY(device_open("cuda", 0, &device));
    ctx_open(&ctx, device);
    Status status = measure(&ctx, &b, events);
    for (int64_t i = 0; i <= b.repeats; i++)
        if (events[i]) device->event_free(device, events[i]);
    memory_free(events);
    ctx_close(&ctx);
    device->close(device);
    return status;
}

int main(int argc, char **argv) {
    return status_exit(bench(argc, argv), "attention");
}
