#define _GNU_SOURCE
#include "tests/support/program.h"

#include "base/files.h"
#include "base/wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COMMAND = 4096, PATIENCE_MS = 60000, KEPT = 4 };

/* ---- the folder ---- */

static void write_words(const char *path, size_t bytes, uint32_t state) {
    static const char *const words[] = {"one", "token", "after", "another", "makes",
                                        "a",   "text",  "of",    "words"};
    char *text = calloc(bytes + 16, 1);
    for (size_t length = 0; length < bytes; length = strlen(text)) {
        state = state * 1664525 + 1013904223; // Numerical Recipes' generator
        const char *word = words[(state >> 16) % 9];
        snprintf(text + length, 16, "%s%s", word, (state >> 28) == 0 ? ".\n" : " ");
    }
    write_bytes(path, text, bytes);
    free(text);
}

int program_setup(void **state) {
    if (scratch_setup(state) != 0) return -1;
    write_words(inside(*state, "text.txt"), 20000, 1);
    write_words(inside(*state, "validation.txt"), 257, 2);
    return 0;
}

/* ---- running ---- */

/* The folder of the programs: this test is <build>/tests/test_<area>. */
static void build_folder(char *path, size_t room) {
    ssize_t length = readlink("/proc/self/exe", path, room - 1);
    if (length < 0) length = 0;
    path[length] = 0;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
    }
}

/* In the child process: never returns. */
static void become_shell(const char *folder, const char *command) {
    char build[2048], path[8192];
    const char *old = getenv("PATH");
    build_folder(build, sizeof build);
    snprintf(path, sizeof path, "%s:%s/tools:%s", build, build, old ? old : "");
    setenv("PATH", path, 1);
    if (chdir(folder) != 0) _exit(126);
    /* All files of these runs stay inside the folder. Idle threads must not spin, which would starve others
     * on a busy machine. */
    char *here = get_current_dir_name();
    setenv("XDG_CACHE_HOME", here, 1);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    int input = open("/dev/null", O_RDONLY),
        output = open("standard-output", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int error = open("standard-error", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(error, 2) < 0) _exit(126);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(126);
}

static void command_text(char *command, const char *before, const char *format, va_list arguments) {
    size_t length = strlen(strcpy(command, before));
    int more = vsnprintf(command + length, COMMAND - length, format, arguments);
    assert_true(more > 0 && (size_t)more < COMMAND - length);
}

static pid_t start(const char *folder, const char *command) {
    fflush(NULL);
    pid_t program = fork();
    assert_true(program >= 0);
    if (program == 0) become_shell(folder, command);
    return program;
}

static void read_text(const char *path, char *text, size_t room) {
    FILE *file = fopen(path, "rb");
    size_t length = file ? fread(text, 1, room - 1, file) : 0;
    text[length] = 0;
    if (file) fclose(file);
}

const Ran *program_end(const char *folder, pid_t program) {
    static Ran rans[KEPT];
    static int next;
    Ran *ran = &rans[next++ % KEPT];
    int status = 0;
    while (waitpid(program, &status, 0) < 0) assert_int_equal(errno, EINTR);
    ran->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_text(inside(folder, "standard-output"), ran->output, sizeof ran->output);
    read_text(inside(folder, "standard-error"), ran->error, sizeof ran->error);
    return ran;
}

pid_t program_start(const char *folder, const char *format, ...) {
    char command[COMMAND];
    va_list arguments;
    va_start(arguments, format);
    command_text(command, "exec ", format, arguments);
    va_end(arguments);
    return start(folder, command);
}

const Ran *program_run(const char *folder, const char *format, ...) {
    char command[COMMAND];
    va_list arguments;
    va_start(arguments, format);
    command_text(command, "", format, arguments);
    va_end(arguments);
    return program_end(folder, start(folder, command));
}

const Ran *program_succeeds(const char *folder, const char *format, ...) {
    char command[COMMAND];
    va_list arguments;
    va_start(arguments, format);
    command_text(command, "", format, arguments);
    va_end(arguments);
    const Ran *ran = program_end(folder, start(folder, command));
    if (ran->code != 0) fail_msg("exit code %d of: %s\n%s", ran->code, command, ran->error);
    return ran;
}

const Ran *program_refuses(const char *folder, ErrorCode code, const char *part, const char *format, ...) {
    char command[COMMAND];
    va_list arguments;
    va_start(arguments, format);
    command_text(command, "", format, arguments);
    va_end(arguments);
    const Ran *ran = program_end(folder, start(folder, command));
    if (ran->code != (int)code)
        fail_msg("exit code %d, not %d, of: %s\n%s", ran->code, (int)code, command, ran->error);
    size_t length = strlen(ran->error);
    assert_true(length > 0 && ran->error[length - 1] == '\n');
    const char *line = ran->error + length - 1;
    while (line > ran->error && line[-1] != '\n') line--;
    if (line != ran->error && code != ERROR_MEMORY) fail_msg("more than one line: %s", ran->error);
    bool named = strncmp(line, "train: ", 7) == 0 || strncmp(line, "infer: ", 7) == 0 ||
                 strncmp(line, "profile: ", 9) == 0;
    if (!named || !strstr(line, part)) fail_msg("\"%s\" is not in: %s", part, ran->error);
    return ran;
}

void program_needs_gpu(const char *folder) {
    const Ran *ran =
        program_run(folder, "train " TINY " --device=cuda --steps=1 --val-every=0 --sample-every=0 -q");
    if (ran->code == ERROR_DEVICE) skip();
    assert_int_equal(ran->code, 0);
}

void wait_ms(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

const Ran *program_interrupt_answers(const char *folder, const char *file, const char *command) {
    struct stat about = {0};
    off_t begun = 0;
    char part[64], said[96];
    snprintf(part, sizeof part, "%s.part", file);
    snprintf(said, sizeof said, "interrupted: %s holds ", part);
    pid_t program = program_start(folder, "%s", command);
    program_wait_handler(program, SIGINT);
    while (!begun || about.st_size < begun + 100) {
        if (!begun && stat(inside(folder, part), &about) == 0) begun = about.st_size;
        if (begun) assert_int_equal(stat(inside(folder, part), &about), 0);
        assert_true(program_runs(program));
        wait_ms(1);
    }
    kill(program, SIGINT);
    const Ran *ran = program_end(folder, program);
    assert_int_equal(ran->code, 128 + SIGINT);
    expect_text(ran->error, said);
    assert_false(path_exists(inside(folder, file)));
    return ran;
}

bool program_runs(pid_t program) {
    siginfo_t about = {0};
    assert_int_equal(waitid(P_PID, (id_t)program, &about, WEXITED | WNOHANG | WNOWAIT), 0);
    return about.si_pid == 0;
}

static uint64_t bit(int number) {
    return (uint64_t)1 << (number - 1);
}

/* The shell that starts a program may catch SIGINT as well; it does not catch SIGBUS. */
void program_wait_handler(pid_t program, int number) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)program);
    for (int waited = 0; waited < PATIENCE_MS; waited += 5) {
        read_text(path, text, sizeof text);
        const char *line = strstr(text, "SigCgt:");
        uint64_t caught = line ? strtoull(line + 7, NULL, 16) : 0, wanted = bit(number) | bit(SIGBUS);
        if ((caught & wanted) == wanted) return;
        if (!program_runs(program)) break;
        wait_ms(5);
    }
    fail_msg("the program never caught signal %d", number);
}

/* ---- logs ---- */

json_t *log_read(const char *folder, const char *log, bool running) {
    json_t *events = json_array();
    FILE *file = fopen(inside(folder, log), "rb");
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while (file && (length = getline(&line, &room, file)) > 0) {
        json_error_t error;
        bool whole = line[length - 1] == '\n';
        json_t *event = json_loadb(line, (size_t)length, 0, &error);
        if (!event && running && !whole) break;
        if (!event || !whole || !json_string_value(json_object_get(event, "event")))
            fail_msg("%s: no event: %s", log, line);
        json_array_append_new(events, event);
    }
    free(line);
    if (file) fclose(file);
    return events;
}

static bool is_event(const json_t *event, const char *name) {
    return strcmp(json_string_value(json_object_get(event, "event")), name) == 0;
}

const json_t *log_last(const json_t *events, const char *event) {
    for (size_t i = json_array_size(events); i-- > 0;)
        if (is_event(json_array_get(events, i), event)) return json_array_get(events, i);
    return NULL;
}

int64_t log_step(const json_t *event) {
    return event ? json_integer_value(json_object_get(event, "step")) : -1;
}

void log_wait(const char *folder, const char *log, pid_t program, const char *event, int64_t step) {
    for (int waited = 0; waited < PATIENCE_MS; waited += 5) {
        bool runs = program_runs(program);
        json_t *events = log_read(folder, log, true);
        bool reached = log_step(log_last(events, event)) >= step;
        json_decref(events);
        if (reached) return;
        if (!runs) fail_msg("the program ended: %s", program_end(folder, program)->error);
        wait_ms(5);
    }
    fail_msg("no event \"%s\" at step %" PRId64, event, step);
}

int log_losses(const char *folder, const char *log, const char *event, int64_t after, double *losses,
               int most) {
    int count = 0;
    json_t *events = log_read(folder, log, false), *e;
    size_t i;
    json_array_foreach(events, i, e) {
        if (!is_event(e, event) || log_step(e) <= after || count == most) continue;
        losses[count++] = json_number_value(json_object_get(e, "loss"));
    }
    json_decref(events);
    return count;
}

const char *log_numbers(const char *folder, const char *log, int64_t after) {
    static char texts[KEPT][1 << 16];
    static int next;
    char *text = texts[next++ % KEPT];
    size_t length = 0, room = sizeof texts[0];
    json_t *events = log_read(folder, log, false), *e;
    size_t i;
    text[0] = 0;
    json_array_foreach(events, i, e) {
        const char *name = json_string_value(json_object_get(e, "event"));
        bool counts = is_event(e, "step") || is_event(e, "skip") || is_event(e, "val");
        if (!counts || log_step(e) <= after) continue;
        const double loss = json_number_value(json_object_get(e, "loss"));
        const double norm = json_number_value(json_object_get(e, "norm"));
        const double rate = json_number_value(json_object_get(e, "lr"));
        length +=
            (size_t)snprintf(text + length, room - length, "%s %" PRId64 " loss %.17g norm %.17g lr %.17g\n",
                             name, log_step(e), loss, norm, rate);
        assert_true(length < room);
    }
    json_decref(events);
    return text;
}

/* ---- comparing ---- */

void expect_same_file(const char *folder, const char *one, const char *other) {
    FileMap a, b;
    expect_ok(file_map(inside(folder, one), &a));
    expect_ok(file_map(inside(folder, other), &b));
    if (a.size != b.size || memcmp(a.data, b.data, (size_t)a.size) != 0)
        fail_msg("%s and %s differ", one, other);
    file_unmap(&a);
    file_unmap(&b);
}

void expect_width(const char *report) {
    for (const char *line = report, *end; (end = strchr(line, '\n')); line = end + 1)
        if (end - line > REPORT_WIDTH) fail_msg("wider than %d: %.*s", REPORT_WIDTH, (int)(end - line), line);
}

void expect_text(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%s", part, text);
}
