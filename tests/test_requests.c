/* Ten thousand short prompts: memory and open descriptors do not grow from the 1,000th text to the last, in the
 * batch generator and in ./infer --prompts. */
#include "base/memory.h"
#include "base/random.h"
#include "run/batch_generator.h"
#include "run/runner.h"
#include "tests/support/chat.h"
#include "tests/support/program.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS = 10000, FIRST = 1000, ROWS = 16, LONGEST = 6, TOKENS = 3, SEED = 7 };

extern __attribute__((weak)) void
__asan_init(void); // the sanitizer keeps freed memory, and finds leaks itself

typedef struct {
    int64_t texts, descriptors;
    int64_t bytes; // resident, without those of files
} Usage;

static int64_t descriptors_of(pid_t process) {
    char path[64];
    int64_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static Usage usage_of(pid_t process, int64_t texts) {
    char path[64];
    long pages = 0, of_files = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    if (fscanf(file, "%*s %ld %ld", &pages, &of_files) != 2) pages = 0; // the program has ended
    fclose(file);
    return (Usage){texts, descriptors_of(process), (pages - of_files) * sysconf(_SC_PAGESIZE)};
}

/* `least` bytes kept for each text would be seen. */
static void expect_no_growth(Usage early, Usage late, int64_t least) {
    const int64_t more = late.bytes - early.bytes, limit = (late.texts - early.texts) * least;
    print_message("texts %d to %d: %d more bytes, limit %d; %d and %d descriptors\n", (int)early.texts,
                  (int)late.texts, (int)more, (int)limit, (int)early.descriptors, (int)late.descriptors);
    assert_true(early.texts >= FIRST && late.texts >= REQUESTS / 2);
    assert_int_equal(early.descriptors, late.descriptors);
    if (!__asan_init) assert_true(more < limit);
}

/* ---- the batch generator ---- */

typedef struct {
    Session session;
    Ctx ctx;
    Transformer model;
    BatchGenerator generator;
    int64_t begun, done;
    Usage early, late;
    size_t allocated[2]; // bytes allocated by malloc then
} Server;

static Status next_text(void *context, BatchRow *row, bool *any) {
    Server *s = context;
    const uint64_t number = (uint64_t)s->begun;
    const SamplerOptions options = {.temperature = 1, .top_p = 1, .seed = SEED, .sequence = number};
    *any = s->begun < REQUESTS;
    if (!*any) return OK;
    row->number = s->begun++;
    row->prompt = 1 + row->number % LONGEST; // every size of a pass occurs early
    for (int64_t i = 0; i < row->prompt; i++)
        token_list_add(&row->text,
                       (int32_t)random_below(SEED, number, (uint64_t)i, (uint64_t)s->model.config.vocab));
    return sampler_open(s->model.config.vocab, &options, &row->sampler);
}

static bool ends(void *context, const BatchRow *row, int32_t token) {
    (void)context;
    (void)row;
    return token % 4 == 0;
}

static Status finish(void *context, BatchRow *row) {
    Server *s = context;
    (void)row;
    s->done++;
    if (s->done != FIRST && s->done != REQUESTS - ROWS) return OK; // as many places are in use
    const bool late = s->done > FIRST;
    const struct mallinfo2 heap = mallinfo2();
    s->allocated[late] = heap.uordblks + heap.hblkhd;
    *(late ? &s->late : &s->early) = usage_of(getpid(), s->done);
    return OK;
}

static Status take_server(Ctx *ctx, void *program) {
    Server *s = program;
    TRY(transformer_take(ctx, &s->model, false));
    return batch_generator_take(ctx, &s->generator);
}

static void the_generator_keeps_nothing(void **state) {
    (void)state;
    Server s = {.session = {.fuses = (1 << OP_COUNT) - 1}};
    expect_ok(device_open_cpu(1, &s.session.device));
    expect_ok(config_preset("llama-nano", &s.session.config));
    Config *c = &s.session.config;
    c->layers = 1;
    c->heads = c->kv_heads = 1;
    c->head_size = c->width = c->hidden = 32;
    c->vocab = 61;
    expect_ok(runner_open(&s.session, &s.ctx, &s.model));
    batch_generator_open(&s.model, ROWS, LONGEST + TOKENS, &s.generator);
    expect_ok(runner_start(&(Runner){&s.session, &s.ctx, &s.model, take_server, &s, false, SEED, NULL}));
    expect_ok(batch_generator_run(
        &s.ctx, &s.generator,
        &(BatchTexts){.context = &s, .tokens = TOKENS, .next = next_text, .ends = ends, .finish = finish}));
    assert_int_equal(s.done, REQUESTS);
    expect_no_growth(s.early, s.late, 32);
    const int64_t more = (int64_t)s.allocated[1] - (int64_t)s.allocated[0];
    print_message("allocated: %d more bytes\n", (int)more);
    assert_true(more < 1 << 14); // the texts in their places have other lengths
    batch_generator_close(&s.generator);
    transformer_close(&s.model);
    ctx_close(&s.ctx);
    s.session.device->close(s.session.device);
}

/* ---- the program ---- */

static int64_t lines_of(const char *path) {
    int64_t lines = 0;
    FILE *file = fopen(path, "r");
    for (int c = 0; file && (c = fgetc(file)) != EOF;) lines += c == '\n';
    if (file) fclose(file);
    return lines;
}

static void the_program_keeps_nothing(void **state) {
    Usage early = {0}, late = {0};
    program_succeeds(*state, "for i in $(seq %d); do echo '{\"prompt\": \"the box\"}'; done >many.jsonl",
                     REQUESTS);
    const pid_t program = program_start(*state,
                                        "infer --prompts=many.jsonl --model=model --batch=%d --tokens=2 "
                                        "--device=cpu --threads=1 --output=x -q",
                                        ROWS);
    for (; program_runs(program); wait_ms(2)) {
        const Usage now = usage_of(program, lines_of(inside(*state, "x.part")));
        const int64_t since = lines_of(inside(*state, "x.part")); // it goes at the end
        if (since < now.texts || since >= REQUESTS) continue;     // the program may be about to end
        if (!early.texts && now.texts >= FIRST) early = now;
        if (now.texts >= late.texts) late = now;
    }
    assert_int_equal(program_end(*state, program)->code, 0);
    assert_int_equal(lines_of(inside(*state, "x")), REQUESTS);
    expect_no_growth(early, late, 64); // besides the 16 of run/answers.c for each
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_generator_keeps_nothing),
                                       cmocka_unit_test(the_program_keeps_nothing)};
    return cmocka_run_group_tests(tests, chat_setup, scratch_teardown);
}
