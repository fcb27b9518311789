/* memory: the only place of host allocations. Tensors come from arenas (arena.h). If host memory runs out
 * the program ends with exit code 5; only memory_reserve() returns NULL. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

/* Zeroed memory, 64-byte aligned. memory_free(NULL) does nothing. */
void *memory_allocate(size_t bytes);
void memory_free(void *pointer);

/* Frees a local variable's memory at the end of its scope, on every return path:
 *
 *     OWNED char *json = NULL;
 *
 * A function that returns the memory sets the variable to NULL first. CLOSED_BY(close) calls
 * close(&variable). */
#define OWNED            CLOSED_BY(memory_release)
#define CLOSED_BY(close) __attribute__((cleanup(close)))
void memory_release(void *variable); // the address of a pointer returned by one of these functions

/* Defines release(Type **) for CLOSED_BY, which closes a local pointer's object unless the pointer is
 * NULL. */
#define CLOSER(release, Type, close)                                                                         \
    static inline void release(Type **variable) {                                                            \
        if (*variable) close(*variable);                                                                     \
    }

/* Memory for arenas: not zeroed, 64-byte aligned. Returns NULL on failure. */
void *memory_reserve(size_t bytes);

/* `count` zeroed elements of `size` bytes. */
void *memory_array(size_t count, size_t size);

/* Resizes to `bytes` and keeps the contents. Added bytes are not zeroed. */
void *memory_resize(void *pointer, size_t bytes);

/* Ensures capacity for `count` elements of `size` bytes, at amortized constant cost per element. *room is
 * the capacity, initially 0 with a NULL array:
 *
 *     list->items = memory_grow(list->items, &list->room, list->count + 1, sizeof *list->items); */
void *memory_grow(void *array, int64_t *room, int64_t count, size_t size);

/* The most memory of the host that this process has held at once, in bytes: everything, libraries and mapped
 * files included. 0: not known. */
int64_t memory_process_peak(void);

/* Copies `text`, or its first `length` bytes. */
char *memory_text(const char *text);
char *memory_text_slice(const char *text, size_t length);

__END_DECLS
