#include "kernels/gemm/choices.h"

#include "base/directories.h"
#include "base/memory.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_LIMIT = 1 << 20, LINE_LIMIT = 512 };
enum { LOCK_LOOKS = 30000, LOOK_MICROSECONDS = 1000 }; // autotuning takes seconds at most

bool choices_wanted(void) {
    const char *setting = getenv("FUSEBOX_TUNE");
    if (setting && strcmp(setting, "0") == 0) return false;
    OWNED char *path = path_in_cache("products", false);
    return path != NULL;
}

/* In a file name, words of device and library names are separated by dashes. */
static char *choices_path(const char *file, bool make) {
    OWNED char *name = memory_text(file);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.') *c = '-';
    return path_in_cache(name, make);
}

/* The whole file; "" if it cannot be read. */
static char *choices_read(const char *path) {
    char *text = NULL;
    int64_t length;
    Status status = file_read(path, FILE_LIMIT, &text, &length);
    if (!status) return text;
    status_free(status);
    return memory_text("");
}

/* Parses one line: the key's words, the fingerprint, the time. Returns whether it is for this key. */
static bool line_parse(const char *line, const int64_t *key, int words, KeptChoice *choice) {
    char *end;
    for (int i = 0; i < words; i++, line = end)
        if (strtoll(line, &end, 10) != key[i] || end == line || *end != ' ') return false;
    choice->fingerprint = strtoull(line, &end, 16);
    if (end == line || *end != ' ') return false;
    line = end;
    choice->microseconds = strtof(line, &end);
    return end != line && *end == '\n' && choice->microseconds > 0;
}

bool choice_find(const char *file, const int64_t *key, int words, KeptChoice *choice) {
    OWNED char *path = choices_path(file, false), *text = path ? choices_read(path) : NULL;
    bool found = false;
    for (const char *line = text; line && *line && !found;) {
        found = line_parse(line, key, words, choice);
        line = strchr(line, '\n');
        if (line) line++;
    }
    return found;
}

static int line_write(char *line, const int64_t *key, int words, const KeptChoice *choice) {
    size_t at = 0;
    for (int i = 0; i < words; i++)
        at += (size_t)snprintf(line + at, LINE_LIMIT - at, "%" PRId64 " ", key[i]);
    at += (size_t)snprintf(line + at, LINE_LIMIT - at, "%016" PRIx64 " %.2f\n", choice->fingerprint,
                           (double)choice->microseconds);
    return (int)at;
}

/* Bytes of the text without an incomplete last line: a line appended after that would become part of it and
 * never be found. */
static size_t whole_lines(const char *text) {
    const char *end = strrchr(text, '\n');
    return end ? (size_t)(end + 1 - text) : 0;
}

static Status write_choices(const char *path, const char *text, const char *line, int64_t bytes) {
    FileWriter *writer;
    TRY(file_writer_open(path, &writer));
    Status status = file_writer_append(writer, text, (int64_t)strlen(text));
    return file_writer_finish(writer, status ? status : file_writer_append(writer, line, bytes));
}

bool choice_keep(const char *file, const int64_t *key, int words, const KeptChoice *choice) {
    char line[LINE_LIMIT];
    OWNED char *path = choices_path(file, true), *text = path ? choices_read(path) : NULL;
    if (!text || (int64_t)strlen(text) >= FILE_LIMIT - LINE_LIMIT) return false;
    text[whole_lines(text)] = 0;
    Status status = write_choices(path, text, line, line_write(line, key, words, choice));
    bool kept = status == OK;
    status_free(status);
    return kept;
}

/* The lock is on the folder, because each write replaces the file. */
int choices_lock(void) {
    OWNED char *folder = path_in_cache(".", true);
    int lock = -1;
    for (int looks = 0; folder && lock < 0 && looks < LOCK_LOOKS; looks++) {
        if (looks > 0) usleep(LOOK_MICROSECONDS);
        status_free(directory_lock(folder, &lock));
    }
    return lock;
}
