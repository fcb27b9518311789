/* files: reading and writing files, and their paths. Folders are made and replaced in base/directories.h.
 * Errors name the path and the system's reason. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

__BEGIN_DECLS

/* A whole file mapped read-only. The data of an empty file is a valid pointer to nothing. A file that
 * somebody else shortens while it is mapped kills the process: do not write in place to files that are in
 * use. */
typedef struct {
    const uint8_t *data;
    int64_t size; // bytes
} FileMap;

CHECKED Status file_map(const char *path, FileMap *map);
void file_unmap(FileMap *map); // an all-zero map is fine; leaves it all-zero

/* Reads a whole file of at most `limit` bytes into memory that the caller frees with memory_free. A zero byte
 * follows the text and is not counted in `length`. A longer file is an ERROR_FORMAT. `path` may be a pipe. */
CHECKED Status file_read(const char *path, int64_t limit, char **text, int64_t *length);

/* An atomic writer: the bytes go to a temporary file beside `path`, which close() flushes to disk and
 * renames. Until then `path` is untouched. Exactly one of close and abandon ends a writer; both take NULL. A
 * device or a pipe (/dev/stdout, /dev/null) is not replaced: the bytes go into it as they come. Where `path`
 * is a link, the file that it leads to is replaced. */
typedef struct FileWriter FileWriter;
CHECKED Status file_writer_open(const char *path, FileWriter **writer);
CHECKED Status file_writer_append(FileWriter *writer, const void *data, int64_t bytes);
/* Writes at an absolute offset and leaves alone where append goes on; gaps read as zeros. A device or a pipe
 * is an ERROR_FILE. */
CHECKED Status file_writer_write_at(FileWriter *writer, int64_t offset, const void *data, int64_t bytes);
bool file_writer_seeks(const FileWriter *writer); // it is neither
/* For several processes that write one file: the temporary file of a writer that seeks; and a writer that writes
 * at offsets of such a file, which stays the other's: closing and abandoning leave it alone. */
const char *file_writer_temporary(const FileWriter *writer);
CHECKED Status file_writer_join(const char *temporary, FileWriter **writer);
/* On an error the temporary file is gone, and `path` is as it was. */
CHECKED Status file_writer_close(FileWriter *writer);
void file_writer_abandon(FileWriter *writer);
/* Closes it where all that was written succeeded, else abandons it. */
CHECKED static inline Status file_writer_finish(FileWriter *writer, Status written) {
    if (!written) return file_writer_close(writer);
    file_writer_abandon(writer);
    return written;
}

/* Opens, appends and closes in one. */
CHECKED Status file_write(const char *path, const void *data, int64_t bytes);

/* `path_join` puts one slash between folder and name; an absolute `name` stands alone. The caller frees it.
 * `path_name` is what follows the last slash, a part of `path`. */
char *path_join(const char *folder, const char *name);
const char *path_name(const char *path);

/* What a path leads to, links followed. Absent is only what is not there: what cannot be seen for any other
 * reason may be there, and is an ERROR_FILE. A device or a pipe is a PATH_FILE. */
typedef enum { PATH_ABSENT, PATH_FILE, PATH_FOLDER } PathKind;
CHECKED Status path_kind(const char *path, PathKind *kind);
/* Whether both lead to the same file or folder. ERROR_FILE where one is not there. */
CHECKED Status path_same(const char *one, const char *other, bool *same);
bool path_ends_with(const char *path, const char *ending);
/* ERROR_FILE where it is a link, a pipe or a device: for what is written into a folder that may be a
 * stranger's. */
CHECKED Status path_refuse_link(const char *path);

/* All-zero: no paths. */
typedef struct {
    char **paths;
    int64_t count, room;
} PathList;
void path_list_add(PathList *list, char *path); // takes `path` over
void path_list_sort(PathList *list);            // bytewise
void path_list_free(PathList *list);

/* What a shell's pattern (* ? [...]) matches, sorted bytewise. No match gives an empty list. */
CHECKED Status path_glob(const char *pattern, PathList *list);

/* ---- for those that work on files by the system's own calls ---- */

/* "cannot open PATH: No such file or directory": the reason is errno's, and that of ENOMEM an ERROR_MEMORY. */
CHECKED Status fail_file(const char *doing, const char *path);

/* Flush a file or a folder, or the folder that holds `path`, so that what it holds survives a power cut. */
CHECKED Status path_flush(const char *path);
CHECKED Status path_flush_parent(const char *path);

__END_DECLS
