#include "data/corpus.h"

#include "base/memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const patterns[] = {
    "README.md",        "Makefile",       "*.c",
    "base/*.[ch]",      "data/*.[ch]",    "kernels/*.[ch]",
    "kernels/*/*.[ch]", "kernels/*/*.cu", "kernels/*/*.cuh",
    "model/*.[ch]",     "optim/*.[ch]",   "optim/*.cu",
    "profile/*.[ch]",   "tests/*.c",      "tests/support/*.[ch]",
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* Cuts folders off the end of `path` until it is a checkout's root. */
static bool find_root(char *path) {
    for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0') {
        char mark[PATH_MAX + 32];
        snprintf(mark, sizeof mark, "%s/kernels/ops.def", path);
        if (path_exists(mark)) return true;
    }
    return false;
}

static Status append(PathList *all, PathList *some) {
    if (some->count == 0) return OK;
    char **grown = memory_resize(all->paths, (size_t)(all->count + some->count) * sizeof *grown);
    if (!grown) return fail(ERROR_MEMORY, "out of host memory to list the built-in corpus");
    memcpy(grown + all->count, some->paths, (size_t)some->count * sizeof *grown);
    all->paths = grown;
    all->count += some->count;
    some->count = 0; // the strings have moved
    return OK;
}

Status corpus_list(PathList *texts) {
    *texts = (PathList){0};
    char root[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", root, sizeof root - 1);
    root[length > 0 ? length : 0] = '\0';
    if (!find_root(root) && !(getcwd(root, sizeof root) && find_root(root)))
        return fail(ERROR_FILE,
                    "the built-in corpus is fusebox's own checkout, and it is not here; name a text with "
                    "--data=FILE");
    for (int i = 0; i < PATTERNS; i++) {
        char pattern[PATH_MAX + 64];
        snprintf(pattern, sizeof pattern, "%s/%s", root, patterns[i]);
        PathList found = {0};
        Status status = path_glob(pattern, &found);
        if (!status) status = append(texts, &found);
        path_list_free(&found);
        if (status) {
            path_list_free(texts);
            return status;
        }
    }
    return OK;
}
