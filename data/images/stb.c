/* The implementation of stb_image, which comes as a header. Its arithmetic wraps around where a hostile file
 * drives it over the edge: the Makefile says so to the compiler. */
#include "base/memory.h"

#include <string.h>

static _Thread_local size_t allowed;

static void *allocate(size_t bytes) {
    if (bytes > allowed) return NULL;
    allowed -= bytes;
    return memory_allocate(
        bytes); // of a damaged file parts are never written: they are to be the same each time
}

static void *resize(void *pointer, size_t before, size_t bytes) {
    void *larger = allocate(bytes);
    if (!larger || !pointer) return larger;
    memcpy(larger, pointer, before < bytes ? before : bytes);
    memory_free(pointer);
    return larger;
}

#define STBI_MALLOC(bytes)                         allocate(bytes)
#define STBI_FREE(pointer)                         memory_free(pointer)
#define STBI_REALLOC(pointer, bytes)               resize(pointer, bytes, bytes)
#define STBI_REALLOC_SIZED(pointer, before, bytes) resize(pointer, before, bytes)
#define STBI_ASSERT(condition)                     ((void)(condition))
#define STB_IMAGE_IMPLEMENTATION
#include "data/images/stb.h"

void stb_allow(size_t bytes) {
    allowed = bytes;
}
