/* The file of choices: one line for each product, its key, the algorithm's fingerprint and time. Nothing
 * in it is believed: a line only picks one among the proposals for the very same product, so
 * that a damaged file costs time at worst. */
#include "kernels/gemm/cuda_plan.cuh"

#include "base/directories.h"
#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_LIMIT = 1 << 20, LINE_LIMIT = 512 };
enum { LOCK_LOOKS = 30000, LOOK_MICROSECONDS = 1000 }; // a race takes seconds at most

/* The path of this device's and library's file, or NULL when there is nowhere to keep one. */
static char *choices_path(const CudaDevice *device, bool make) {
    char name[400];
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    snprintf(name, sizeof name, "products %s %s driver %d.txt", device->base.name, device->base.library,
             driver);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.') *c = '-';
    return path_in_cache(name, make);
}

static bool setting_is(const char *word) {
    const char *setting = getenv("FUSEBOX_TUNE");
    return setting && strcmp(setting, word) == 0;
}

OwnKernel choice_of_own() {
    return setting_is("own") ? OWN_ALWAYS : setting_is("library") ? OWN_NEVER : OWN_PROPOSED;
}

bool choices_wanted() {
    if (setting_is("0")) return false;
    char *path = path_in_cache("products", false);
    memory_free(path);
    return path != NULL;
}

/* The whole file, "" when there is none that can be read; NULL without memory. */
static char *choices_read(const char *path) {
    char *text = NULL;
    int64_t length;
    Status status = file_read(path, FILE_LIMIT, &text, &length);
    if (!status) return text;
    status_free(status);
    return memory_text("");
}

/* The lock is the folder's: the file is replaced with each choice. */
int choices_lock() {
    char *folder = path_in_cache(".", true);
    int lock = -1;
    for (int looks = 0; folder && lock < 0 && looks < LOCK_LOOKS; looks++) {
        if (looks > 0) usleep(LOOK_MICROSECONDS);
        status_free(directory_lock(folder, &lock));
    }
    memory_free(folder);
    return lock;
}

/* One line: the key's words, the fingerprint, the time. */
static bool line_parse(const char *line, PlanKey *key, Choice *choice) {
    int64_t words[PLAN_KEY_WORDS];
    char *end;
    for (int i = 0; i < PLAN_KEY_WORDS; i++, line = end) {
        words[i] = strtoll(line, &end, 10);
        if (end == line || *end != ' ') return false;
    }
    choice->fingerprint = strtoull(line, &end, 16);
    if (end == line || *end != ' ') return false;
    line = end;
    choice->microseconds = strtof(line, &end);
    if (end == line || *end != '\n' || !(choice->microseconds > 0)) return false;
    memcpy(key, words, sizeof *key);
    return true;
}

bool choice_find(const CudaDevice *device, const PlanKey *key, Choice *choice) {
    char *path = choices_path(device, false), *text = path ? choices_read(path) : NULL;
    bool found = false;
    for (const char *line = text; line && *line && !found;) {
        PlanKey at;
        found = line_parse(line, &at, choice) && memcmp(&at, key, sizeof at) == 0;
        line = strchr(line, '\n');
        if (line) line++;
    }
    memory_free(text);
    memory_free(path);
    return found;
}

static int line_write(char *line, size_t room, const PlanKey *key, const Choice *choice) {
    int64_t words[PLAN_KEY_WORDS];
    size_t at = 0;
    memcpy(words, key, sizeof words);
    for (int64_t word : words) at += (size_t)snprintf(line + at, room - at, "%lld ", (long long)word);
    at += (size_t)snprintf(line + at, room - at, "%016llx %.2f\n", (unsigned long long)choice->fingerprint,
                           (double)choice->microseconds);
    return (int)at;
}

bool choice_keep(const CudaDevice *device, const PlanKey *key, const Choice *choice) {
    char line[LINE_LIMIT], *path = choices_path(device, true), *text = path ? choices_read(path) : NULL;
    FileWriter *writer = NULL;
    bool kept = false;
    if (text && (int64_t)strlen(text) < FILE_LIMIT - LINE_LIMIT) {
        Status status = file_writer_open(path, &writer);
        if (!status) status = file_writer_append(writer, text, (int64_t)strlen(text));
        if (!status) status = file_writer_append(writer, line, line_write(line, sizeof line, key, choice));
        if (!status)
            status = file_writer_close(writer);
        else
            file_writer_abandon(writer);
        kept = status == OK;
        status_free(status);
    }
    memory_free(text);
    memory_free(path);
    return kept;
}
