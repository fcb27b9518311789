/* directories: what makes, lists, locks, removes and replaces folders. Errors are those of base/files.h. */
#pragma once

#include "base/files.h"

__BEGIN_DECLS

/* Every entry of a folder, with the folder before it, sorted bytewise; hidden entries are left out. */
CHECKED Status directory_list(const char *folder, PathList *list);

/* With its parents, each flushed to disk; one that exists is fine. */
CHECKED Status directory_make(const char *folder);

/* Takes a folder for this process until it closes `lock`: ERROR_FILE if another holds it. A file system that
 * knows no locks refuses nobody. */
CHECKED Status directory_lock(const char *folder, int *lock);
/* Whether the name still leads to the folder that was locked. */
CHECKED Status directory_held(const char *folder, int lock, bool *held);

/* Removes a file or a folder with all below it, not following symbolic links. What is missing is fine. */
CHECKED Status directory_remove(const char *folder);

/* Removes the temporary files that killed writers (base/files.h) left in a folder, which must be this
 * process's alone. A folder that is missing is fine. */
CHECKED Status directory_clean(const char *folder);

/* Removes a folder that others look for, under the name `folder`.tmp: killed at any time, `folder` is whole
 * or gone. */
CHECKED Status directory_discard(const char *folder);

/* Replaces a folder as a whole. `directory_stage` makes an empty folder beside `target`, named `target`.tmp
 * (one that an interrupted process left is emptied), and gives its path. When all is written,
 * `directory_publish` flushes every file and folder in it to disk, exchanges it with `target`, at once where
 * the file system can, and removes the old one. Killed at any time, `target` is the old folder or the new
 * one. (Where exchanging is not supported the old one is for an instant named `target`.old instead.) One
 * process at a time may publish the same target. To give up, directory_remove the stage. */
CHECKED Status directory_stage(const char *target, char **stage);
CHECKED Status directory_publish(const char *stage, const char *target);

/* The path of a file in the user's cache, $XDG_CACHE_HOME/fusebox or ~/.cache/fusebox, which the caller
 * frees; `make` makes the folder. NULL when there is nowhere to keep one. */
char *path_in_cache(const char *name, bool make);

__END_DECLS
