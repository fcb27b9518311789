#include "tasks/pictures/images/write.h"

#include "base/files.h"
#include "base/memory.h"

#include <string.h>

#define STBIW_MALLOC(bytes)            memory_resize(NULL, bytes)
#define STBIW_REALLOC(pointer, bytes)  memory_resize(pointer, bytes)
#define STBIW_FREE(pointer)            memory_free(pointer)
#define STBIW_MEMMOVE(to, from, bytes) memmove(to, from, bytes)
#define STBIW_ASSERT(condition)        ((void)(condition))
#define STBI_WRITE_NO_STDIO
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>

enum { JPEG_QUALITY = 90 };

typedef struct {
    FileWriter *writer;
    Status status; // error of the first append that failed
} Out;

static void append(void *context, void *data, int bytes) {
    Out *out = context;
    if (!out->status) out->status = file_writer_append(out->writer, data, bytes);
}

Status image_write(const char *path, const Image *image) {
    Out out = {0};
    int width = (int)image->width, height = (int)image->height, channels = (int)image->channels;
    bool png = path_ends_with(path, ".png");
    if (!png && !path_ends_with(path, ".jpg"))
        return fail(ERROR_USAGE, "%s: pictures are written as .png or .jpg", path);
    TRY(file_writer_open(path, &out.writer));
    int done =
        png ? stbi_write_png_to_func(append, &out, width, height, channels, image->pixels, 0)
            : stbi_write_jpg_to_func(append, &out, width, height, channels, image->pixels, JPEG_QUALITY);
    if (!done && !out.status) out.status = fail(ERROR_INTERNAL, "%s: the picture cannot be encoded", path);
    return file_writer_finish(out.writer, out.status);
}
