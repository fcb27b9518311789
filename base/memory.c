#define _GNU_SOURCE
#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CACHE_LINE = 64, HUGE_PAGE = 2 << 20 };

void *memory_reserve(size_t bytes) {
    void *pointer = NULL;
    bool large = bytes >= 4 * (size_t)HUGE_PAGE;
    if (bytes > SIZE_MAX / 2 ||
        posix_memalign(&pointer, large ? HUGE_PAGE : CACHE_LINE, bytes ? bytes : 1) != 0)
        return NULL;
    /* Fewer page faults and address translations: 2 to 6% of a training step on the CPU. No matter if
     * refused. */
    if (large) (void)madvise(pointer, bytes, MADV_HUGEPAGE);
    return pointer;
}

void *memory_allocate(size_t bytes) {
    void *pointer = memory_reserve(bytes);
    if (pointer) memset(pointer, 0, bytes);
    return pointer;
}

void memory_free(void *pointer) {
    free(pointer);
}

void *memory_array(size_t count, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : memory_allocate(bytes);
}

void *memory_resize(void *pointer, size_t bytes) {
    return realloc(pointer, bytes ? bytes : 1);
}

char *memory_text(const char *text) {
    return memory_text_slice(text, strlen(text));
}

char *memory_text_slice(const char *text, size_t length) {
    if (length == SIZE_MAX) return NULL;
    char *copy = memory_allocate(length + 1);
    if (copy && length) memcpy(copy, text, length);
    return copy;
}
