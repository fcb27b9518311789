/* The folder in memory. The linker redirects calls of base/files.h and directories.h to __wrap_ functions
 * (--wrap in the Makefile), which pass calls for other paths on. Otherwise a fuzzer would spend most of its
 * time in the kernel. */
#define _GNU_SOURCE
#include "base/directories.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

enum { FILES = 128, NAME = 96 };

typedef struct {
    char name[NAME];
    uint8_t *bytes; // exact size, so that reads beyond it are caught
    size_t size;
} ScratchFile;

static ScratchFile files[FILES];
static int count;

/* ---- filling it ---- */

void scratch_clear(void) {
    while (count) free(files[--count].bytes);
}

static ScratchFile *find(const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(files[i].name, name) == 0) return &files[i];
    return NULL;
}

static uint8_t *copy(const void *data, size_t size) {
    uint8_t *bytes = malloc(size ? size : 1);
    must(bytes);
    if (size) memcpy(bytes, data, size);
    return bytes;
}

void scratch_put(const char *name, const void *data, size_t size) {
    ScratchFile *file = find(name);
    must(strlen(name) < NAME && (file || count < FILES));
    if (!file) file = &files[count++], file->bytes = NULL;
    free(file->bytes);
    strcpy(file->name, name);
    file->bytes = copy(data, size);
    file->size = size;
}

const uint8_t *scratch_get(const char *name, size_t *size) {
    const ScratchFile *file = find(name);
    if (file) *size = file->size;
    return file ? file->bytes : NULL;
}

/* Names come from the fuzzer; those that lead elsewhere are rejected. */
static bool plain(const char *name) {
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-/", *c)) return false;
    return *name && *name != '/' && !strstr(name, "..");
}

void scratch_unpack(const uint8_t *data, size_t size) {
    const char mark[] = SCRATCH_MARK;
    const uint8_t *end = data + size, *at = data, *next;
    scratch_clear();
    if (size < 3 || memcmp(data, mark + 1, 3) != 0) return;
    for (at += 3; at && count < FILES / 2; at = next ? next + 4 : NULL) {
        char name[NAME / 2] = "";
        const uint8_t *line = memchr(at, '\n', (size_t)(end - at));
        size_t length = line ? (size_t)(line - at) : sizeof name;
        next = line ? memmem(line + 1, (size_t)(end - line - 1), mark, 4) : NULL;
        if (length >= sizeof name) continue;
        memcpy(name, at, length);
        if (plain(name)) scratch_put(name, line + 1, (size_t)((next ? next : end) - line - 1));
    }
}

/* ---- reading by the project's code ---- */

#define WRAP(TYPE, NAME, ...)                                                                                \
    TYPE __real_##NAME(__VA_ARGS__);                                                                         \
    TYPE __wrap_##NAME(__VA_ARGS__);                                                                         \
    TYPE __wrap_##NAME(__VA_ARGS__)

/* The name below the folder, "" for the folder itself; NULL for other paths. "a/../" is resolved. */
static const char *inside(const char *path) {
    static char name[4 * NAME];
    const size_t length = sizeof SCRATCH - 1;
    while (strncmp(path, "./", 2) == 0) path += 2;
    if (strncmp(path, SCRATCH, length) != 0 || (path[length] && path[length] != '/')) return NULL;
    snprintf(name, sizeof name, "%s", path + length + (path[length] == '/'));
    for (char *up; (up = strstr(name, "/../"));) {
        char *from = up;
        while (from > name && from[-1] != '/') from--;
        memmove(from, up + 4, strlen(up + 4) + 1);
    }
    size_t end = strlen(name);
    while (end && name[end - 1] == '/') name[--end] = 0;
    return name;
}

static Status absent(const char *path) {
    return fail(ERROR_FILE, "cannot open %s: No such file or directory", path);
}

WRAP(Status, file_map, const char *path, FileMap *map) {
    const char *name = inside(path);
    const ScratchFile *file = name ? find(name) : NULL;
    if (!name) return __real_file_map(path, map);
    *map = (FileMap){(const uint8_t *)"", 0};
    if (!file) return absent(path);
    if (file->size) *map = (FileMap){copy(file->bytes, file->size), (int64_t)file->size};
    return OK;
}

WRAP(void, file_unmap, FileMap *map) {
    if (map->size && __sanitizer_get_ownership(map->data))
        free((void *)(uintptr_t)map->data);
    else
        __real_file_unmap(map);
    *map = (FileMap){0};
}

WRAP(Status, file_read, const char *path, int64_t limit, char **text, int64_t *length) {
    const char *name = inside(path);
    const ScratchFile *file = name ? find(name) : NULL;
    if (!name) return __real_file_read(path, limit, text, length);
    *text = NULL;
    *length = 0;
    if (!file) return absent(path);
    if ((int64_t)file->size > limit) return fail(ERROR_FORMAT, "%s is too large", path);
    *text = memory_text_slice((const char *)file->bytes, file->size);
    *length = (int64_t)file->size;
    return OK;
}

WRAP(Status, path_kind, const char *path, PathKind *kind) {
    const char *name = inside(path);
    if (!name) return __real_path_kind(path, kind);
    size_t length = strlen(name);
    *kind = find(name) ? PATH_FILE : !length ? PATH_FOLDER : PATH_ABSENT;
    for (int i = 0; i < count && *kind == PATH_ABSENT; i++)
        if (strncmp(files[i].name, name, length) == 0 && files[i].name[length] == '/') *kind = PATH_FOLDER;
    return OK;
}

WRAP(Status, directory_list, const char *folder, PathList *list) {
    const char *name = inside(folder);
    if (!name) return __real_directory_list(folder, list);
    size_t length = strlen(name), below = length + (length > 0);
    *list = (PathList){0};
    for (int i = 0; i < count; i++) {
        const char *entry = files[i].name + below;
        if (strncmp(files[i].name, name, length) != 0 || (length && files[i].name[length] != '/')) continue;
        char *path = path_join(folder, entry);
        path[strlen(path) - strlen(entry) + strcspn(entry, "/")] = 0;
        bool known = *entry == '.';
        for (int64_t k = 0; k < list->count; k++) known |= strcmp(list->paths[k], path) == 0;
        if (known)
            memory_free(path);
        else
            path_list_add(list, path);
    }
    path_list_sort(list);
    return OK;
}

/* No pattern matches in the folder, so the file's own name is looked up. */
WRAP(Status, path_glob, const char *pattern, PathList *list) {
    *list = (PathList){0};
    return inside(pattern) ? OK : __real_path_glob(pattern, list);
}

WRAP(char *, path_in_cache, const char *name, bool make) {
    (void)make;
    return path_join(SCRATCH, name);
}

WRAP(gzFile, gzopen, const char *path, const char *mode) {
    const char *name = inside(path);
    const ScratchFile *file = name ? find(name) : NULL;
    if (!file) return name ? NULL : __real_gzopen(path, mode);
    int descriptor = memfd_create("gzip", MFD_CLOEXEC);
    must(descriptor >= 0 && pwrite(descriptor, file->bytes, file->size, 0) == (ssize_t)file->size);
    return gzdopen(descriptor, mode);
}

/* ---- writing by the project's code ---- */

struct FileWriter {
    char name[NAME];
    uint8_t *bytes;
    int64_t size, room, length; // length: bytes appended
};

WRAP(Status, file_writer_open, const char *path, FileWriter **writer) {
    const char *name = inside(path);
    must(name && strlen(name) < NAME);
    *writer = memory_allocate(sizeof **writer);
    strcpy((*writer)->name, name);
    return OK;
}

WRAP(Status, file_writer_write_at, FileWriter *w, int64_t offset, const void *data, int64_t bytes) {
    int64_t end = offset + bytes;
    w->bytes = memory_grow(w->bytes, &w->room, end, 1);
    if (offset > w->size) memset(w->bytes + w->size, 0, (size_t)(offset - w->size));
    if (bytes) memcpy(w->bytes + offset, data, (size_t)bytes);
    if (end > w->size) w->size = end;
    return OK;
}

WRAP(Status, file_writer_append, FileWriter *w, const void *data, int64_t bytes) {
    w->length += bytes;
    return __wrap_file_writer_write_at(w, w->length - bytes, data, bytes);
}

WRAP(bool, file_writer_seeks, const FileWriter *w) {
    (void)w;
    return true;
}

WRAP(void, file_writer_abandon, FileWriter *w) {
    if (w) memory_free(w->bytes);
    memory_free(w);
}

WRAP(Status, file_writer_close, FileWriter *w) {
    if (w) scratch_put(w->name, w->bytes, (size_t)w->size);
    __wrap_file_writer_abandon(w);
    return OK;
}

WRAP(Status, file_write, const char *path, const void *data, int64_t bytes) {
    FileWriter *w;
    TRY(__wrap_file_writer_open(path, &w));
    TRY(__wrap_file_writer_append(w, data, bytes));
    return __wrap_file_writer_close(w);
}

/* Always succeeds. */
WRAP(Status, directory_lock, const char *folder, int *lock) {
    *lock = 0;
    return inside(folder) ? OK : __real_directory_lock(folder, lock);
}

/* A file, or a folder with its contents. */
static bool below(const ScratchFile *file, const char *name) {
    size_t length = strlen(name);
    return strncmp(file->name, name, length) == 0 && (!file->name[length] || file->name[length] == '/');
}

WRAP(Status, directory_remove, const char *folder) {
    const char *name = inside(folder);
    if (!name) return __real_directory_remove(folder);
    for (int i = count - 1; i >= 0; i--) {
        if (!below(&files[i], name)) continue;
        free(files[i].bytes);
        files[i] = files[--count];
    }
    return OK;
}

WRAP(Status, directory_discard, const char *folder) {
    return __wrap_directory_remove(folder);
}

WRAP(Status, directory_stage, const char *target, char **stage) {
    must(inside(target) && asprintf(stage, "%s.tmp", target) > 0);
    return __wrap_directory_remove(*stage);
}

WRAP(Status, directory_publish, const char *stage, const char *target) {
    char from[NAME], name[2 * NAME];
    TRY(__wrap_directory_remove(target));
    snprintf(from, sizeof from, "%s", inside(stage));
    for (int i = 0; i < count; i++) {
        if (!below(&files[i], from)) continue;
        snprintf(name, sizeof name, "%s%s", inside(target), files[i].name + strlen(from));
        must(strlen(name) < NAME);
        strcpy(files[i].name, name);
    }
    return OK;
}

WRAP(Status, directory_make, const char *folder) {
    return inside(folder) ? OK : __real_directory_make(folder);
}
