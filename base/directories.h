/* directories: create, list, lock, remove and replace folders. Errors are those of base/files.h. */
#pragma once

#include "base/files.h"

__BEGIN_DECLS

/* Lists the entries of a folder as paths, sorted bytewise, without hidden ones. */
CHECKED Status directory_list(const char *folder, PathList *list);

/* Creates a folder and its parents, each flushed to disk. An existing folder is fine. */
CHECKED Status directory_make(const char *folder);

/* Locks a folder for this process until it closes `lock`. ERROR_FILE if another process holds the lock.
 * Succeeds on file systems without locks. */
CHECKED Status directory_lock(const char *folder, int *lock);
/* Whether the path still names the folder that was locked. */
CHECKED Status directory_held(const char *folder, int lock, bool *held);

/* Removes a file or a folder with its contents, without following symbolic links. A missing one is fine. */
CHECKED Status directory_remove(const char *folder);

/* Removes temporary files (base/files.h) that killed processes left in a folder, which no other process
 * may be using. A missing folder is fine. */
CHECKED Status directory_clean(const char *folder);

/* Removes a folder that other processes read, by renaming it to `folder`.tmp first. If killed at any time,
 * `folder` is whole or gone. */
CHECKED Status directory_discard(const char *folder);

/* Replaces a folder atomically. `directory_stage` creates an empty folder `target`.tmp, or empties a
 * leftover one, and returns its path. `directory_publish` flushes every file and folder in it, exchanges
 * it with `target`, and removes the old one. If killed at any time, `target` is the old folder or the new
 * one. (File systems that cannot exchange two names have the old folder under `target`.old for an
 * instant.) Only one process may publish to a target at a time. To cancel, directory_remove the stage. */
CHECKED Status directory_stage(const char *target, char **stage);
CHECKED Status directory_publish(const char *stage, const char *target);

/* The path of a file in the user's cache, $XDG_CACHE_HOME/fusebox or ~/.cache/fusebox. The caller frees
 * it. `make` creates the folder. NULL if there is no cache folder, or a pipe or a device bears the name. */
char *path_in_cache(const char *name, bool make);

__END_DECLS
