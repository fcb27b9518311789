/* files: everything that reads or writes the file system. Errors name the path and the system's reason. */
#ifndef BASE_FILES_H
#define BASE_FILES_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
 * renames. Until then `path` is untouched. Exactly one of close and abandon ends a writer; both take NULL.
 * A device or a pipe (/dev/stdout, /dev/null) is not replaced: the bytes go into it as they come. Of a link
 * the file that it leads to is replaced. */
typedef struct FileWriter FileWriter;
CHECKED Status file_writer_open(const char *path, FileWriter **writer);
CHECKED Status file_writer_append(FileWriter *writer, const void *data, int64_t bytes);
/* Writes at an absolute offset, without moving the place where append goes on; gaps read as zeros. Not
 * for a device or a pipe: ERROR_FILE. */
CHECKED Status file_writer_write_at(FileWriter *writer, int64_t offset, const void *data, int64_t bytes);
/* On an error the temporary file is gone, and `path` is as it was. */
CHECKED Status file_writer_close(FileWriter *writer);
void file_writer_abandon(FileWriter *writer);

/* Opens, appends and closes in one. */
CHECKED Status file_write(const char *path, const void *data, int64_t bytes);

/* Paths. `path_join` puts one slash between; an absolute `name` stands alone. `path_name` is what follows the
 * last slash, a part of `path`. */
CHECKED Status path_join(const char *folder, const char *name, char **joined);
const char *path_name(const char *path);

/* What a path leads to, links followed. Absent is only what is not there: what cannot be seen for any other
 * reason may be there, and is an ERROR_FILE. A device or a pipe is a PATH_FILE. */
typedef enum { PATH_ABSENT, PATH_FILE, PATH_FOLDER } PathKind;
CHECKED Status path_kind(const char *path, PathKind *kind);
/* Whether both lead to the same file or folder. ERROR_FILE where one is not there. */
CHECKED Status path_same(const char *one, const char *other, bool *same);
bool path_ends_with(const char *path, const char *ending);

/* The path of a file in the user's cache, $XDG_CACHE_HOME/fusebox or ~/.cache/fusebox, which the caller
 * frees; `make` makes the folder. NULL when there is nowhere to keep one. */
char *path_in_cache(const char *name, bool make);

typedef struct {
    char **paths;
    int64_t count;
} PathList;

/* Every entry of a folder, with the folder before it, sorted bytewise; hidden entries are left out. */
CHECKED Status directory_list(const char *folder, PathList *list);
/* What a shell's pattern (* ? [...]) matches, sorted bytewise. No match gives an empty list. */
CHECKED Status path_glob(const char *pattern, PathList *list);
void path_list_free(PathList *list);

CHECKED Status directory_make(const char *folder); // with its parents; one that exists is fine

/* Takes a folder for this process until it closes `lock`: ERROR_FILE if another holds it. A file system that
 * knows no locks refuses nobody; `lock` is then -1. */
CHECKED Status directory_lock(const char *folder, int *lock);

/* Removes a file or a folder with all below it, not following symbolic links. What is missing is fine. */
CHECKED Status directory_remove(const char *folder);

/* Removes a folder that others look for, under the name `folder`.tmp: killed at any time, `folder` is whole
 * or gone. */
CHECKED Status directory_discard(const char *folder);

/* Replaces a folder as a whole. `directory_stage` makes an empty folder beside `target`, named `target`.tmp
 * (one that an interrupted process left is emptied), and gives its path. When all is written,
 * `directory_publish` flushes every file and folder in it to disk and puts it in the place of `target`,
 * exchanging the two at once where the file system can, and removes the old one. Killed at any time, `target`
 * is the old folder or the new one. (Where exchanging is not supported the old one is for an instant named
 * `target`.old instead.) One process at a time may publish the same target. To give up, directory_remove the
 * stage. */
CHECKED Status directory_stage(const char *target, char **stage);
CHECKED Status directory_publish(const char *stage, const char *target);

#ifdef __cplusplus
}
#endif
#endif
