/* Fuzzes the cached list of a folder of pictures, after its first two entries, which are valid. All folders
 * have the mtime "D1.000000000 ". Whatever the list says, pictures must be in the folder, and each must have
 * a class. */
#define _GNU_SOURCE
#include "base/directories.h"
#include "base/memory.h"
#include "tasks/pictures/images/images.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char root[] = "/dev/shm/fuzz-XXXXXX";

static void leave(void) {
    status_free(directory_remove(root));
}

/* Two classes with a picture each, which is never opened. */
static void make_folders(void) {
    static const char *const names[] = {"a", "b", "b/c", ""};
    const struct timespec one[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[64];
    must(mkdtemp(root) && atexit(leave) == 0);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        must(!*names[i] || mkdir(path, 0777) == 0);
        snprintf(path, sizeof path, "%s/%s/x.png", root, names[i]);
        if (*names[i]) must(close(open(path, O_CREAT | O_WRONLY, 0666)) == 0);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        must(utimensat(AT_FDCWD, path, one, 0) == 0);
    }
}

static void check(ImageSource *source) {
    for (int64_t i = 0; i < images_count(source); i++) {
        char *name = images_name(source, i);
        int32_t label = images_label(source, i);
        must(label >= 0 && label < images_classes(source) && images_class_name(source, label));
        must(strncmp(name, root, sizeof root - 1) == 0 && name[sizeof root - 1] == '/');
        must(!strstr(name, "/../") && !path_ends_with(name, "/.."));
        memory_free(name);
    }
    images_close(source);
}

static void read_folder(const uint8_t *data, size_t size) {
    static const char first[] = "fusebox pictures 1";
    static bool made;
    char name[64];
    ImageSource *source;
    if (!made) {
        make_folders();
        made = true;
        must(!images_open_files(root, &source));
        check(source);
    }
    uint8_t *list = memory_allocate(sizeof first + sizeof root + size);
    memcpy(list, first, sizeof first);
    memcpy(list + sizeof first, root, sizeof root);
    if (size) memcpy(list + sizeof first + sizeof root, data, size);
    snprintf(name, sizeof name, "pictures-%08lx.list", crc32(0, (const Bytef *)root, sizeof root - 1));
    scratch_put(name, list, sizeof first + sizeof root + size);
    memory_free(list);
    Status status = images_open(root, IMAGES_TRAIN, SCRATCH, &source);
    if (!status) check(source);
    if (status) must_refuse(status, ERROR_FORMAT);
}

FUZZ(folder, read_folder, NULL)
