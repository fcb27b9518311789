/* The implementation of stb_image, a header-only library. */
#include "tasks/pictures/images/decode.h"

#include "base/memory.h"

#include <string.h>

/* Hostile files can make stb_image's arithmetic overflow, so the Makefile compiles this file with wrapping
 * integers. */

static _Thread_local size_t allowed;

/* Zeroed, because parts of a damaged file are never written and must be deterministic. */
static void *allocate(size_t bytes) {
    if (bytes > allowed) return NULL;
    allowed -= bytes;
    return memory_allocate(bytes);
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
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_PNM
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

Status stb_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image) {
    int width, height, stored;
    allowed = limit;
    image->pixels = stbi_load_from_memory(bytes, (int)length, &width, &height, &stored, 0);
    if (!image->pixels) return fail(ERROR_FORMAT, "%s: damaged: %s", name, stbi_failure_reason());
    image->width = width;
    image->height = height;
    image->channels = stored;
    return OK;
}
