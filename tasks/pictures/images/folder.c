/* Reads a folder of class folders. */
#define _GNU_SOURCE
#include "base/directories.h"
#include "base/memory.h"
#include "base/tables.h"
#include "tasks/pictures/images/images_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* The files of a folder are listed in a text of zero-terminated entries:
 *
 *     fusebox pictures 1
 *     /data/train             the folder that was listed
 *     D<mtime> <folder>       each folder in it, beginning with itself: D1700000000.123456789
 *     P<name>                 a picture in that folder
 *
 * A cached list is valid as long as the mtime of each folder is unchanged. */

enum { DEPTH_LIMIT = 32, CLASS_DEPTH = 1, LIST_LIMIT = 1 << 30, STAMP = 32 /* characters of an mtime */ };

static const char first_entry[] = "fusebox pictures 1";

static bool is_picture(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".pnm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

/* ---- making a list ---- */

/* A folder, by identity, whatever path or links lead to it. */
typedef struct {
    uint64_t device, file;
} FolderKey;

typedef struct {
    FolderKey key;
} Seen;

typedef struct {
    char *text;
    int64_t length, room;
    Seen *seen; // stb_ds's table of the listed folders
} List;

/* Adds an entry of two parts. */
static void add_entry(List *list, const char *head, const char *tail) {
    int64_t heads = (int64_t)strlen(head), tails = (int64_t)strlen(tail) + 1;
    list->text = memory_grow(list->text, &list->room, list->length + heads + tails, 1);
    memcpy(list->text + list->length, head, (size_t)heads);
    memcpy(list->text + list->length + heads, tail, (size_t)tails);
    list->length += heads + tails;
}

/* "D<mtime> " for a folder; empty if it does not exist. */
static void stamp(const char *root, const char *folder, char text[STAMP], FolderKey *key) {
    struct stat now;
    OWNED char *path = path_join(root, folder);
    *text = 0;
    if (stat(path, &now) != 0) return;
    snprintf(text, STAMP, "D%lld.%09ld ", (long long)now.st_mtim.tv_sec, now.st_mtim.tv_nsec);
    *key = (FolderKey){now.st_dev, now.st_ino};
}

/* Lists the pictures of root/folder, then those of its subfolders. A folder that can be reached in several
 * ways is listed once: links to each other would make endlessly many paths. */
static Status list_folder(const char *root, const char *folder, int depth, List *list) {
    char mtime[STAMP];
    FolderKey key = {0};
    CLOSED_BY(path_list_free) PathList entries = {0};
    PathKind kind;
    if (depth > DEPTH_LIMIT) return fail(ERROR_FORMAT, "%s/%s: too many folders in folders", root, folder);
    stamp(root, folder, mtime, &key);
    if (!*mtime) return fail_file("examine", *folder ? folder : root);
    if (hmgeti(list->seen, key) >= 0) {
        if (depth > CLASS_DEPTH) return OK;
        return fail(ERROR_FORMAT, "%s/%s: a link leads from this class to pictures of another", root, folder);
    }
    hmputs(list->seen, (Seen){key});
    add_entry(list, mtime, folder);
    OWNED char *path = *folder ? path_join(root, folder) : memory_text(root);
    TRY(directory_list(path, &entries));
    for (int64_t i = 0; i < entries.count && depth > 0; i++)
        if (is_picture(entries.paths[i])) add_entry(list, "P", path_name(entries.paths[i]));
    for (int64_t i = 0; i < entries.count; i++) {
        if (is_picture(entries.paths[i])) continue;
        TRY(path_kind(entries.paths[i], &kind));
        if (kind != PATH_FOLDER) continue;
        OWNED char *below = *folder ? path_join(folder, path_name(entries.paths[i]))
                                    : memory_text(path_name(entries.paths[i]));
        TRY(list_folder(root, below, depth + 1, list));
    }
    return OK;
}

/* ---- keeping it ---- */

/* The entry after `entry`; NULL at the end. */
static const char *next_entry(const List *list, const char *entry) {
    const char *next = entry + strlen(entry) + 1;
    return next < list->text + list->length ? next : NULL;
}

/* The folder of an entry if it is unchanged and below the root, with no name beginning with a dot; else
 * NULL. */
static const char *same_folder(const char *root, const char *entry) {
    char mtime[STAMP];
    FolderKey key;
    const char *space = strchr(entry, ' '), *folder = space ? space + 1 : "/";
    if (*entry != 'D' || *folder == '/' || *folder == '.' || strstr(folder, "/.")) return NULL;
    stamp(root, folder, mtime, &key);
    return *mtime && strncmp(entry, mtime, strlen(mtime)) == 0 ? folder : NULL;
}

/* Whether a list is for this folder, and the folders are unchanged. The list may come from someone else, so
 * it must not name pictures elsewhere. */
static bool still_holds(const List *list, const char *root) {
    const char *entry = list->text, *folder = NULL;
    if (!list->length || list->text[list->length - 1] || strcmp(entry, first_entry) != 0) return false;
    entry = next_entry(list, entry);
    if (!entry || strcmp(entry, root) != 0) return false;
    while ((entry = next_entry(list, entry))) {
        bool first = !folder;
        if (*entry == 'P' && (first || !*folder || entry[1] == '.' || strchr(entry, '/'))) return false;
        if (*entry == 'P') continue;
        folder = same_folder(root, entry);
        if (!folder || first == (*folder != 0)) return false; // the root itself comes first
    }
    return folder;
}

static char *kept_name(const char *cache, const char *root) {
    char name[64];
    snprintf(name, sizeof name, "pictures-%08lx.list", crc32(0, (const Bytef *)root, (uInt)strlen(root)));
    return path_join(cache, name);
}

/* The cached list, or a new one, which is then cached. */
static Status find_list(const char *root, const char *cache, List *list) {
    OWNED char *kept = cache ? kept_name(cache, root) : NULL;
    PathKind kind = PATH_ABSENT;
    if (kept) TRY(path_kind(kept, &kind));
    if (kind == PATH_FILE) TRY(file_read(kept, LIST_LIMIT, &list->text, &list->length));
    list->room = list->length;
    if (still_holds(list, root)) return OK;
    list->length = 0;
    add_entry(list, first_entry, "");
    add_entry(list, root, "");
    Status status = list_folder(root, "", 0, list);
    hmfree(list->seen);
    if (status || !cache) return status;
    TRY(directory_make(cache));
    return file_write(kept, list->text, list->length);
}

/* ---- reading it ---- */

static void add_file(ImageSource *s, const char *folder, const char *name) {
    s->files.files = memory_grow(s->files.files, &s->files.room, s->count + 1, sizeof *s->files.files);
    s->labels = memory_grow(s->labels, &s->label_room, s->count + 1, sizeof *s->labels);
    s->files.files[s->count].folder = folder;
    s->files.files[s->count].name = name;
    s->labels[s->count++] = (int32_t)(s->classes - 1);
}

/* The class is the first component of a picture's folder. */
static Status read_list(const List *list, ImageSource *s) {
    const char *folder = "", *class = NULL;
    int64_t class_length = 0, before = 0;
    const char *entry = next_entry(list, next_entry(list, list->text)); // the folder itself
    while ((entry = next_entry(list, entry))) {
        if (*entry == 'P') {
            add_file(s, folder, entry + 1);
            continue;
        }
        folder = strchr(entry, ' ') + 1;
        int64_t length = (int64_t)strcspn(folder, "/");
        if (class && length == class_length && memcmp(class, folder, (size_t)length) == 0) continue;
        if (class && s->count == before) break;
        class = folder;
        class_length = length;
        before = s->count;
        images_add_class(s, class, length);
    }
    if (!class)
        return fail(ERROR_FORMAT, "%s: no class folders: pictures are expected in CLASS/NAME.jpg, and so on",
                    s->files.root);
    if (s->count > before) return OK;
    return fail(ERROR_FORMAT, "%s/%.*s: the folder of a class has no pictures (PNG, JPEG, BMP, PNM)",
                s->files.root, (int)class_length, class);
}

Status images_open_folder(const char *path, const char *cache, ImageSource *source) {
    List list = {0};
    source->files.root = realpath(path, NULL);
    if (!source->files.root) return fail_file("open", path);
    Status status = find_list(source->files.root, cache, &list);
    source->files.text = list.text;
    return status ? status : read_list(&list, source);
}

/* ---- pictures without classes ---- */

static Status list_any(const char *path, List *list, char **root) {
    PathKind kind;
    CLOSED_BY(path_list_free) PathList paths = {0};
    *root = NULL;
    TRY(path_kind(path, &kind));
    if (kind == PATH_FOLDER) {
        *root = memory_text(path);
        Status status = list_folder(path, "", 1, list);
        hmfree(list->seen);
        return status;
    }
    if (kind == PATH_FILE)
        path_list_add(&paths, memory_text(path));
    else
        TRY(path_glob(path, &paths));
    for (int64_t i = 0; i < paths.count; i++) add_entry(list, "P", paths.paths[i]);
    return OK;
}

Status images_open_unnamed(const char *path, ImageSource *source) {
    List list = {0};
    const char *folder = "";
    Status status = list_any(path, &list, &source->files.root);
    source->files.text = list.text;
    TRY(status);
    images_add_class(source, "", 0);
    for (const char *entry = list.length ? list.text : NULL; entry; entry = next_entry(&list, entry)) {
        if (*entry == 'P')
            add_file(source, folder, entry + 1);
        else
            folder = strchr(entry, ' ') + 1;
    }
    if (source->count) return OK;
    return source->files.root ? fail(ERROR_FILE, "no pictures in %s (PNG, JPEG, BMP, PNM)", path)
                              : fail(ERROR_FILE, "there is no file or folder %s", path);
}
