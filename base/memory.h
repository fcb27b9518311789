/* memory: the one place of host allocations. Tensors do not come from here but from arenas (arena.h). */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed memory, 64-byte aligned, or NULL. memory_free(NULL) does nothing. */
void *memory_allocate(size_t bytes);
void memory_free(void *pointer);

/* Memory that is not zeroed, 64-byte aligned, or NULL: for arenas. */
void *memory_reserve(size_t bytes);

/* `count` zeroed elements of `size` bytes, or NULL; NULL too if the product overflows. */
void *memory_array(size_t count, size_t size);

/* Grows to `bytes` keeping the contents; returns NULL, leaving the old block alone, when there is no memory.
 * The grown part is not zeroed. */
void *memory_resize(void *pointer, size_t bytes);

/* A copy of `text` (of its first `length` bytes), or NULL. */
char *memory_text(const char *text);
char *memory_text_slice(const char *text, size_t length);

#ifdef __cplusplus
}
#endif
#endif
