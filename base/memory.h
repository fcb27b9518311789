/* memory: the one place of host allocations. Tensors do not come from here but from arenas (arena.h). Where
 * host memory has run out the program ends here, with exit code 5: only memory_reserve() returns NULL. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

/* Zeroed memory, 64-byte aligned. memory_free(NULL) does nothing. */
void *memory_allocate(size_t bytes);
void memory_free(void *pointer);

/* Frees a local variable's memory where its scope ends, on every way out:
 *
 *     OWNED char *json = NULL;
 *
 * A function that hands the memory on sets the variable to NULL first. CLOSED_BY(close) calls close(&variable). */
#define OWNED            CLOSED_BY(memory_release)
#define CLOSED_BY(close) __attribute__((cleanup(close)))
void memory_release(void *variable); // the address of a pointer from one of these functions

/* Memory that is not zeroed, 64-byte aligned, or NULL: for arenas. */
void *memory_reserve(size_t bytes);

/* `count` zeroed elements of `size` bytes. */
void *memory_array(size_t count, size_t size);

/* Grows or shrinks to `bytes`, keeping the contents. A grown part is not zeroed. */
void *memory_resize(void *pointer, size_t bytes);

/* Makes room for `count` elements of `size` bytes, so that adding one after another costs amortized constant
 * time; *room is how many there is memory for, 0 and NULL at first:
 *
 *     list->items = memory_grow(list->items, &list->room, list->count + 1, sizeof *list->items); */
void *memory_grow(void *array, int64_t *room, int64_t count, size_t size);

/* A copy of `text`, of its first `length` bytes. */
char *memory_text(const char *text);
char *memory_text_slice(const char *text, size_t length);

__END_DECLS
