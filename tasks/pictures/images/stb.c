/* The implementation of stb_image, which comes as a header. Its arithmetic wraps around where a hostile file
 * drives it over the edge: the Makefile says so to the compiler. */
#include "base/memory.h"
#include "tasks/pictures/images/jpeg.h"

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

static uint8_t *double_both(uint8_t *out, uint8_t *near, uint8_t *far, int width, int factor) {
    (void)factor;
    jpeg_double(out, near, far, width, JPEG_HALF);
    return out;
}

/* Of the library's name, by which it is chosen: the library's own, which mistakes the last two values for
 * each other, is given another. */
static uint8_t *stbi__resample_row_h_2(uint8_t *out, uint8_t *near, uint8_t *far, int width, int factor) {
    (void)far, (void)factor;
    jpeg_double(out, near, near, width, JPEG_HALF_ACROSS);
    return out;
}
#define stbi__resample_row_h_2(...) library_row(__VA_ARGS__)

#define STB_IMAGE_IMPLEMENTATION
#include "tasks/pictures/images/stb.h"

void stb_allow(size_t bytes) {
    allowed = bytes;
}

/* As the library's own, but for three of its steps. */
static uint8_t *load_jpeg(stbi__context *context, int *stored, int channels, int *width, int *height) {
    stbi__jpeg *jpeg = stbi__malloc(sizeof *jpeg);
    if (!jpeg) return NULL;
    jpeg->s = context;
    stbi__setup_jpeg(jpeg);
    (void)library_row; // nobody calls it
    jpeg->idct_block_kernel = jpeg_transform;
    jpeg->resample_row_hv_2_kernel = double_both;
    jpeg->YCbCr_to_RGB_kernel = jpeg_colours;
    uint8_t *pixels = load_jpeg_image(jpeg, width, height, stored, channels);
    STBI_FREE(jpeg);
    return pixels;
}

uint8_t *stb_load(const uint8_t *bytes, int64_t length, int *channels, int *width, int *height) {
    stbi__context context;
    int stored = 0;
    uint8_t *pixels;
    stbi__start_mem(&context, bytes, (int)length);
    if (stbi__jpeg_test(&context))
        pixels = load_jpeg(&context, &stored, *channels, width, height);
    else
        pixels = stbi_load_from_memory(bytes, (int)length, width, height, &stored, *channels);
    if (!*channels) *channels = stored;
    return pixels;
}
