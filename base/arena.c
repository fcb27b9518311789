#include "base/arena.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static bool grow(ArenaEntry **entries, int *room, int needed) {
    if (needed <= *room) return true;
    int larger = needed * 2 + 64;
    ArenaEntry *moved = memory_resize(*entries, (size_t)larger * sizeof **entries);
    if (!moved) return false;
    *entries = moved;
    *room = larger;
    return true;
}

/* What lies in the arena now is what lay there at its peak. */
static Status note_peak(Arena *arena) {
    arena->peak = arena->used;
    if (!grow(&arena->at_peak, &arena->at_peak_room, arena->count))
        return fail(ERROR_MEMORY, "out of host memory for the memory plan");
    if (arena->count) memcpy(arena->at_peak, arena->entries, (size_t)arena->count * sizeof *arena->entries);
    arena->at_peak_count = arena->count;
    return OK;
}

Status arena_take(Arena *arena, const char *name, Dtype dtype, Shape shape, Tensor *tensor) {
    int64_t count = shape_count(shape);
    size_t bytes, padded;
    size_t behind = (arena->canaries ? (size_t)ARENA_CANARY_BYTES : 0) + ARENA_ALIGNMENT - 1;
    if (count < 0 || __builtin_mul_overflow((size_t)count, dtype_size(dtype), &bytes) ||
        __builtin_add_overflow(bytes, behind, &padded))
        return fail(ERROR_MEMORY, "tensor %s is too large to address; use a smaller model, batch or sequence",
                    name);
    padded = padded / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    size_t end;
    if (__builtin_add_overflow(arena->used, padded, &end) || (arena->base && end > arena->capacity))
        return fail(ERROR_MEMORY, "arena %s has %zu bytes, and tensor %s needs %zu more than that",
                    arena->name, arena->capacity, name, end - arena->capacity);
    if (!grow(&arena->entries, &arena->room, arena->count + 1))
        return fail(ERROR_MEMORY, "out of host memory for the memory plan");

    ArenaEntry *entry = &arena->entries[arena->count++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->offset = arena->used;
    entry->bytes = bytes;
    *tensor = tensor_view((void *)((uintptr_t)arena->base + arena->used), dtype, shape);
    arena->used = end;
    if (end > arena->peak) TRY(note_peak(arena));
    return OK;
}

Status arena_restart_peak(Arena *arena) {
    return note_peak(arena);
}

ArenaMark arena_mark(const Arena *arena) {
    return (ArenaMark){arena->used, arena->count};
}

void arena_release(Arena *arena, ArenaMark mark) {
    arena->used = mark.used;
    arena->count = mark.count;
}

void arena_close(Arena *arena) {
    memory_free(arena->entries);
    memory_free(arena->at_peak);
    *arena = (Arena){.name = arena->name};
}
