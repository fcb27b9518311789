/* arena: tensors laid out one after another in a block that the caller allocated. While `base` is NULL an
 * arena only counts; a first run of the program with nothing computed thus yields the memory plan. */
#pragma once

#include "base/status.h"
#include "base/tensor.h"

__BEGIN_DECLS

enum { ARENA_ALIGNMENT = 256, ARENA_CANARY_BYTES = 256, ARENA_CANARY_BYTE = 0xC5, ARENA_NAME_BYTES = 48 };

typedef struct {
    char name[ARENA_NAME_BYTES]; // "attention.lse"
    int block;                   // of the model, from 0; -1 outside the blocks
    size_t offset, bytes;
    int kind; // ArenaKind of kernels/ctx.h
} ArenaEntry;

typedef struct {
    const char *name;    // "saved activations"
    char *base;          // NULL: counting only
    size_t capacity;     // bytes at base
    size_t used, peak;   // bytes, alignment and canaries included
    bool canaries;       // write ARENA_CANARY_BYTES after every tensor
    ArenaEntry *entries; // the tensors in [0, used), in order
    int count;
    int64_t room;
    ArenaEntry *at_peak; // the tensors when `used` was largest
    int at_peak_count;
    int64_t at_peak_room;
} Arena;

typedef struct {
    size_t used;
    int count;
} ArenaMark;

/* The name with its block: "block.3.attention.lse". Composing it for every tensor taken would cost 4% of a
 * decoded token on a CPU, so it is composed for a reader. */
typedef struct {
    char text[ARENA_NAME_BYTES + 20];
} ArenaName;
ArenaName arena_name(const ArenaEntry *entry);

/* Takes the next tensor, for a block of the model or, with -1, outside the blocks. Returns ERROR_MEMORY if
 * the capacity does not suffice or the size overflows. The memory is not cleared. While counting, the
 * tensor's data is an offset that must not be dereferenced. */
CHECKED Status arena_take(Arena *arena, int kind, int block, const char *name, Dtype dtype, Shape shape,
                          Tensor *tensor);

/* Resets the peak to the current contents. */
void arena_restart_peak(Arena *arena);

/* Releases everything taken since the mark. */
ArenaMark arena_mark(const Arena *arena);
void arena_release(Arena *arena, ArenaMark mark);

/* Frees the bookkeeping. The caller still owns the memory at base. */
void arena_close(Arena *arena);

__END_DECLS
