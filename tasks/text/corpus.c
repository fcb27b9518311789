#include "tasks/text/corpus.h"

#include "base/memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* [ch]* matches .cu and .cuh, too. */
static const char *const patterns[] = {
    "README.md",
    "Makefile",
    "*.c",
    "base/*.[ch]",
    "data/*.[ch]",
    "comm/*.[ch]*",
    "kernels/*.[ch]",
    "kernels/*/*.[ch]*",
    "model/*.[ch]",
    "run/*.[ch]",
    "tasks/*.[ch]",
    "tasks/*/*.[ch]",
    "tasks/*/*/*.[ch]",
    "optim/*.[ch]*",
    "profile/*.[ch]",
    "tests/*.c",
    "tests/support/*.[ch]",
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* Removes components from the end of `path` until it is the repository's root. */
static Status find_root(char *path, bool *found) {
    *found = false;
    for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0') {
        char mark[PATH_MAX + 32];
        snprintf(mark, sizeof mark, "%s/kernels/ops.def", path);
        PathKind kind;
        TRY(path_kind(mark, &kind));
        *found = kind != PATH_ABSENT;
        if (*found) return OK;
    }
    return OK;
}

Status corpus_list(PathList *texts) {
    *texts = (PathList){0};
    char root[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", root, sizeof root - 1);
    root[length > 0 ? length : 0] = '\0';
    bool found;
    TRY(find_root(root, &found));
    if (!found && getcwd(root, sizeof root)) TRY(find_root(root, &found));
    if (!found)
        return fail(ERROR_FILE,
                    "the built-in corpus is fusebox's own checkout, which was not found; name a text with "
                    "--data=FILE");
    for (int i = 0; i < PATTERNS; i++) {
        char pattern[PATH_MAX + 64];
        snprintf(pattern, sizeof pattern, "%s/%s", root, patterns[i]);
        CLOSED_BY(path_list_free) PathList some = {0};
        TRY(path_glob(pattern, &some));
        for (int64_t k = 0; k < some.count; k++) path_list_add(texts, some.paths[k]);
        some.count = 0; // `texts` owns the paths now
    }
    return OK;
}
