#define _GNU_SOURCE
#include "base/directories.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

Status directory_list(const char *folder, PathList *list) {
    *list = (PathList){0};
    DIR *directory = opendir(folder);
    if (!directory) return fail_file("list", folder);
    struct dirent *entry;
    while ((errno = 0, entry = readdir(directory)))
        if (entry->d_name[0] != '.') path_list_add(list, path_join(folder, entry->d_name));
    Status status = errno ? fail_file("list", folder) : OK;
    closedir(directory);
    if (status) path_list_free(list);
    path_list_sort(list);
    return status;
}

static Status make_one(const char *path) {
    PathKind kind = PATH_ABSENT;
    if (mkdir(path, 0777) == 0) return path_flush_parent(path);
    int reason = errno;
    if (reason == EEXIST) TRY(path_kind(path, &kind));
    if (kind == PATH_FOLDER) return OK;
    if (kind != PATH_ABSENT)
        return fail(ERROR_FILE, "cannot make the folder %s: a file of that name exists", path);
    errno = reason;
    return fail_file("make the folder", path);
}

Status directory_make(const char *folder) {
    OWNED char *path = memory_text(folder);
    for (char *at = path; *at; at++) {
        if (at[1] != '/' && at[1] != 0) continue;
        char after = at[1];
        at[1] = 0;
        TRY(make_one(path));
        at[1] = after;
    }
    return OK;
}

Status directory_lock(const char *folder, int *lock) {
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return fail_file("open", folder);
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return OK;
    close(*lock);
    *lock = -1;
    return fail(ERROR_FILE, "another process is writing into %s", folder);
}

Status directory_held(const char *folder, int lock, bool *held) {
    struct stat locked, named;
    *held = false;
    if (fstat(lock, &locked) != 0) return fail_file("examine", folder);
    if (stat(folder, &named) != 0)
        return errno == ENOENT || errno == ENOTDIR ? OK : fail_file("examine", folder);
    *held = locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
    return OK;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *depth) {
    (void)about, (void)type, (void)depth;
    return remove(path);
}

Status directory_remove(const char *folder) {
    struct stat about;
    if (lstat(folder, &about) != 0) return errno == ENOENT ? OK : fail_file("examine", folder);
    if (nftw(folder, remove_entry, 32, FTW_DEPTH | FTW_PHYS) != 0) return fail_file("remove", folder);
    return OK;
}

/* "name.tmp.1234.0" */
static bool is_temporary(const char *path) {
    const char *at = strstr(path_name(path), ".tmp."), *next;
    while (at && (next = strstr(at + 1, ".tmp."))) at = next;
    size_t process = at ? strspn(at + 5, "0123456789") : 0;
    if (!process || at[5 + process] != '.') return false;
    const char *number = at + 5 + process + 1;
    return *number && number[strspn(number, "0123456789")] == 0;
}

Status directory_clean(const char *folder) {
    CLOSED_BY(path_list_free) PathList list = {0};
    PathKind kind;
    TRY(path_kind(folder, &kind));
    if (kind != PATH_FOLDER) return OK;
    TRY(directory_list(folder, &list));
    for (int64_t i = 0; i < list.count; i++)
        if (is_temporary(list.paths[i])) TRY(directory_remove(list.paths[i]));
    return OK;
}

char *path_in_cache(const char *name, bool make) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = cache && *cache;
    if (!own && !(home && *home)) return NULL;
    OWNED char *folder = path_join(own ? cache : home, own ? "fusebox" : ".cache/fusebox");
    Status status = make ? directory_make(folder) : OK;
    char *path = status ? NULL : path_join(folder, name);
    status_free(status);
    struct stat about;
    if (path && stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) {
        memory_free(path); // opening a pipe could block, because it may have no other end
        return NULL;
    }
    return path;
}

/* ---- publishing a folder ---- */

/* `target` without trailing slashes, followed by `ending`. */
static char *path_with_ending(const char *target, const char *ending) {
    size_t length = strlen(target), room = length + strlen(ending) + 1;
    while (length > 1 && target[length - 1] == '/') length--;
    char *path = memory_allocate(room);
    snprintf(path, room, "%.*s%s", (int)length, target, ending);
    return path;
}

Status directory_discard(const char *folder) {
    OWNED char *aside = path_with_ending(folder, ".tmp");
    TRY(directory_remove(aside));
    if (rename(folder, aside) != 0) return fail_file("rename", folder);
    TRY(path_flush_parent(aside)); // otherwise a power cut could leave half of the folder under its name
    return directory_remove(aside);
}

Status directory_stage(const char *target, char **stage) {
    OWNED char *folder = path_with_ending(target, ".tmp");
    *stage = NULL;
    TRY(directory_remove(folder));
    TRY(directory_make(folder));
    *stage = folder;
    folder = NULL;
    return OK;
}

static int flush_entry(const char *path, const struct stat *about, int type, struct FTW *depth) {
    (void)about, (void)depth;
    if (type != FTW_F && type != FTW_DP) return 0;
    Status status = path_flush(path);
    int failed = status ? errno : 0;
    status_free(status);
    errno = failed;
    return failed ? -1 : 0;
}

/* Exchanges the folders atomically; if the file system cannot, renames twice. */
static Status replace_folder(const char *stage, const char *target, const char *old) {
    PathKind kind;
    TRY(path_kind(target, &kind));
    if (kind == PATH_ABSENT)
        return rename(stage, target) == 0 ? path_flush_parent(target) : fail_file("rename", stage);
    TRY(directory_remove(old));
    if (rename(target, old) != 0) return fail_file("rename", target);
    if (rename(stage, target) != 0) return fail_file("rename", stage);
    TRY(path_flush_parent(target));
    return directory_remove(old);
}

Status directory_publish(const char *stage, const char *target) {
    OWNED char *folder = path_with_ending(target, ""), *old = path_with_ending(target, ".old");
    if (nftw(stage, flush_entry, 32, FTW_DEPTH | FTW_PHYS) != 0) return fail_file("flush", stage);
    if (renameat2(AT_FDCWD, stage, AT_FDCWD, folder, RENAME_EXCHANGE) != 0)
        return replace_folder(stage, folder, old);
    TRY(path_flush_parent(folder));
    return directory_remove(stage);
}
