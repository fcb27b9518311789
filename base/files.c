#define _GNU_SOURCE
#include "base/files.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

Status fail_file(const char *doing, const char *path) {
    return fail(errno == ENOMEM ? ERROR_MEMORY : ERROR_FILE, "cannot %s %s: %s", doing, path,
                strerror(errno));
}

static void descriptor_close(const int *descriptor) {
    if (*descriptor >= 0) close(*descriptor);
}

/* ---- reading ---- */

Status file_map(const char *path, FileMap *map) {
    *map = (FileMap){(const uint8_t *)"", 0};
    /* Non-blocking, because opening a pipe without a writer would block. */
    CLOSED_BY(descriptor_close) int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return fail_file("open", path);
    struct stat about;
    if (fstat(descriptor, &about) != 0) return fail_file("examine", path);
    if (!S_ISREG(about.st_mode)) return fail(ERROR_FILE, "%s is not a regular file", path);
    if (about.st_size == 0) return OK;
    void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) return fail_file("map", path);
    *map = (FileMap){data, about.st_size};
    return OK;
}

void file_unmap(FileMap *map) {
    if (map->size > 0) munmap((void *)(uintptr_t)map->data, (size_t)map->size);
    *map = (FileMap){0};
}

/* A model folder from a stranger may contain a link to the terminal or to a pipe that this process holds
 * open, and reading it would block forever. Paths that the user names, such as /dev/stdin, and pipes are
 * read. */
static Status refuse_device(int descriptor, const char *path) {
    struct stat about, named;
    if (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0) return OK;
    if (fstat(descriptor, &about) != 0 || lstat(path, &named) != 0) return fail_file("examine", path);
    if (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode) || S_ISFIFO(named.st_mode)) return OK;
    return fail(ERROR_FILE, "%s is a device, or a link to one or to a pipe, which is not read", path);
}

/* Reads `descriptor` to its end into a growing buffer. Reading limit + 1 bytes detects a file that is too
 * long. */
static Status read_all(int descriptor, const char *path, int64_t limit, char **text, int64_t *length) {
    enum { LEAST_READ = 1 << 16 };
    int64_t used = 0, room = 0;
    char *buffer = NULL;
    for (;;) {
        buffer = memory_grow(buffer, &room, used + LEAST_READ, 1);
        ssize_t got = read(descriptor, buffer + used, (size_t)(room - 1 - used));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || used + got > limit) {
            if (got == 0) break;
            Status status = got < 0 ? fail_file("read", path)
                                    : fail(ERROR_FORMAT, "%s is larger than the %lld bytes allowed here",
                                           path, (long long)limit);
            memory_free(buffer);
            return status;
        }
        used += got;
    }
    buffer[used] = 0;
    *text = buffer;
    *length = used;
    return OK;
}

Status file_read(const char *path, int64_t limit, char **text, int64_t *length) {
    *text = NULL;
    *length = 0;
    /* Non-blocking, because a pipe in a stranger's folder may have no writer. */
    CLOSED_BY(descriptor_close) int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 || fcntl(descriptor, F_SETFL, O_RDONLY) != 0) // reads from the pipe block again
        return fail_file("open", path);
    TRY(refuse_device(descriptor, path));
    return read_all(descriptor, path, limit, text, length);
}

/* ---- writing ---- */

struct FileWriter {
    char *path, *temporary; // NULL for a device or a pipe, which is written directly
    int descriptor;
    int64_t length; // bytes appended
    bool joined;    // another writer owns the temporary file
};

/* The folder that holds `path`. */
static char *parent_of(const char *path) {
    const char *name = path_name(path);
    size_t length = (size_t)(name - path);
    while (length > 1 && path[length - 1] == '/') length--;
    return length ? memory_text_slice(path, length) : memory_text(".");
}

Status path_flush(const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail_file("open", path);
    Status status = OK;
    // some file systems cannot flush folders (EINVAL), and offer no alternative
    if (fsync(descriptor) != 0 && errno != EINVAL) status = fail_file("flush", path);
    close(descriptor);
    return status;
}

Status path_flush_parent(const char *path) {
    OWNED char *folder = parent_of(path);
    return path_flush(folder);
}

static Status create_temporary(FileWriter *w) {
    size_t room = strlen(w->path) + 32;
    w->temporary = memory_allocate(room);
    /* The process id separates processes that write the same file; the number separates threads. */
    for (int attempt = 0; attempt < 1000; attempt++) {
        snprintf(w->temporary, room, "%s.tmp.%ld.%d", w->path, (long)getpid(), attempt);
        w->descriptor = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->descriptor >= 0 || errno != EEXIST) break;
    }
    return w->descriptor < 0 ? fail_file("create", w->path) : OK;
}

static Status open_output(FileWriter *w, const char *path) {
    struct stat about;
    char target[PATH_MAX];
    bool link = lstat(path, &about) == 0 && S_ISLNK(about.st_mode) && realpath(path, target);
    w->descriptor = -1;
    w->path = memory_text(link ? target : path);
    if (stat(w->path, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))
        return create_temporary(w);
    w->descriptor =
        open(path,
             O_WRONLY | O_CLOEXEC); // opens the given name, because the resolved name of a pipe cannot be
                                    // opened
    return w->descriptor < 0 ? fail_file("open", path) : OK;
}

Status file_writer_open(const char *path, FileWriter **writer) {
    *writer = NULL;
    FileWriter *w = memory_allocate(sizeof *w);
    Status status = open_output(w, path);
    if (status)
        file_writer_abandon(w);
    else
        *writer = w;
    return status;
}

/* Writes at `offset`; a device or a pipe is written sequentially. */
static Status write_all(FileWriter *w, int64_t offset, const void *data, int64_t bytes) {
    const char *from = data;
    for (int64_t at = 0; at < bytes;) {
        size_t rest = (size_t)(bytes - at);
        ssize_t done = w->temporary ? pwrite(w->descriptor, from + at, rest, offset + at)
                                    : write(w->descriptor, from + at, rest);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail_file("write", w->temporary ? w->temporary : w->path);
        at += done;
    }
    return OK;
}

const char *file_writer_temporary(const FileWriter *writer) {
    return writer->temporary;
}

Status file_writer_join(const char *temporary, FileWriter **writer) {
    FileWriter *w = memory_allocate(sizeof *w);
    *w = (FileWriter){.path = memory_text(temporary), .temporary = memory_text(temporary), .joined = true};
    w->descriptor = open(temporary, O_WRONLY | O_CLOEXEC);
    *writer = w;
    if (w->descriptor >= 0) return OK;
    Status status = fail_file("open", temporary);
    file_writer_abandon(w);
    *writer = NULL;
    return status;
}

bool file_writer_seeks(const FileWriter *writer) {
    return writer->temporary != NULL;
}

Status file_writer_write_at(FileWriter *writer, int64_t offset, const void *data, int64_t bytes) {
    if (file_writer_seeks(writer)) return write_all(writer, offset, data, bytes);
    return fail(ERROR_FILE, "%s is a device or a pipe, which can only be written from front to back",
                writer->path);
}

Status file_writer_append(FileWriter *writer, const void *data, int64_t bytes) {
    TRY(write_all(writer, writer->length, data, bytes));
    writer->length += bytes;
    return OK;
}

void file_writer_abandon(FileWriter *writer) {
    if (!writer) return;
    if (writer->descriptor >= 0) {
        close(writer->descriptor);
        if (writer->temporary && !writer->joined) unlink(writer->temporary);
    }
    memory_free(writer->temporary);
    memory_free(writer->path);
    memory_free(writer);
}

Status file_writer_close(FileWriter *writer) {
    if (!writer) return OK;
    Status status = OK;
    if (!writer->temporary || writer->joined) {
        if (close(writer->descriptor) != 0) status = fail_file("write", writer->path);
        writer->descriptor = -1;
    } else if (fsync(writer->descriptor) != 0) {
        status = fail_file("flush", writer->temporary);
    } else if (rename(writer->temporary, writer->path) != 0) {
        status = fail_file("write", writer->path);
    } else {
        status = path_flush_parent(writer->path);
    }
    file_writer_abandon(writer); // removes the temporary file unless it was renamed to `path`
    return status;
}

Status file_write(const char *path, const void *data, int64_t bytes) {
    FileWriter *writer;
    TRY(file_writer_open(path, &writer));
    return file_writer_finish(writer, file_writer_append(writer, data, bytes));
}

/* ---- paths ---- */

char *path_join(const char *folder, const char *name) {
    size_t length = strlen(folder), room = length + strlen(name) + 2;
    bool alone = name[0] == '/' || length == 0;
    const char *between = length && folder[length - 1] == '/' ? "" : "/";
    char *joined = memory_allocate(room);
    snprintf(joined, room, "%s%s%s", alone ? "" : folder, alone ? "" : between, name);
    return joined;
}

const char *path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

Status path_kind(const char *path, PathKind *kind) {
    struct stat about;
    *kind = PATH_ABSENT;
    if (stat(path, &about) == 0)
        *kind = S_ISDIR(about.st_mode) ? PATH_FOLDER : PATH_FILE;
    else if (errno != ENOENT && errno != ENOTDIR)
        return fail_file("examine", path);
    return OK;
}

Status path_same(const char *one, const char *other, bool *same) {
    struct stat a, b;
    if (stat(one, &a) != 0) return fail_file("examine", one);
    if (stat(other, &b) != 0) return fail_file("examine", other);
    *same = a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return OK;
}

Status path_refuse_link(const char *path) {
    struct stat about;
    if (lstat(path, &about) != 0)
        return errno == ENOENT || errno == ENOTDIR ? OK : fail_file("examine", path);
    if (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) return OK;
    return fail(ERROR_FILE, "%s is a %s, and the program does not write through it; remove it", path,
                S_ISLNK(about.st_mode) ? "symbolic link" : "pipe or a device");
}

bool path_ends_with(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && memcmp(path + length - tail, ending, tail) == 0;
}

void path_list_add(PathList *list, char *path) {
    list->paths = memory_grow(list->paths, &list->room, list->count + 1, sizeof *list->paths);
    list->paths[list->count++] = path;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void path_list_sort(PathList *list) {
    if (list->count) qsort(list->paths, (size_t)list->count, sizeof *list->paths, compare_paths);
}

void path_list_free(PathList *list) {
    for (int64_t i = 0; i < list->count; i++) memory_free(list->paths[i]);
    memory_free(list->paths);
    *list = (PathList){0};
}

Status path_glob(const char *pattern, PathList *list) {
    *list = (PathList){0};
    glob_t found;
    int answer = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (answer == GLOB_NOMATCH) return OK;
    if (answer == GLOB_NOSPACE) return fail(ERROR_MEMORY, "out of host memory to list %s", pattern);
    if (answer != 0) return fail_file("list", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++) path_list_add(list, memory_text(found.gl_pathv[i]));
    globfree(&found);
    path_list_sort(list);
    return OK;
}
