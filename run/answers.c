#define _GNU_SOURCE
#include "run/answers.h"

#include "base/json_writer.h"
#include "base/memory.h"
#include "kernels/device/device.h"
#include "run/print_text.h"
#include "run/progress.h"
#include "run/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* An answer that waits until all answers before it are written. */
typedef struct {
    char *bytes;
    int64_t count;
} Held;

struct Answers {
    AnswersOptions options;
    JsonWriter run;   // the first line of an unfinished file, which identifies the run
    char *path;       // FILE.part; NULL: standard output, or a pipe
    FILE *part;       // FILE.part, open
    FILE *unnamed;    // FILE.part as an unnamed file, if FILE is a pipe and answers are records
    FileWriter *pipe; // FILE, if it is a pipe or a device: each line is written immediately
    Held *held;       // (total)
    int64_t kept;     // answers of earlier runs
    int64_t added;    // answers of this run
    int64_t next;     // the next number to write
    double start;     // seconds
    Progress *bar;
};

/* ---- the unfinished file ---- */

/* "{"model": ..., "input": ..., "options": {...}}": identifies the same command on the same input. */
static void name_run(Answers *a) {
    const AnswersOptions *o = &a->options;
    char digest[17], *options = options_json(o->set, false);
    snprintf(digest, sizeof digest, "%016" PRIx64, o->input);
    json_write_open(&a->run, '{');
    json_member_text(&a->run, "model", session_model_name(o->session));
    json_member_text(&a->run, "input", digest);
    json_write_key(&a->run, "options");
    json_write_json(&a->run, options);
    json_write_close(&a->run, '}');
    memory_free(options);
}

static int64_t header_bytes(const Answers *a) {
    return (int64_t)a->run.length + 1;
}

/* Counts the complete answers of a file, which end at *end. */
static void count_kept(Answers *a, const FileMap *map, int64_t *end) {
    const AnswersOptions *o = &a->options;
    const char *text = (const char *)map->data, *newline;
    *end = header_bytes(a);
    if (o->record) {
        a->kept = (map->size - *end) / o->record;
        *end += a->kept * o->record;
    }
    while (!o->record && (newline = memchr(text + *end, '\n', (size_t)(map->size - *end))) != NULL) {
        if (o->keep && a->kept < o->total) o->keep(o->context, a->kept, text + *end, newline - text - *end);
        a->kept++;
        *end = newline + 1 - text;
    }
}

/* *end is 0 if not even the first line is complete. */
static Status read_part(Answers *a, int64_t *end) {
    FileMap map;
    *end = 0;
    TRY(file_map(a->path, &map));
    int64_t header = header_bytes(a), same = map.size < header ? map.size : header - 1;
    bool ours = memcmp(map.data, a->run.text, (size_t)same) == 0;
    if (ours && map.size >= header && map.data[header - 1] == '\n') count_kept(a, &map, end);
    ours = ours && (*end || map.size < header) && a->kept <= a->options.total;
    file_unmap(&map);
    if (ours) return OK;
    return fail(ERROR_USAGE,
                "%s is what a run with other options, another model or another input has left unfinished: "
                "repeat that command, remove the file, or name another --output",
                a->path);
}

static Status open_part(Answers *a) {
    int64_t end;
    int file = open(a->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    a->part = file < 0 ? NULL : fdopen(file, "r+");
    if (!a->part) return fail_file("write", a->path);
    if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return fail(ERROR_FILE, "another process is writing into %s", a->path);
    TRY(read_part(a, &end));
    if (ftruncate(file, end) != 0 || fseek(a->part, 0, SEEK_END) != 0) return fail_file("write", a->path);
    if (!end && (fprintf(a->part, "%s\n", a->run.text) < 0 || fflush(a->part) != 0))
        return fail_file("write", a->path);
    if (a->kept && !a->options.options->quiet)
        fprintf(stderr, "%s holds %" PRId64 " of %" PRId64 " answers: continuing after these\n", a->path,
                a->kept, a->options.total);
    return OK;
}

/* Lines go to a pipe immediately; records wait in an unnamed file, because a header precedes them. */
static Status open_output(Answers *a) {
    const char *output = a->options.options->output;
    FileWriter *writer;
    if (!*output) return OK;
    TRY(file_writer_open(output, &writer));
    bool pipe = !file_writer_seeks(writer);
    if (pipe && !a->options.record) {
        a->pipe = writer;
        return OK;
    }
    file_writer_abandon(writer);
    a->unnamed = pipe ? tmpfile() : NULL;
    if (pipe && !a->unnamed) return fail_file("make", "a temporary file");
    name_run(a);
    size_t room = strlen(output) + 32;
    a->path = memory_allocate(room);
    if (pipe)
        snprintf(a->path, room, "/proc/self/fd/%d", fileno(a->unnamed));
    else
        snprintf(a->path, room, "%s.part", output);
    return open_part(a);
}

Status answers_open(const AnswersOptions *options, Answers **answers) {
    Answers *a = memory_allocate(sizeof *a);
    *answers = a;
    a->options = *options;
    a->held = memory_array((size_t)options->total, sizeof *a->held);
    TRY(open_output(a));
    a->next = a->kept;
    a->start = device_clock();
    a->bar = progress_open(stderr, stderr, a->kept, options->total, options->options->quiet);
    signals_catch();
    return OK;
}

void answers_close(Answers *a) {
    if (!a) return;
    bool opened = a->bar;
    progress_close(a->bar);
    if (opened && a->part && !a->next && !a->unnamed) unlink(a->path); // the file contains no answers
    if (a->part) fclose(a->part);
    if (a->unnamed) fclose(a->unnamed);
    file_writer_abandon(a->pipe);
    for (int64_t i = a->next; i < a->options.total; i++) memory_free(a->held[i].bytes);
    memory_free(a->held);
    json_writer_free(&a->run);
    memory_free(a->path);
    memory_free(a);
}

int64_t answers_kept(const Answers *a) {
    return a->kept;
}

/* ---- writing ---- */

static Status write_one(Answers *a, Held *held) {
    Status status = OK;
    if (!a->options.record) held->bytes[held->count++] = '\n';
    size_t count = (size_t)held->count;
    if (a->pipe) {
        status = file_writer_append(a->pipe, held->bytes, held->count);
    } else if (a->part) {
        bool written = fwrite(held->bytes, 1, count, a->part) == count && fflush(a->part) == 0;
        if (!written) status = fail_file("write", a->path);
    } else {
        progress_hide(a->bar); // standard output may be on the terminal of the bar
        status = print_text(NULL, held->bytes, held->count);
    }
    memory_free(held->bytes);
    *held = (Held){0};
    return status;
}

Status answers_add(Answers *a, int64_t number, const void *bytes, int64_t count) {
    char *copy = memory_allocate((size_t)count + 1);
    if (count > 0) memcpy(copy, bytes, (size_t)count);
    a->held[number] = (Held){copy, count};
    a->added++;
    for (; a->next < a->options.total && a->held[a->next].bytes; a->next++)
        TRY(write_one(a, &a->held[a->next]));
    progress_step(a->bar, a->kept + a->added, (device_clock() - a->start) / (double)a->added);
    return OK;
}

static void print_interrupted(const Answers *a) {
    int64_t total = a->options.total;
    if (a->part)
        fprintf(stderr,
                "interrupted: %s holds %" PRId64 " of %" PRId64 " answers; the same command continues\n",
                a->path, a->next, total);
    else
        fprintf(stderr, "interrupted after %" PRId64 " of %" PRId64 " answers\n", a->next, total);
}

static Status publish(Answers *a) {
    const AnswersOptions *o = &a->options;
    const char *output = o->options->output;
    FileMap map;
    if (a->pipe) {
        FileWriter *pipe = a->pipe;
        a->pipe = NULL;
        return file_writer_close(pipe);
    }
    if (!a->part) return OK;
    TRY(file_map(a->path, &map));
    const uint8_t *bytes = map.data + header_bytes(a);
    int64_t count = map.size - header_bytes(a);
    Status status = o->publish ? o->publish(o->context, output, bytes) : file_write(output, bytes, count);
    file_unmap(&map);
    if (!status && !a->unnamed && unlink(a->path) != 0) status = fail_file("remove", a->path);
    return status;
}

Status answers_finish(Answers *a, bool *whole) {
    progress_hide(a->bar);
    *whole = a->next == a->options.total;
    if (*whole) return publish(a);
    print_interrupted(a);
    return OK;
}
