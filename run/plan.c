#include "run/plan.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static const char *const arena_names[ARENA_COUNT] = {
    [ARENA_PARAMETERS] = "parameters",     [ARENA_GRADIENTS] = "gradients",
    [ARENA_OPTIMIZER] = "optimizer state", [ARENA_SAVED] = "saved activations",
    [ARENA_SCRATCH] = "scratch",
};

static double mebibytes(size_t bytes) {
    return (double)bytes / (1 << 20);
}

void ctx_open(Ctx *ctx, Device *device) {
    *ctx = (Ctx){.device = device, .layer = -1};
    for (int i = 0; i < ARENA_COUNT; i++) ctx->arenas[i].name = arena_names[i];
}

void ctx_close(Ctx *ctx) {
    for (int i = 0; i < ARENA_COUNT; i++) {
        if (ctx->arenas[i].base) ctx->device->release(ctx->device, ctx->arenas[i].base);
        arena_close(&ctx->arenas[i]);
    }
}

/* Restarts an arena's plan; returns the previous plan. */
static Arena begin_plan(Arena *arena, bool canaries) {
    Arena before = *arena;
    *arena = (Arena){.name = before.name, .canaries = canaries};
    return before;
}

/* Keeps the larger of two plans of one arena. */
static void keep_larger(Arena *arena, Arena before) {
    if (before.peak > arena->peak) {
        Arena smaller = *arena;
        *arena = before;
        before = smaller;
    }
    arena_close(&before);
    arena_release(arena, (ArenaMark){0, 0});
}

Status plan_measure(Ctx *ctx, Rehearsal rehearse, void *program, size_t *bytes) {
    Arena before[ARENA_COUNT];
    for (int i = 0; i < ARENA_COUNT; i++) before[i] = begin_plan(&ctx->arenas[i], ctx->check);
    ctx->measuring = true;
    Status status = rehearse(ctx, program);
    ctx->measuring = false;
    if (bytes) *bytes = plan_bytes(ctx);
    for (int i = 0; i < ARENA_COUNT; i++) keep_larger(&ctx->arenas[i], before[i]);
    return status;
}

void plan_forget(Ctx *ctx) {
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena before = begin_plan(&ctx->arenas[i], ctx->check);
        arena_close(&before);
    }
}

size_t plan_bytes(const Ctx *ctx) {
    size_t bytes = 0;
    for (int i = 0; i < ARENA_COUNT; i++) bytes += ctx->arenas[i].peak;
    return bytes;
}

Status plan_allocate(Ctx *ctx) {
    size_t available;
    TRY(ctx->device->available(ctx->device, &available));
    int largest = 0;
    for (int i = 1; i < ARENA_COUNT; i++)
        if (ctx->arenas[i].peak > ctx->arenas[largest].peak) largest = i;
    if (plan_bytes(ctx) > available) {
        plan_print(ctx, 3, stderr);
        return fail(
            ERROR_MEMORY,
            "this run needs %.0f MiB, most of it %s (%.0f MiB), but %s has %.0f MiB left; use a smaller "
            "--batch, --seq or model%s",
            mebibytes(plan_bytes(ctx)), arena_names[largest], mebibytes(ctx->arenas[largest].peak),
            ctx->device->name, mebibytes(available),
            ctx->arenas[ARENA_GRADIENTS].peak ? ", or train with --recompute" : "");
    }
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena *arena = &ctx->arenas[i];
        if (!arena->peak) continue;
        void *memory;
        TRY(ctx->device->allocate(ctx->device, arena->peak, &memory));
        arena->base = memory;
        arena->capacity = arena->peak;
    }
    return OK;
}

static int larger_first(const void *a, const void *b) {
    const ArenaEntry *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void print_largest(const Arena *arena, int largest, FILE *file) {
    size_t count = (size_t)arena->at_peak_count;
    OWNED ArenaEntry *sorted = memory_array(count, sizeof *sorted);
    memcpy(sorted, arena->at_peak, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, larger_first);
    for (size_t i = 0; i < count && i < (size_t)largest; i++)
        fprintf(file, "    %-34s %12.2f MiB\n", arena_name(&sorted[i]).text, mebibytes(sorted[i].bytes));
}

void plan_print(const Ctx *ctx, int largest, FILE *file) {
    fprintf(file, "memory plan\n");
    for (int i = 0; i < ARENA_COUNT; i++) {
        const Arena *arena = &ctx->arenas[i];
        if (!arena->peak) continue;
        fprintf(file, "  %-20s %5d tensors %12.2f MiB\n", arena->name, arena->at_peak_count,
                mebibytes(arena->peak));
        if (largest > 0) print_largest(arena, largest, file);
    }
    fprintf(file, "  %-33s %12.2f MiB\n", "total", mebibytes(plan_bytes(ctx)));
}
