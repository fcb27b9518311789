/* Reads IDX of the MNIST family, CIFAR-10 and CIFAR-100: files with many pictures. */
#include "base/files.h"
#include "base/gzip.h"
#include "base/memory.h"
#include "tasks/pictures/images/images_internal.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

/* The pictures are read into memory at once, compressed or not. */

enum { IDX_IMAGES = 0x803, IDX_LABELS = 0x801, IDX_SIDE_LIMIT = 1 << 14 };
enum { CIFAR_SIDE = 32, CIFAR_PLANE = CIFAR_SIDE * CIFAR_SIDE, CIFAR_PIXELS = CIFAR_PLANE * IMAGE_CHANNELS };
enum { PIECE = 1 << 20, NAMES_LIMIT = 1 << 16 };

/* ---- reading ---- */

/* If the system gives a reason, the file is not at fault. */
static Status fail_read(gzFile file, const char *path, const char *damage) {
    int error;
    const char *reason = gzerror(file, &error);
    if (error == Z_ERRNO) return fail_file("read", path);
    if (error == Z_MEM_ERROR) return fail(ERROR_MEMORY, "%s: %s", path, reason);
    return fail(ERROR_FORMAT, "%s: %s", path, damage);
}

/* Reads the next `count` bytes into memory that grows with the data, because a header may lie. */
static Status read_bytes(gzFile file, const char *path, int64_t count, uint8_t **bytes) {
    int64_t used = 0, room = 0;
    *bytes = NULL;
    while (used < count) {
        int64_t piece = count - used < PIECE ? count - used : PIECE;
        *bytes = memory_grow(*bytes, &room, used + piece, 1);
        int got = gzread(file, *bytes + used, (unsigned)piece);
        if (got <= 0) return fail_read(file, path, "cut off, or damaged");
        used += got;
    }
    return OK;
}

static Status check_end(gzFile file, const char *path) {
    char byte;
    int got = gzread(file, &byte, 1);
    if (got == 0) return OK;
    return fail_read(file, path, got < 0 ? "damaged" : "longer than its header says");
}

/* Opens a file and sets the most bytes it can contain. It is mapped first, because gzopen would wait for a
 * pipe's writer. */
static Status open_file(const char *path, gzFile *file, int64_t *most) {
    FileMap map;
    TRY(file_map(path, &map));
    *most = gzip_most(map.size);
    file_unmap(&map);
    *file = gzopen(path, "rb");
    return *file ? OK : fail_file("open", path);
}

/* Names the classes "0", "1", ... */
static void number_classes(ImageSource *s, int64_t classes) {
    char name[24];
    while (s->classes < classes) {
        int length = snprintf(name, sizeof name, "%lld", (long long)s->classes);
        images_add_class(s, name, length);
    }
}

/* ---- IDX ---- */

/* A magic number and `rank` sizes, of four bytes each, big-endian. */
static Status read_header(gzFile file, const char *path, int64_t magic, int rank, int64_t *sizes) {
    OWNED uint8_t *header = NULL;
    TRY(read_bytes(file, path, 4 * (rank + 1), &header));
    for (int i = 0; i <= rank; i++) {
        const uint8_t *b = header + 4 * i;
        int64_t value = (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
        if (i > 0) sizes[i - 1] = value;
        if (i == 0 && value != magic) return fail(ERROR_FORMAT, "%s: not an IDX file of bytes", path);
    }
    return OK;
}

static void close_file(gzFile *file) {
    if (*file) gzclose_r(*file);
}

static Status read_idx(const char *path, int64_t magic, int rank, int64_t sizes[3], uint8_t **bytes) {
    CLOSED_BY(close_file) gzFile file = NULL;
    int64_t most;
    *bytes = NULL;
    sizes[1] = sizes[2] = 1;
    TRY(open_file(path, &file, &most));
    TRY(read_header(file, path, magic, rank, sizes));
    bool fits = sizes[0] > 0 && sizes[1] > 0 && sizes[2] > 0 && sizes[1] <= IDX_SIDE_LIMIT &&
                sizes[2] <= IDX_SIDE_LIMIT;
    if (!fits) return fail(ERROR_FORMAT, "%s: the sizes in its header are out of range", path);
    if (sizes[0] * sizes[1] * sizes[2] > most)
        return fail(ERROR_FORMAT, "%s: its header claims more than a file of its size holds", path);
    TRY(read_bytes(file, path, sizes[0] * sizes[1] * sizes[2], bytes));
    return check_end(file, path);
}

static bool replace(char *text, const char *from, const char *to) {
    char *at = strstr(text, from);
    if (at) memcpy(at, to, strlen(to));
    return at;
}

/* The classes of train-images-idx3-ubyte are in train-labels-idx1-ubyte. */
static char *labels_path(const char *path) {
    char *labels = memory_text(path), *name = labels + (path_name(path) - path);
    (void)replace(name, "images", "labels");
    (void)replace(name, "idx3", "idx1");
    return labels;
}

static Status read_labels(const char *path, ImageSource *s) {
    int64_t sizes[3], most = 0;
    OWNED uint8_t *labels = NULL;
    TRY(read_idx(path, IDX_LABELS, 1, sizes, &labels));
    if (sizes[0] != s->count)
        return fail(ERROR_FORMAT, "%s: %lld classes for %lld pictures", path, (long long)sizes[0],
                    (long long)s->count);
    s->labels = memory_array((size_t)s->count, sizeof *s->labels);
    for (int64_t i = 0; i < s->count; i++) {
        s->labels[i] = labels[i];
        if (labels[i] > most) most = labels[i];
    }
    number_classes(s, most + 1);
    return OK;
}

Status images_open_idx(const char *path, ImageSource *s) {
    int64_t sizes[3];
    s->path = memory_text(path);
    TRY(read_idx(path, IDX_IMAGES, 3, sizes, &s->pixels));
    s->count = sizes[0];
    s->height = sizes[1];
    s->width = sizes[2];
    s->channels = 1;
    OWNED char *labels = labels_path(path);
    return read_labels(labels, s);
}

/* ---- CIFAR ---- */

/* Interleaves the planes of a picture. */
static void interleave(const uint8_t *planes, uint8_t *pixels) {
    for (int i = 0; i < CIFAR_PLANE; i++)
        for (int c = 0; c < IMAGE_CHANNELS; c++) *pixels++ = planes[c * CIFAR_PLANE + i];
}

static Status add_record(const char *path, const uint8_t *record, int64_t heads, ImageSource *s) {
    int64_t label = record[heads - 1]; // CIFAR-100 has a coarse class before the fine one
    if (label >= s->classes)
        return fail(ERROR_FORMAT, "%s: class %lld, of %lld", path, (long long)label, (long long)s->classes);
    s->labels[s->count] = (int32_t)label;
    interleave(record + heads, s->pixels + s->count * CIFAR_PIXELS);
    s->count++;
    return OK;
}

static Status add_records(const char *path, int64_t heads, int64_t *pixel_room, ImageSource *s) {
    OWNED char *bytes = NULL;
    int64_t length, record = heads + CIFAR_PIXELS;
    TRY(file_read(path, INT32_MAX, &bytes, &length));
    int64_t count = length / record;
    if (!count || length % record)
        return fail(ERROR_FORMAT, "%s: its size is not that of whole CIFAR records", path);
    s->labels = memory_grow(s->labels, &s->label_room, s->count + count, sizeof *s->labels);
    s->pixels = memory_grow(s->pixels, pixel_room, (s->count + count) * CIFAR_PIXELS, 1);
    for (int64_t i = 0; i < count; i++) TRY(add_record(path, (const uint8_t *)bytes + i * record, heads, s));
    return OK;
}

/* Class names from the file in the pictures' folder, one per line; numbers if there is none. */
static Status name_classes(const char *path, const char *file, int64_t classes, ImageSource *s) {
    int64_t before = path_name(path) - path;
    OWNED char *folder = memory_text_slice(before ? path : ".", (size_t)(before ? before : 1));
    OWNED char *names = path_join(folder, file);
    OWNED char *text = NULL;
    int64_t length;
    PathKind kind;
    Status status = path_kind(names, &kind);
    if (!status && kind == PATH_FILE) status = file_read(names, NAMES_LIMIT, &text, &length);
    for (char *line = text; line && *line && s->classes < classes;) {
        size_t width = strcspn(line, "\r\n");
        if (width) images_add_class(s, line, (int64_t)width);
        line += width + (line[width] != 0);
    }
    number_classes(s, classes);
    return status;
}

Status images_open_cifar(const PathList *files, bool fine, ImageSource *s) {
    int64_t room = 0;
    TRY(name_classes(files->paths[0], fine ? "fine_label_names.txt" : "batches.meta.txt", fine ? 100 : 10,
                     s));
    s->path = memory_text(files->paths[0]);
    s->height = s->width = CIFAR_SIDE;
    s->channels = IMAGE_CHANNELS;
    for (int64_t i = 0; i < files->count; i++) TRY(add_records(files->paths[i], fine ? 2 : 1, &room, s));
    return OK;
}
