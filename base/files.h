/* files: reading and writing files, and operations on paths. Folders are in base/directories.h. Errors
 * name the path and the system's reason. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

__BEGIN_DECLS

/* A file mapped read-only. An empty file has a valid pointer to no data. Truncating a mapped file kills
 * the process, so never write in place to a file in use. */
typedef struct {
    const uint8_t *data;
    int64_t size; // bytes
} FileMap;

CHECKED Status file_map(const char *path, FileMap *map);
void file_unmap(FileMap *map); // accepts an all-zero map, and leaves an all-zero map

/* Reads a whole file of at most `limit` bytes; the caller frees it with memory_free. A zero byte follows
 * the text and is not counted in `length`. A longer file is an ERROR_FORMAT. `path` may be a pipe. */
CHECKED Status file_read(const char *path, int64_t limit, char **text, int64_t *length);

/* An atomic writer. The bytes go to a temporary file beside `path`, which close() flushes and renames;
 * until then `path` is untouched. Call close or abandon exactly once; both accept NULL. A device or a pipe
 * (/dev/stdout, /dev/null) is written directly. If `path` is a link, its target is replaced. */
typedef struct FileWriter FileWriter;
CHECKED Status file_writer_open(const char *path, FileWriter **writer);
CHECKED Status file_writer_append(FileWriter *writer, const void *data, int64_t bytes);
/* Writes at an absolute offset and does not move the position of append. Gaps read as zeros. ERROR_FILE on
 * a device or a pipe. */
CHECKED Status file_writer_write_at(FileWriter *writer, int64_t offset, const void *data, int64_t bytes);
bool file_writer_seeks(const FileWriter *writer); // true for a regular file
/* For several processes that write one file: the temporary file of a seeking writer, and a writer that
 * joins it. Closing or abandoning the joined writer does not affect the file. */
const char *file_writer_temporary(const FileWriter *writer);
CHECKED Status file_writer_join(const char *temporary, FileWriter **writer);
/* On an error the temporary file is removed and `path` is unchanged. */
CHECKED Status file_writer_close(FileWriter *writer);
void file_writer_abandon(FileWriter *writer);
/* Closes the writer if `written` is OK, else abandons it. */
CHECKED static inline Status file_writer_finish(FileWriter *writer, Status written) {
    if (!written) return file_writer_close(writer);
    file_writer_abandon(writer);
    return written;
}

/* Opens, appends and closes. */
CHECKED Status file_write(const char *path, const void *data, int64_t bytes);

/* `path_join` joins folder and name with one slash, and returns an absolute `name` unchanged; the caller
 * frees the result. `path_name` points to what follows the last slash. */
char *path_join(const char *folder, const char *name);
const char *path_name(const char *path);

/* The kind of a path, with links followed. A device or a pipe is a PATH_FILE. PATH_ABSENT means "no such
 * file"; any other failure to look is an ERROR_FILE. */
typedef enum { PATH_ABSENT, PATH_FILE, PATH_FOLDER } PathKind;
CHECKED Status path_kind(const char *path, PathKind *kind);
/* Whether two paths lead to the same file or folder. ERROR_FILE if one does not exist. */
CHECKED Status path_same(const char *one, const char *other, bool *same);
bool path_ends_with(const char *path, const char *ending);
/* ERROR_FILE if the path is a link, a pipe or a device. Use it before writing to a folder that may come
 * from a stranger. */
CHECKED Status path_refuse_link(const char *path);

// all zero: no paths
typedef struct {
    char **paths;
    int64_t count, room;
} PathList;
void path_list_add(PathList *list, char *path); // takes ownership of `path`
void path_list_sort(PathList *list);            // bytewise
void path_list_free(PathList *list);

/* Paths that match a shell pattern (* ? [...]), sorted bytewise; possibly none. */
CHECKED Status path_glob(const char *pattern, PathList *list);

/* ---- for callers of the system's own file functions ---- */

/* "cannot open PATH: No such file or directory", with the reason from errno. ENOMEM gives ERROR_MEMORY. */
CHECKED Status fail_file(const char *doing, const char *path);

/* Flushes a file, a folder, or the parent folder of `path` to disk, so that it survives a power cut. */
CHECKED Status path_flush(const char *path);
CHECKED Status path_flush_parent(const char *path);

__END_DECLS
