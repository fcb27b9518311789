#include "profile/collect_internal.h"

#include <string.h>

static const MemoryClass classes[ARENA_COUNT] = {
    [ARENA_PARAMETERS] = MEMORY_PARAMETERS, [ARENA_GRADIENTS] = MEMORY_GRADIENTS,
    [ARENA_OPTIMIZER] = MEMORY_OPTIMIZER,   [ARENA_SAVED] = MEMORY_SAVED,
    [ARENA_SCRATCH] = MEMORY_SCRATCH,
};

/* Keys and values of generation lie among the saved activations (model/transformer.c): their names tell. */
static bool is_cache(const ArenaEntry *entry) {
    return strncmp(entry->name, "cache.", strlen("cache.")) == 0;
}

static int64_t cache_bytes(const Arena *saved, size_t used) {
    size_t bytes = 0;
    for (int i = 0; i < saved->count && saved->entries[i].offset + saved->entries[i].bytes <= used; i++)
        if (is_cache(&saved->entries[i])) bytes += saved->entries[i].bytes;
    return (int64_t)bytes;
}

Status collect_memory(Making *m, const Arena arenas[ARENA_COUNT]) {
    int64_t count, cached = 0;
    const RecordMemory *memory = recorder_memory(m->collector->recorder, &count);
    size_t workspace = m->collector->device->workspace;
    if (workspace) {
        TRY(trace_add_memory(m->trace, (TraceMemory){0, MEMORY_WORKSPACE, (int64_t)workspace, -1}));
        TRY(trace_add_tensor(m->trace, (TraceTensor){trace_name(m->trace, "workspace of libraries"),
                                                     MEMORY_WORKSPACE, (int64_t)workspace}));
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at = collect_ns(memory[i].at) - m->origin;
        TraceMemory sample = {at < 0 ? 0 : at, classes[memory[i].arena], (int64_t)memory[i].used,
                              memory[i].record < 0 ? -1 : m->event[memory[i].record]};
        int64_t cache = cached;
        if (memory[i].arena == ARENA_SAVED) cache = cache_bytes(&arenas[ARENA_SAVED], memory[i].used);
        if (memory[i].arena == ARENA_SAVED) sample.bytes -= cache;
        TRY(trace_add_memory(m->trace, sample));
        if (cache == cached) continue;
        TRY(trace_add_memory(m->trace, (TraceMemory){sample.at, MEMORY_CACHE, cache, sample.event}));
        cached = cache;
    }
    for (int arena = 0; arena < ARENA_COUNT; arena++)
        for (int i = 0; i < arenas[arena].at_peak_count; i++) {
            const ArenaEntry *entry = &arenas[arena].at_peak[i];
            MemoryClass class_ = is_cache(entry) ? MEMORY_CACHE : classes[arena];
            TraceTensor tensor = {trace_name(m->trace, entry->name), class_, (int64_t)entry->bytes};
            TRY(trace_add_tensor(m->trace, tensor));
        }
    return OK;
}
