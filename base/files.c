#define _GNU_SOURCE
#include "base/files.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* An error about `path` with the system's reason, read from errno. */
static Status fail_file(const char *doing, const char *path) {
    return fail(ERROR_FILE, "cannot %s %s: %s", doing, path, strerror(errno));
}

static Status fail_memory(const char *path) {
    return fail(ERROR_MEMORY, "no memory left at %s", path);
}

/* ---- reading ---- */

Status file_map(const char *path, FileMap *map) {
    *map = (FileMap){(const uint8_t *)"", 0};
    /* Without waiting: a pipe that nobody writes to is no regular file either. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return fail_file("open", path);
    struct stat about;
    Status status = OK;
    if (fstat(descriptor, &about) != 0) {
        status = fail_file("examine", path);
    } else if (!S_ISREG(about.st_mode)) {
        status = fail(ERROR_FILE, "%s is not a regular file", path);
    } else if (about.st_size > 0) {
        void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
        if (data == MAP_FAILED)
            status = fail_file("map", path);
        else
            *map = (FileMap){data, about.st_size};
    }
    close(descriptor);
    return status;
}

void file_unmap(FileMap *map) {
    if (map->size > 0) munmap((void *)(uintptr_t)map->data, (size_t)map->size);
    *map = (FileMap){0};
}

/* Reads `descriptor` to its end, growing the buffer; one byte beyond `limit` proves the file too long. */
static Status read_all(int descriptor, const char *path, int64_t limit, char **text, int64_t *length) {
    int64_t used = 0, room = 1 << 16;
    char *buffer = memory_allocate((size_t)room);
    if (!buffer) return fail_memory(path);
    for (;;) {
        if (used + 1 >= room) {
            room *= 2;
            char *larger = memory_resize(buffer, (size_t)room);
            if (!larger) {
                memory_free(buffer);
                return fail_memory(path);
            }
            buffer = larger;
        }
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
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail_file("open", path);
    Status status = read_all(descriptor, path, limit, text, length);
    close(descriptor);
    return status;
}

/* ---- writing ---- */

struct FileWriter {
    char *path, *temporary; // `temporary` is NULL for a device or a pipe, whose place no file may take
    int descriptor;
    int64_t place;
};

/* The folder that holds `path`. */
static char *parent_of(const char *path) {
    const char *name = path_name(path);
    size_t length = (size_t)(name - path);
    while (length > 1 && path[length - 1] == '/') length--;
    return length ? memory_text_slice(path, length) : memory_text(".");
}

/* Flushes a file or a folder, so that what it holds survives a power cut. */
static Status flush_path(const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail_file("open", path);
    Status status = OK;
    /* Some file systems cannot flush folders (EINVAL): nothing more can be done there. */
    if (fsync(descriptor) != 0 && errno != EINVAL) status = fail_file("flush", path);
    close(descriptor);
    return status;
}

static Status flush_parent(const char *path) {
    char *folder = parent_of(path);
    if (!folder) return fail_memory(path);
    Status status = flush_path(folder);
    memory_free(folder);
    return status;
}

static Status create_temporary(FileWriter *w) {
    size_t room = strlen(w->path) + 32;
    w->temporary = memory_allocate(room);
    if (!w->temporary) return fail_memory(w->path);
    /* The process id keeps two processes that write the same file apart, the number two threads of one. */
    for (int attempt = 0; attempt < 1000; attempt++) {
        snprintf(w->temporary, room, "%s.tmp.%ld.%d", w->path, (long)getpid(), attempt);
        w->descriptor = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->descriptor >= 0 || errno != EEXIST) break;
    }
    return w->descriptor < 0 ? fail_file("create", w->temporary) : OK;
}

static Status open_output(FileWriter *w, const char *path) {
    struct stat about;
    char target[PATH_MAX];
    bool link = lstat(path, &about) == 0 && S_ISLNK(about.st_mode) && realpath(path, target);
    w->descriptor = -1;
    w->path = memory_text(link ? target : path);
    if (!w->path) return fail_memory(path);
    if (stat(w->path, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))
        return create_temporary(w);
    w->descriptor = open(path, O_WRONLY | O_CLOEXEC); // by the name given: that of a pipe's end leads nowhere
    return w->descriptor < 0 ? fail_file("open", path) : OK;
}

Status file_writer_open(const char *path, FileWriter **writer) {
    *writer = NULL;
    FileWriter *w = memory_allocate(sizeof *w);
    if (!w) return fail_memory(path);
    Status status = open_output(w, path);
    if (status)
        file_writer_abandon(w);
    else
        *writer = w;
    return status;
}

/* At `offset`, or where a device or a pipe stands. */
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

Status file_writer_write_at(FileWriter *writer, int64_t offset, const void *data, int64_t bytes) {
    if (writer->temporary) return write_all(writer, offset, data, bytes);
    return fail(ERROR_FILE, "%s is a device or a pipe, which can be written from front to back only",
                writer->path);
}

Status file_writer_append(FileWriter *writer, const void *data, int64_t bytes) {
    TRY(write_all(writer, writer->place, data, bytes));
    writer->place += bytes;
    return OK;
}

void file_writer_abandon(FileWriter *writer) {
    if (!writer) return;
    if (writer->descriptor >= 0) {
        close(writer->descriptor);
        if (writer->temporary) unlink(writer->temporary);
    }
    memory_free(writer->temporary);
    memory_free(writer->path);
    memory_free(writer);
}

Status file_writer_close(FileWriter *writer) {
    if (!writer) return OK;
    Status status = OK;
    if (!writer->temporary) {
        if (close(writer->descriptor) != 0) status = fail_file("write", writer->path);
        writer->descriptor = -1;
    } else if (fsync(writer->descriptor) != 0) {
        status = fail_file("flush", writer->temporary);
    } else if (rename(writer->temporary, writer->path) != 0) {
        status = fail_file("write", writer->path);
    } else {
        status = flush_parent(writer->path);
    }
    file_writer_abandon(writer); /* the temporary name is gone or is to go */
    return status;
}

Status file_write(const char *path, const void *data, int64_t bytes) {
    FileWriter *writer;
    TRY(file_writer_open(path, &writer));
    Status status = file_writer_append(writer, data, bytes);
    if (!status) return file_writer_close(writer);
    file_writer_abandon(writer);
    return status;
}

/* ---- paths and folders ---- */

Status path_join(const char *folder, const char *name, char **joined) {
    size_t length = strlen(folder), room = length + strlen(name) + 2;
    bool alone = name[0] == '/' || length == 0;
    const char *between = length && folder[length - 1] == '/' ? "" : "/";
    *joined = memory_allocate(room);
    if (!*joined) return fail_memory(folder);
    snprintf(*joined, room, "%s%s%s", alone ? "" : folder, alone ? "" : between, name);
    return OK;
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

bool path_ends_with(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && memcmp(path + length - tail, ending, tail) == 0;
}

char *path_in_cache(const char *name, bool make) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = cache && *cache;
    char *folder = NULL, *path = NULL;
    if (!own && !(home && *home)) return NULL;
    Status status = path_join(own ? cache : home, own ? "fusebox" : ".cache/fusebox", &folder);
    if (!status && make) status = directory_make(folder);
    if (!status) status = path_join(folder, name, &path);
    memory_free(folder);
    status_free(status);
    return path;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
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
    if (answer == GLOB_NOSPACE) return fail_memory(pattern);
    if (answer != 0) return fail_file("list", pattern);
    list->paths = memory_array(found.gl_pathc, sizeof *list->paths);
    bool complete = list->paths != NULL;
    for (size_t i = 0; complete && i < found.gl_pathc; i++) {
        list->paths[i] = memory_text(found.gl_pathv[i]);
        complete = list->paths[i] != NULL;
        if (complete) list->count++;
    }
    globfree(&found);
    if (!complete) {
        path_list_free(list);
        return fail_memory(pattern);
    }
    qsort(list->paths, (size_t)list->count, sizeof *list->paths, compare_paths);
    return OK;
}

Status directory_list(const char *folder, PathList *list) {
    *list = (PathList){0};
    DIR *directory = opendir(folder);
    if (!directory) return fail_file("list", folder);
    Status status = OK;
    int64_t room = 0;
    struct dirent *entry;
    while (!status && (errno = 0, entry = readdir(directory))) {
        if (entry->d_name[0] == '.') continue;
        if (list->count == room) {
            room = room ? 2 * room : 64;
            char **larger = memory_resize(list->paths, (size_t)room * sizeof *larger);
            if (!larger) {
                status = fail_memory(folder);
                break;
            }
            list->paths = larger;
        }
        status = path_join(folder, entry->d_name, &list->paths[list->count]);
        if (!status) list->count++;
    }
    if (!status && errno) status = fail_file("list", folder);
    closedir(directory);
    if (status)
        path_list_free(list);
    else if (list->count)
        qsort(list->paths, (size_t)list->count, sizeof *list->paths, compare_paths);
    return status;
}

static Status make_one(const char *path) {
    PathKind kind = PATH_ABSENT;
    if (mkdir(path, 0777) == 0) return OK;
    int reason = errno;
    if (reason == EEXIST) TRY(path_kind(path, &kind));
    errno = reason;
    return kind == PATH_FOLDER ? OK : fail_file("make the folder", path);
}

Status directory_make(const char *folder) {
    char *path = memory_text(folder);
    if (!path) return fail_memory(folder);
    Status status = OK;
    for (char *at = path; *at && !status; at++) {
        if (at[1] != '/' && at[1] != 0) continue;
        char after = at[1];
        at[1] = 0;
        status = make_one(path);
        at[1] = after;
    }
    memory_free(path);
    return status;
}

Status directory_lock(const char *folder, int *lock) {
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return fail_file("open", folder);
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0) return OK;
    bool held = errno == EWOULDBLOCK;
    close(*lock);
    *lock = -1;
    return held ? fail(ERROR_FILE, "another process writes into %s now", folder) : OK;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *place) {
    (void)about, (void)type, (void)place;
    return remove(path);
}

Status directory_remove(const char *folder) {
    struct stat about;
    if (lstat(folder, &about) != 0) return errno == ENOENT ? OK : fail_file("examine", folder);
    if (nftw(folder, remove_entry, 32, FTW_DEPTH | FTW_PHYS) != 0) return fail_file("remove", folder);
    return OK;
}

/* ---- publishing a folder ---- */

/* `target` without trailing slashes, and `ending` behind it. */
static char *path_beside(const char *target, const char *ending) {
    size_t length = strlen(target), room = length + strlen(ending) + 1;
    while (length > 1 && target[length - 1] == '/') length--;
    char *path = memory_allocate(room);
    if (path) snprintf(path, room, "%.*s%s", (int)length, target, ending);
    return path;
}

Status directory_discard(const char *folder) {
    char *aside = path_beside(folder, ".tmp");
    if (!aside) return fail_memory(folder);
    Status status = directory_remove(aside);
    if (!status && rename(folder, aside) != 0) status = fail_file("rename", folder);
    if (!status) status = directory_remove(aside);
    memory_free(aside);
    return status;
}

Status directory_stage(const char *target, char **stage) {
    *stage = path_beside(target, ".tmp");
    if (!*stage) return fail_memory(target);
    Status status = directory_remove(*stage);
    if (!status) status = directory_make(*stage);
    if (!status) return OK;
    memory_free(*stage);
    *stage = NULL;
    return status;
}

static int flush_entry(const char *path, const struct stat *about, int type, struct FTW *place) {
    (void)about, (void)place;
    if (type != FTW_F && type != FTW_DP) return 0;
    Status status = flush_path(path);
    int failed = status ? errno : 0;
    status_free(status);
    errno = failed;
    return failed ? -1 : 0;
}

/* The first of its name, or the fallback where two folders cannot be exchanged at once. */
static Status replace_folder(const char *stage, const char *target, const char *old) {
    PathKind kind;
    TRY(path_kind(target, &kind));
    if (kind == PATH_ABSENT)
        return rename(stage, target) == 0 ? flush_parent(target) : fail_file("rename", stage);
    TRY(directory_remove(old));
    if (rename(target, old) != 0) return fail_file("rename", target);
    if (rename(stage, target) != 0) return fail_file("rename", stage);
    TRY(flush_parent(target));
    return directory_remove(old);
}

Status directory_publish(const char *stage, const char *target) {
    char *place = path_beside(target, ""), *old = path_beside(target, ".old");
    Status status = OK;
    if (!place || !old)
        status = fail_memory(target);
    else if (nftw(stage, flush_entry, 32, FTW_DEPTH | FTW_PHYS) != 0)
        status = fail_file("flush", stage);
    else if (renameat2(AT_FDCWD, stage, AT_FDCWD, place, RENAME_EXCHANGE) == 0) {
        status = flush_parent(place);
        if (!status) status = directory_remove(stage);
    } else {
        status = replace_folder(stage, place, old);
    }
    memory_free(place);
    memory_free(old);
    return status;
}
