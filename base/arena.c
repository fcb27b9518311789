#include "base/arena.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

void arena_restart_peak(Arena *arena) {
    arena->peak = arena->used;
    arena->at_peak = memory_grow(arena->at_peak, &arena->at_peak_room, arena->count, sizeof *arena->at_peak);
    if (arena->count) memcpy(arena->at_peak, arena->entries, (size_t)arena->count * sizeof *arena->entries);
    arena->at_peak_count = arena->count;
}

ArenaName arena_name(const ArenaEntry *entry) {
    ArenaName name;
    if (entry->block < 0)
        snprintf(name.text, sizeof name.text, "%s", entry->name);
    else
        snprintf(name.text, sizeof name.text, "block.%d.%s", entry->block, entry->name);
    return name;
}

Status arena_take(Arena *arena, int kind, int block, const char *name, Dtype dtype, Shape shape,
                  Tensor *tensor) {
    int64_t count = shape_count(shape);
    size_t bytes = 0, padded;
    ArenaEntry entry = {.block = block, .offset = arena->used, .kind = kind};
    memcpy(entry.name, name, strnlen(name, sizeof entry.name - 1));
    size_t behind = (arena->canaries ? (size_t)ARENA_CANARY_BYTES : 0) + ARENA_ALIGNMENT - 1;
    if (count < 0 || __builtin_mul_overflow((size_t)count, dtype_bytes(dtype, 2), &bytes) ||
        __builtin_add_overflow(bytes /= 2, behind, &padded))
        return fail(ERROR_MEMORY, "tensor %s is too large to address; use a smaller model, batch or sequence",
                    arena_name(&entry).text);
    padded = padded / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    size_t end;
    if (__builtin_add_overflow(arena->used, padded, &end) || (arena->base && end > arena->capacity))
        return fail(ERROR_MEMORY, "the %s arena has %zu bytes; tensor %s needs %zu more than that",
                    arena->name, arena->capacity, arena_name(&entry).text, end - arena->capacity);
    arena->entries = memory_grow(arena->entries, &arena->room, arena->count + 1, sizeof *arena->entries);
    entry.bytes = bytes;
    arena->entries[arena->count++] = entry;
    *tensor = tensor_view((void *)((uintptr_t)arena->base + arena->used), dtype, shape);
    arena->used = end;
    if (end > arena->peak) arena_restart_peak(arena);
    return OK;
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
