#define _GNU_SOURCE
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *memory_reserve(size_t bytes) {
    void *pointer = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&pointer, 64, bytes ? bytes : 1) != 0) return NULL;
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
