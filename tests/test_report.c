/* A profile's figures and answers, from handmade profiles. */
#include "profile/fold.h"
#include "profile/profile.h"
#include "report/questions.h"
#include "profile/trace_records.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"

#include <math.h>
#include <string.h>

static void near(double value, double expected) {
    if (fabs(value - expected) > 1e-9 * fabs(expected) + 1e-12)
        fail_msg("%.17g is not the expected %.17g", value, expected);
}

/* ---- figures ---- */

static void figures_add_up(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_NAIVE, 0);
    Figures f;
    expect_ok(figures_make(t, &f));
    assert_int_equal(f.steps, SAMPLE_STEPS);
    assert_int_equal(f.row_count, 5);
    const OperationRow *attention = figures_find(&f, "attention", "attention", PASS_FORWARD);
    assert_non_null(attention);
    near(attention->ns, 135000);
    near(attention->low, 135000);
    near(attention->high, 135000);
    near(attention->calls, 1);
    near(attention->launches, 6);
    near(attention->work.flops, 2e9);
    assert_int_equal(attention->inside_count, 6);
    assert_string_equal(attention->inside[2].name, "softmax max");
    near(attention->inside[2].ns, 20000);
    near(attention->inside[2].calls, 1);
    near(figures_pass_ns(&f, PASS_COUNT), f.device_ns);
    near(figures_pass_ns(&f, PASS_BACKWARD), 340000);
    near(f.phases[PHASE_BACKWARD].ns, 340000);
    near(f.phases[PHASE_BACKWARD].categories[CATEGORY_MATRIX], 280000);
    near(f.phases[PHASE_READER].ns, 20000);
    near(f.launches, 17);
    assert_null(figures_find(&f, "attention", "attention", PASS_UPDATE));
    figures_free(&f);
    trace_close(t);
}

/* Gaps between kernels count towards the phase and the operation, not towards the device's time. */
static void figures_keep_waiting_apart(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_NAIVE, 1000);
    Figures f;
    expect_ok(figures_make(t, &f));
    near(f.phases[PHASE_BACKWARD].ns, 345000); // 5 kernels
    near(figures_pass_ns(&f, PASS_BACKWARD), 340000);
    double phases = 0;
    for (int p = 0; p < PHASE_COUNT; p++) phases += f.phases[p].ns;
    near(phases, f.step_ns); // includes the first kernel's launch
    near(f.overhead, 1 / 0.98 - 1);
    assert_int_equal(f.peak_bytes, 5 << 20);
    assert_int_equal(f.peak_classes[MEMORY_SAVED], 3 << 20);
    figures_free(&f);
    trace_close(t);
}

/* The way from one operation to the next is attributed if it is short. */
static void figures_attribute_short_gaps(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        Trace *t = sample_trace(FORM_NAIVE, i ? 1000 : 20000);
        Figures f;
        expect_ok(figures_make(t, &f));
        assert_true(f.covered <= 1 && (f.covered == 1) == (i == 1));
        figures_free(&f);
        trace_close(t);
    }
}

/* The device waits for a graph's launch as for an operation's. */
static void figures_attribute_launches_of_graphs(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        Trace *t = sample_trace(FORM_NAIVE, 20000);
        Figures f;
        for (int64_t k = 0, count = t->count; k < count; k++) {
            TraceEvent e = trace_event(t, TRACE_SCOPE, "something");
            e.host = i == 1;
            if (t->events[k].kind != TRACE_STEP) continue;
            e.begin = t->events[k].begin, e.end = t->events[k].end;
            e.step = t->events[k].step, e.parent = k;
            trace_add(t, &e);
        }
        expect_ok(figures_make(t, &f));
        assert_true((f.covered == 1) == (i == 1));
        figures_free(&f);
        trace_close(t);
    }
}

/* Added to the memory in use before; memory that is released and taken again counts once. */
static void figures_know_what_a_call_takes(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_NAIVE, 0);
    int64_t call = 0;
    while (t->events[call].kind != TRACE_OPERATION || strcmp(t->events[call].operation, "attention") != 0)
        call++;
    int64_t at = t->events[call].begin;
    const int64_t held[] = {100, 900, 500, 900, 100}; // before, during and after the call
    for (int i = 0; i < 5; i++) {
        int64_t inside = i == 0 || i == 4 ? -1 : i == 2 ? call + 1 : call; // and in a primitive
        trace_add_memory(t, (TraceMemory){at + i, MEMORY_SCRATCH, held[i], inside});
    }
    expect_ok(trace_finish(t));
    Figures f;
    expect_ok(figures_make(t, &f));
    assert_int_equal(figures_find(&f, "attention", "attention", PASS_FORWARD)->memory, 800);
    assert_int_equal(figures_find(&f, "attention", "attention", PASS_BACKWARD)->memory, 0);
    figures_free(&f);
    trace_close(t);
}

static void figures_need_a_step(void **state) {
    (void)state;
    Trace *t;
    Figures f;
    t = trace_open();
    expect_ok(trace_finish(t));
    expect_error(figures_make(t, &f), ERROR_FORMAT, "no recorded step");
    trace_close(t);
}

/* Operations timed one by one: time and launches of a primitive that belongs to another pass count for that
 * pass. */
static void figures_of_records(void **state) {
    (void)state;
    const Peaks limits = {.flops = 1e12, .bandwidth = 1e11};
    Record records[4];
    for (int64_t step = 0; step < 2; step++) {
        records[2 * step] = (Record){.kind = RECORD_OPERATION,
                                     .operation = OP_LOSS,
                                     .call = "head",
                                     .step = step,
                                     .parent = -1,
                                     .device_ms = 3 + (double)step,
                                     .launches = 5,
                                     .work = {.flops = 1e9, .bytes = 1e6, .needed = 1e9}};
        records[2 * step + 1] = (Record){.kind = RECORD_PRIMITIVE,
                                         .operation = OP_LOSS,
                                         .pass = PASS_BACKWARD,
                                         .name = "weight gradient",
                                         .call = "head",
                                         .step = step,
                                         .parent = 2 * step,
                                         .device_ms = 1,
                                         .launches = 2};
    }
    Trace *t;
    Figures f;
    expect_ok(records_trace(records, 4, &limits, &t));
    expect_ok(figures_make(t, &f));
    const OperationRow *forward = figures_find(&f, "head", "loss", PASS_FORWARD);
    const OperationRow *backward = figures_find(&f, "head", "loss", PASS_BACKWARD);
    near(forward->median, 2.5e6);
    near(forward->low, 2e6);
    near(forward->high, 3e6);
    near(forward->launches, 3);
    near(forward->calls, 1);
    near(forward->work.flops, 1e9);
    near(backward->median, 1e6);
    near(backward->launches, 2);
    figures_free(&f);
    trace_close(t);
}

/* ---- the questions ---- */

static void expect_line(const Answers *answers, int question, const char *part) {
    const Answer *a = &answers->answers[question - 1];
    for (int i = 0; i < a->count; i++)
        if (strstr(a->lines[i], part)) return;
    for (int i = 0; i < a->count; i++) print_message("%s\n", a->lines[i]);
    fail_msg("no line of answer %d holds \"%s\"", question, part);
}

static void expect_no_line(const Answers *answers, int question, const char *part) {
    const Answer *a = &answers->answers[question - 1];
    for (int i = 0; i < a->count; i++)
        if (strstr(a->lines[i], part)) fail_msg("answer %d holds \"%s\": %s", question, part, a->lines[i]);
}

/* Every figure is computed by hand from the tables in tests/support/profile.c. */
static void questions_have_figures(void **state) {
    (void)state;
    Trace *traces[FORM_COUNT] = {sample_trace(FORM_NAIVE, 0), sample_trace(FORM_FUSED, 0)};
    const Difference differences[] = {{"attention", "attention", PASS_FORWARD, 3e-3},
                                      {"mlp.expand", "linear", PASS_FORWARD, 1e-2}};
    Profile profile;
    Answers answers;
    expect_ok(profile_make(traces, 2, differences, 2, &profile));
    answers = questions_answer(&profile);
    /* 60 us of softmax, 60 us of products; 2 GFLOP of products over heads of 32: 5 / (4 x 32) */
    expect_line(&answers, 1, "naive, forward: softmax 60.000 us, products 60.000 us of 135.000 us");
    expect_line(&answers, 1, "time ratio 1.00");
    expect_line(&answers, 1, "heads in 1 calls: softmax 30.000 us, products 30.000 us");
    expect_line(&answers, 1, "FLOP ratio 0.0391, so a FLOP of softmax takes 26 times");
    expect_line(&answers, 1, "products 1.00 GFLOP: time ratio 1.00, FLOP ratio 0.0391"); // of two heads each
    /* 4 FLOPs a score against four products of 2 x 32 */
    expect_line(&answers, 1, "naive, backward: softmax 60.000 us, products 100.000 us of");
    expect_line(&answers, 1, "time ratio 0.60, FLOP ratio 0.0156");
    expect_line(&answers, 1, "fused, forward: attention is fused");
    expect_line(&answers, 2, "naive: matrix products take 54.9% of the forward pass"); // 140 of 255
    expect_line(&answers, 2, "naive: and 61.3% of the whole step");                    // 420 of 685
    expect_line(&answers, 2, "optimizer 0.0% of forward, 13.1% of the step (+13.1 points)");
    expect_line(&answers, 3, "naive: bias add: 20.000 us, 7.8% of forward, 1 calls, for mlp.expand");
    expect_line(&answers, 4, "naive: product: 80.000 us, 31.4% of forward");
    expect_line(&answers, 4, "naive: not the same as backward, where it is weight gradient");
    expect_line(&answers, 4, "naive: of both passes together it is weight gradient: 90.000 us, 15.1%");
    expect_line(&answers, 5,
                "attention forward: 95.000 us of 135.000 us (3.38 times as fast), launches 6 to 1");
    expect_line(&answers, 5, "difference 3.0e-03");
    expect_line(&answers, 5, "memory in use 5.00 MiB to 3.00 MiB");
    expect_line(&answers, 5, "largest difference of an output: 1.0e-02, of mlp.expand forward");
    expect_no_line(&answers, 5, "at most"); // the copy rate does not matter here
    expect_line(&answers, 6, "naive: arithmetic. Try --fused=1");
    expect_line(&answers, 6, "naive: --fused=1 was tried here: a median step of");
    expect_line(&answers, 6, "naive: the most to gain is in attention forward: 135.000 us at 14.8%"); // 20 us
    answers_free(&answers);
    profile_free(&profile);
    for (int form = 0; form < FORM_COUNT; form++) trace_close(traces[form]);
}

static void expect_bound(Trace *t, const char *part) {
    Profile profile;
    Answers answers;
    expect_ok(profile_make(&t, 1, NULL, 0, &profile));
    answers = questions_answer(&profile);
    expect_line(&answers, 6, part);
    expect_line(&answers, 5, "only one path ran");
    answers_free(&answers);
    profile_free(&profile);
    trace_close(t);
}

/* Short names, or with --full-names the source's. */
/* A kernel launched outside operations is attributed to none; a copy there has the category memory. */
static void kernels_outside_operations_are_others(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 0);
    Figures before, f;
    expect_ok(figures_make(t, &before));
    int64_t step = 0;
    while (t->events[step].kind != TRACE_STEP) step++;
    for (TraceKind kind = TRACE_KERNEL; kind <= TRACE_COPY; kind++) {
        TraceEvent e = trace_event(t, kind, "foreign");
        e.parent = step;
        e.stream = 0;
        e.begin = t->events[step].begin;
        e.end = e.begin + (kind == TRACE_KERNEL ? 1000 : 10);
        trace_add(t, &e);
    }
    expect_ok(trace_finish(t));
    expect_ok(figures_make(t, &f));
    const PhaseRow *was = &before.phases[PHASE_OTHER], *is = &f.phases[PHASE_OTHER];
    near(is->categories[CATEGORY_OTHER] - was->categories[CATEGORY_OTHER], 1000.0 / SAMPLE_STEPS);
    near(is->categories[CATEGORY_MEMORY] - was->categories[CATEGORY_MEMORY], 10.0 / SAMPLE_STEPS);
    near(is->categories[CATEGORY_MATRIX], was->categories[CATEGORY_MATRIX]);
    Tables tables;
    expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
    const Table *categories = tables_find(&tables, "categories");
    for (int64_t row = 0; row < categories->rows; row++)
        if (strcmp(categories->cells[row * categories->column_count].text, "other") == 0)
            near(categories->cells[row * categories->column_count + 1].number, 1000);
    tables_free(&tables);
    figures_free(&before);
    figures_free(&f);
    trace_close(t);
}

/* Idle time is that of the recorded steps, however fast other steps were. */
static void idle_time_is_of_recorded_steps(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 100000);
    const double fast[] = {0.01, 0.01}, slow[] = {1, 1};
    Profile profile;
    char expected[64];
    trace_set_times(t, fast, NULL, 2, slow, 2);
    expect_ok(profile_make(&t, 1, NULL, 0, &profile));
    const Figures *f = &profile.paths[0].figures;
    const double busy = f->device_ns + f->phases[PHASE_READER].ns; // it has no kernel here
    assert_true(busy < 0.8 * f->step_ns && busy > 1e6 * f->step_ms);
    snprintf(expected, sizeof expected, "the device idles %.1f%% of a recorded step",
             100 * (1 - busy / f->step_ns));
    Answers answers = questions_answer(&profile);
    bool said = false;
    for (int64_t i = 0; i < answers.answers[5].count; i++)
        said = said || strstr(answers.answers[5].lines[i], expected);
    assert_true(said);
    answers_free(&answers);
    profile_free(&profile);
    trace_close(t);
}

/* A tracing overhead within noise is unknown. */
static void overhead_hides_in_noise(void **state) {
    (void)state;
    const double steps[] = {10, 12, 9, 11, 10}, alike[] = {11, 10, 12, 9, 10},
                 slower[] = {15, 15.1, 15, 14.9, 15};
    const char *const notes[] = {
        "tracing overhead: not known, within noise (median step 10 ms with it, 10 ms",
        "tracing overhead +50.00% (median step 15 ms with it, 10 ms"};
    for (int k = 0; k < 2; k++) {
        Trace *t = sample_trace(FORM_FUSED, 0);
        Tables tables;
        bool said = false;
        trace_set_times(t, steps, steps, 5, k ? slower : alike, 5);
        expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
        const Table *perf = tables_find(&tables, "perf");
        for (int64_t i = 0; i < perf->note_count; i++) said = said || strstr(perf->notes[i], notes[k]);
        assert_true(said);
        tables_free(&tables);
        trace_close(t);
    }
}

/* Communication has its own row among the kinds of events. */
static void overview_tells_of_communication(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 0);
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_OPERATION && t->events[i].pass == PASS_UPDATE)
            t->events[i].category = CATEGORY_COMMUNICATION;
    Tables tables;
    expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
    const Table *overview = tables_find(&tables, "overview");
    double events = 0;
    for (int64_t row = 0; row < overview->rows; row++) {
        const Cell *cells = &overview->cells[row * overview->column_count];
        if (strcmp(cells[0].text, "Communication") == 0) events = cells[2].number;
    }
    near(events, SAMPLE_STEPS);
    tables_free(&tables);
    trace_close(t);
}

static void kernels_have_short_and_full_names(void **state) {
    (void)state;
    static const char full[] = "void fusebox::scale<float, 4>(float*, long)";
    Trace *t = sample_trace(FORM_FUSED, 0);
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_KERNEL) t->events[i].name = trace_name(t, full);
    for (unsigned names = NAMES_PLAIN; names <= NAMES_FULL; names += NAMES_FULL) {
        Tables tables;
        expect_ok(tables_of_trace(t, names, &tables));
        assert_string_equal(tables_find(&tables, "kernels")->cells[0].text, names ? full : "scale<float, 4>");
        tables_free(&tables);
    }
    trace_close(t);
}

/* Without steps timed with tracing off, their times are not mentioned. */
static void questions_know_what_was_timed(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 0);
    Profile profile;
    Answers answers;
    trace_set_times(t, NULL, NULL, 0, t->run.traced_ms, 0);
    expect_ok(profile_make(&t, 1, NULL, 0, &profile));
    answers = questions_answer(&profile);
    near(profile.paths[0].figures.step_ms, 1e-6 * profile.paths[0].figures.step_ns);
    near(profile.paths[0].figures.reader_ms, 0.02); // its phase
    expect_line(&answers, 6, "of a recorded step");
    answers_free(&answers);
    profile_free(&profile);
    trace_close(t);
}

static void questions_tell_the_bound(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 0);
    for (int i = 0; i < 3; i++) t->run.reader_ms[i] = 0.3 * t->run.step_ms[i];
    expect_bound(t, "fused: the reader. Try more --workers");
    t = sample_trace(FORM_FUSED, 100000);
    expect_bound(t, "fused: the host's launches. Try --graphs=1");
    t = sample_trace(FORM_FUSED, 0);
    t->run.measured.bandwidth = 1e9;
    expect_bound(t, "fused: memory. Try");
    /* bf16 is suggested if its products are faster. */
    for (int fast = 0; fast < 2; fast++) {
        t = sample_trace(FORM_FUSED, 0);
        t->run.source = SOURCE_CLOCK;
        t->run.dtype = trace_name(t, "fp32");
        t->run.bf16_fast = fast;
        t->run.measured = t->run.sheet = (Peaks){.flops = 1e18, .bandwidth = 1e12};
        expect_bound(t, fast ? "fused: memory. Try --dtype=bf16"
                             : "fused: memory. Try improving the operations");
    }
    t = sample_trace(FORM_FUSED, 0);
    t->run.measured = t->run.sheet = (Peaks){0};
    expect_bound(t, "fused: memory or arithmetic; which of them is not known");
}

/* A decoding step: the sample's products and its attention as primitives of one operation. */
static Trace *decoding_trace(Category attention) {
    Trace *t = sample_trace(FORM_FUSED, 0);
    const char *name = trace_name(t, "decode");
    for (int64_t i = 0; i < t->count; i++) {
        TraceEvent *e = &t->events[i];
        if (!e->operation || e->pass != PASS_FORWARD) continue;
        e->operation = e->call = name;
        e->category =
            e->kind == TRACE_OPERATION || e->category == CATEGORY_MATRIX ? CATEGORY_MATRIX : attention;
    }
    t->run.step = trace_name(t, "decoding step");
    return t;
}

static void questions_find_attention_in_decoding(void **state) {
    (void)state;
    static const char *const lines[] = {
        "fused, forward: attention is fused, and takes 40.000 us of the 130.000 us that it takes to decode",
        "fused, forward: attention is part of the kernels that decode a whole token, in 130.000 us"};
    for (int i = 0; i < 2; i++) {
        Trace *t = decoding_trace(i ? CATEGORY_MATRIX : CATEGORY_ATTENTION);
        Profile profile;
        expect_ok(profile_make(&t, 1, NULL, 0, &profile));
        Answers answers = questions_answer(&profile);
        expect_line(&answers, 1, lines[i]);
        answers_free(&answers);
        profile_free(&profile);
        trace_close(t);
    }
}

/* 420 us of products in 685 us; on the CPU GELU's 20 and softmax's 120 are bound by arithmetic, too. */
static void a_cpu_computes_what_takes_longer_than_its_bytes(void **state) {
    (void)state;
    expect_bound(sample_trace(FORM_NAIVE, 0),
                 "naive: of the operations' time 61.3% is limited by arithmetic");
    Trace *t = sample_trace(FORM_NAIVE, 0);
    t->run.source = SOURCE_CLOCK;
    expect_bound(t, "naive: of the operations' time 81.8% is limited by arithmetic");
    /* 17 MB at 1 TB/s take 17 us of 450: a fused row below the copy rate is not therefore bound by
     * arithmetic. */
    t = sample_trace(FORM_FUSED, 0);
    t->run.measured = (Peaks){.flops = 1e18, .bandwidth = 1e12};
    expect_bound(t, "fused: memory. Try");
    t = sample_trace(FORM_FUSED, 0);
    t->run.measured = (Peaks){.flops = 1e18, .bandwidth = 1e12};
    t->run.source = SOURCE_CLOCK;
    expect_bound(t, "fused: of the operations' time 0.0% is limited by arithmetic");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_add_up),
        cmocka_unit_test(figures_attribute_launches_of_graphs),
        cmocka_unit_test(figures_attribute_short_gaps),
        cmocka_unit_test(figures_keep_waiting_apart),
        cmocka_unit_test(figures_know_what_a_call_takes),
        cmocka_unit_test(figures_need_a_step),
        cmocka_unit_test(figures_of_records),
        cmocka_unit_test(questions_have_figures),
        cmocka_unit_test(kernels_outside_operations_are_others),
        cmocka_unit_test(kernels_have_short_and_full_names),
        cmocka_unit_test(idle_time_is_of_recorded_steps),
        cmocka_unit_test(overhead_hides_in_noise),
        cmocka_unit_test(overview_tells_of_communication),
        cmocka_unit_test(a_cpu_computes_what_takes_longer_than_its_bytes),
        cmocka_unit_test(questions_find_attention_in_decoding),
        cmocka_unit_test(questions_know_what_was_timed),
        cmocka_unit_test(questions_tell_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
