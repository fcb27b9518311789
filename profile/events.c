#include "profile/events.h"

#include "base/files.h"
#include "base/memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct Events {
    int descriptor; // -1: no log
    bool open;      // between begin and end
    char *path;
    JsonWriter line;
};

/* Cuts an incomplete last line. Pipes and terminals have none. */
static Status cut_half_line(const Events *events) {
    char block[4096];
    struct stat about;
    if (fstat(events->descriptor, &about) != 0) return fail_file("examine the log", events->path);
    if (!S_ISREG(about.st_mode)) return OK;
    off_t end = about.st_size, keep = 0;
    while (end > 0 && keep == 0) {
        off_t start = end > (off_t)sizeof block ? end - (off_t)sizeof block : 0;
        ssize_t got = pread(events->descriptor, block, (size_t)(end - start), start);
        if (got != end - start) return fail_file("read the log", events->path);
        while (got > 0 && block[got - 1] != '\n') got--;
        if (got > 0) keep = start + got;
        end = start;
    }
    if (keep < about.st_size && ftruncate(events->descriptor, keep) != 0)
        return fail_file("cut the log", events->path);
    return OK;
}

Status events_open(const char *path, bool append, Events **events) {
    *events = NULL;
    Events *e = memory_allocate(sizeof *e);
    /* A pipe can be written but not read back. */
    struct stat about;
    bool readable = append && stat(path, &about) == 0 && S_ISREG(about.st_mode);
    int flags = (readable ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC);
    e->path = memory_text(path);
    e->descriptor = *path ? open(path, flags, 0666) : -1;
    Status status = OK;
    if (*path && e->descriptor < 0)
        status = fail_file("open the log", path);
    else if (readable)
        status = cut_half_line(e);
    if (status)
        events_close(e);
    else
        *events = e;
    return status;
}

void events_close(Events *events) {
    if (!events) return;
    if (events->descriptor >= 0) close(events->descriptor);
    json_writer_free(&events->line);
    memory_free(events->path);
    memory_free(events);
}

JsonWriter *events_begin(Events *events, const char *event) {
    assert(!events->open);
    events->open = true;
    json_writer_clear(&events->line);
    json_write_open(&events->line, '{');
    json_member_text(&events->line, "event", event);
    return &events->line;
}

Status events_end(Events *events) {
    assert(events->open);
    events->open = false;
    if (events->descriptor < 0) return OK;
    JsonWriter *line = &events->line;
    json_write_close(line, '}');
    /* Newlines in embedded JSON values become blanks; inside strings they are already escaped. */
    for (char *at = line->text; (at = strchr(at, '\n'));) *at = ' ';
    line->text[line->length] = '\n'; /* overwrites the terminating zero */
    for (size_t done = 0; done < line->length + 1;) {
        ssize_t wrote = write(events->descriptor, line->text + done, line->length + 1 - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return fail_file("write the log", events->path);
        done += (size_t)wrote;
    }
    return OK;
}
