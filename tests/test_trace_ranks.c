/* Handmade traces of several ranks: packing, a common clock, collectives, and their display. Each rank is a
 * process. */
#include "base/memory.h"
#include "comm/comm_internal.h"
#include "comm/rendezvous.h"
#include "profile/profile.h"
#include "report/chrome.h"
#include "profile/fold.h"
#include "report/collectives.h"
#include "profile/trace_pack.h"
#include "profile/trace_ranks.h"
#include "tests/support/profile.h"
#include "tests/support/ranks.h"
#include "tests/support/traced.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MS = 1000000, RANKS = 3 };

static int64_t add(Trace *t, TraceKind kind, const char *name, int64_t begin, int64_t end, int64_t parent) {
    TraceEvent e = trace_event(t, kind, name);
    e.begin = begin;
    e.end = end;
    e.parent = parent;
    e.step = 7;
    if (trace_on_device(&e))
        e.stream = strcmp(name, "compute") == 0 ? 0 : 1;
    else
        e.thread = 0;
    return trace_add(t, &e);
}

static Traffic traffic_named(const char *name) {
    static const char *const names[TRAFFIC_COUNT] = {
        [TRAFFIC_NONE] = "none",
        [TRAFFIC_ALL_REDUCE] = "all-reduce",
        [TRAFFIC_REDUCE_SCATTER] = "reduce-scatter",
        [TRAFFIC_ALL_GATHER] = "all-gather",
        [TRAFFIC_SCATTER] = "scatter",
        [TRAFFIC_SUM] = "gradient sum",
        [TRAFFIC_SPREAD] = "spread",
    };
    int found = TRAFFIC_COUNT - 1;
    while (found > 0 && strcmp(names[found], name) != 0) found--;
    return (Traffic)found;
}

/* A collective that the host calls at `at` and the device runs in [begin, end). */
static void add_collective(Trace *t, int64_t step, const char *name, double sent, int64_t at, int64_t begin,
                           int64_t end) {
    int64_t operation = add(t, TRACE_OPERATION, "comm", at, at + MS, step);
    int64_t part = add(t, TRACE_PRIMITIVE, name, at, at + MS, operation);
    for (int64_t i = operation; i <= part; i++) {
        TraceEvent *e = &t->events[i];
        e->operation = "comm";
        e->category = CATEGORY_COMMUNICATION;
        e->pass = PASS_BACKWARD;
        e->call = trace_name(t, sent > 0 ? "gradients" : "sums");
    }
    t->events[operation].work.sent = sent;
    t->events[operation].traffic = traffic_named(name);
    add(t, TRACE_KERNEL, "ring", begin, end, part);
}

/* A step of 100 ms: computation in [10, 60), a collective of 6 MB from 40 + 5 * rank to 80 ms; a scatter ends
 * after 4 ms, and its sum is computed from 80 + rank to 90 ms. */
static Trace *made(int rank, const char *collective) {
    Trace *t = trace_open();
    bool scatter = strcmp(collective, "scatter") == 0;
    int64_t step = add(t, TRACE_STEP, "step", 0, 100 * MS, -1), begin = (40 + 5 * rank) * MS;
    add(t, TRACE_KERNEL, "compute", 10 * MS, 60 * MS, step);
    add_collective(t, step, collective, 4e6, 30 * MS, begin, scatter ? begin + 4 * MS : 80 * MS);
    if (scatter) add_collective(t, step, "gradient sum", 0, 32 * MS, (80 + rank) * MS, 90 * MS);
    t->run.rank = rank;
    t->run.ranks = RANKS;
    t->run.engine = trace_name(t, "made up");
    t->run.origin = 1000 * (int64_t)MS + rank; // rank 0 begins first, by a nanosecond
    t->run.steps = t->run.step_count = 1;
    t->run.first_step = 7;
    t->run.measured.link = 4e8;
    t->run.launches = 2;
    trace_add_memory(t, (TraceMemory){5 * MS, MEMORY_SAVED, 100 + rank, -1});
    const double ms = 100, reader = 0, tokens = 11;
    trace_set_times(t, &ms, &reader, 1, &ms, 1);
    trace_set_tokens(t, &tokens, &tokens);
    expect_ok(trace_finish(t));
    return t;
}

static void test_packing(void **state) {
    (void)state;
    Trace *t = made(1, "reduce-scatter"), *copy;
    void *data;
    size_t bytes;
    trace_pack(t, &data, &bytes);
    expect_ok(trace_unpack(data, bytes, &copy));
    assert_int_equal(copy->count, t->count);
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *a = &t->events[i], *b = &copy->events[i];
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->call ? a->call : "-", b->call ? b->call : "-");
        assert_true(a->begin == b->begin && a->end == b->end && a->parent == b->parent);
        assert_true(a->device_total == b->device_total && a->work.sent == b->work.sent);
    }
    assert_string_equal(copy->run.engine, "made up");
    assert_true(copy->run.step_ms[0] == 100 && copy->run.step_tokens[0] == 11);
    assert_int_equal(copy->memory[0].bytes, 101);
    trace_close(copy);
    for (size_t less = 1; less < bytes; less += 7) {
        Status status = trace_unpack(data, bytes - less, &copy);
        assert_int_equal(status_code(status), ERROR_FORMAT);
        status_free(status);
    }
    memory_free(data);
    trace_close(t);
}

/* ---- collectives ---- */

static const CommEngine engine = {.name = "made up"};

static Status check_tables(const Trace *t) {
    Tables tables;
    TRY(tables_of_trace(t, NAMES_PLAIN, &tables));
    const Table *d = tables_find(&tables, "distribution"), *c = tables_find(&tables, "communication");
    EXPECT(d && c && d->rows == RANKS + 1 && c->rows == 2);
    for (int rank = 0; rank < RANKS; rank++) {
        EXPECT(cell(d, rank, "computation_ns") == 50 * MS);
        EXPECT(cell(d, rank, "communication_ns") == (40 - 5 * rank) * MS);
        EXPECT(cell(d, rank, "overlap_ns") == (20 - 5 * rank) * MS && cell(d, rank, "exposed_ns") == 20 * MS);
        EXPECT(cell(d, rank, "exposed_share") == 0.2);
    }
    EXPECT(cell(d, RANKS, "exposed_ns") == 60 * MS && cell(d, RANKS, "steps_ns") == 300 * MS);
    EXPECT(fabs(cell(c, 0, "bytes") - 6e6) < 1 && cell(c, 0, "calls") == 1);
    EXPECT(fabs(cell(c, 0, "moving_ns") - 30 * MS) < 0.1 * MS);
    EXPECT(fabs(cell(c, 0, "waiting_ns") - 5 * MS) < 0.1 * MS);
    EXPECT(fabs(cell(c, 0, "bus_rate") - 4e6 / 0.030) < 1e6);
    EXPECT(fabs(cell(c, 0, "of_measured") - 1.0 / 3) < 0.01);
    tables_free(&tables);
    return OK;
}

static json_int_t number(const json_t *event, const char *key) {
    return json_integer_value(json_object_get(event, key));
}

/* Arrows between collectives that lead from one rank's process to another's, on the CPU. */
static int arrows_of(const char *text, int from, int to) {
    json_t *file = json_loads(text, 0, NULL), *e;
    const json_t *events = json_object_get(file, "traceEvents"), *begun = NULL;
    int count = 0;
    size_t i;
    json_array_foreach(events, i, e) {
        const char *type = json_string_value(json_object_get(e, "ph"));
        const char *category = json_string_value(json_object_get(e, "cat"));
        if (!category || strcmp(category, "collective") != 0) continue;
        if (*type == 's') begun = e;
        if (*type != 'f') continue;
        assert_true(json_is_integer(json_object_get(e, "id")));
        assert_int_equal(number(e, "id"), number(begun, "id"));
        count += number(begun, "pid") == 1 + 2 * from && number(e, "pid") == 1 + 2 * to;
    }
    json_decref(file);
    return count;
}

static Status check_file(const Trace *t) {
    JsonWriter w = {0};
    chrome_render(t, &w);
    EXPECT(strstr(w.text, "\"pid\":3") && strstr(w.text, "rank 2, host"));
    EXPECT(!strstr(w.text, ", device")); // on the CPU it would be on the host's track
    EXPECT(arrows_of(w.text, 2, 0) == 1 && arrows_of(w.text, 2, 1) == 1);
    EXPECT(arrows_of(w.text, 0, 1) == 0 && arrows_of(w.text, 0, 2) == 0); // rank 2 began last
    json_writer_free(&w);
    return OK;
}

static Status check_together(Trace *t, const char *mismatch) {
    EXPECT(t->other_count == RANKS - 1);
    for (int rank = 1; rank < RANKS; rank++) {
        const TraceRun *run = &t->others[rank - 1]->run;
        EXPECT(run->rank == rank && fabs(run->clock_ahead) <= run->clock_within &&
               run->clock_within < 10 * MS);
        EXPECT(run->origin == t->run.origin); // all events are on one clock, whose zero is the first event
    }
    Figures figures;
    TRY(figures_make(t, &figures));
    audit_profile(t, &figures);
    figures_free(&figures);
    const TraceFinding *same = NULL, *records = NULL;
    for (int64_t i = 0; i < t->finding_count; i++) {
        if (strcmp(t->findings[i].name, "the ranks ran the same collectives") == 0) same = &t->findings[i];
        if (strcmp(t->findings[i].name, "records = launches") == 0) records = &t->findings[i];
    }
    EXPECT(same && same->passed == !mismatch && (!mismatch || strstr(same->detail, mismatch)));
    EXPECT(records && records->passed && strstr(records->detail, "6 records"));
    if (mismatch) return OK;
    Collectives all = collectives_of(t);
    EXPECT(all.count == 1 && all.list[0].first == 0 && all.list[0].last == RANKS - 1);
    collectives_free(&all);
    TRY(check_tables(t));
    return check_file(t);
}

typedef struct {
    int port;
    const char *other; // what the last rank ran instead; NULL: the same collective
} Case;

static Status gather(int rank, void *user) {
    const Case *c = user;
    Identity identity = identity_of(rank, RANKS, c->port);
    Comm comm = {.engine = &engine, .rank = rank, .size = RANKS};
    Trace *t = made(rank, c->other && rank == RANKS - 1 ? c->other : "reduce-scatter");
    TRY(rendezvous_open(&identity, 20, NULL, &comm.rendezvous));
    Status status = trace_gather(t, &comm);
    if (!status && rank == 0) status = check_together(t, c->other ? "other collectives" : NULL);
    rendezvous_close(comm.rendezvous, OK);
    trace_close(t);
    return status;
}

static void test_together(void **state) {
    (void)state;
    static const char *const others[] = {NULL, "all-gather"};
    for (int i = 0; i < 2; i++) {
        Case c = {free_port(), others[i]};
        const RankEnd *ends = ranks_run(RANKS, gather, &c, 30);
        for (int rank = 0; rank < RANKS; rank++) expect_rank(ends, rank, 0, "");
    }
}

static const TraceFinding *finding(const Trace *t, const char *name) {
    for (int64_t i = 0; i < t->finding_count; i++)
        if (strcmp(t->findings[i].name, name) == 0) return &t->findings[i];
    fail_msg("no finding \"%s\"", name);
    return NULL;
}

/* In a collective that is only started no rank waits: each rank's arrows lead to the other ranks' sums. */
static void test_halves(void **state) {
    (void)state;
    Trace *t = made(0, "scatter");
    Figures figures;
    Tables tables;
    JsonWriter w = {0};
    t->others = memory_array(RANKS - 1, sizeof *t->others);
    for (int rank = 1; rank < RANKS; rank++) t->others[t->other_count++] = made(rank, "scatter");
    expect_ok(figures_make(t, &figures));
    audit_profile(t, &figures);
    assert_true(finding(t, "no rank leaves a collective before all are in it")->passed);
    expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
    const Table *c = tables_find(&tables, "communication");
    assert_int_equal(c->rows, 3);
    assert_true(cell(c, 0, "waiting_ns") == 0 && cell(c, 1, "waiting_ns") == 0);
    expect_about(cell(c, 0, "moving_ns"), 4 * MS);
    chrome_render(t, &w);
    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++) assert_int_equal(arrows_of(w.text, from, to), from != to);
    json_writer_free(&w);
    tables_free(&tables);
    figures_free(&figures);
    trace_close(t);
}

/* Each rank sends everything except its own part: once, or in an all-reduce twice, the values and the
 * sums. */
static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double bytes;
    } cases[] = {{"reduce-scatter", 6e6}, {"all-gather", 6e6}, {"all-reduce", 3e6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Trace *t = made(0, cases[i].name);
        t->others = memory_array(RANKS - 1, sizeof *t->others);
        for (int rank = 1; rank < RANKS; rank++) t->others[t->other_count++] = made(rank, cases[i].name);
        Collectives all = collectives_of(t);
        assert_int_equal(all.count, 1);
        expect_about(all.list[0].bytes, cases[i].bytes);
        collectives_free(&all);
        trace_close(t);
    }
}

/* A slow clock may place an event before the first. */
static void test_times_below_zero(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 0);
    JsonWriter w = {0};
    t->events[0].begin = -464238;
    chrome_render(t, &w);
    json_t *file = json_loads(w.text, 0, NULL);
    assert_non_null(file);
    assert_non_null(strstr(w.text, "\"ts\":-464.238"));
    json_decref(file);
    json_writer_free(&w);
    trace_close(t);
}

/* A copy that ends after its step, and one after it. */
static void test_phases_end_with_their_step(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 0);
    Figures f;
    double phases = 0;
    int64_t step = 0;
    while (t->events[step].kind != TRACE_STEP) step++;
    for (int64_t late = -1000; late <= 1000; late += 2000) {
        TraceEvent e = trace_event(t, TRACE_COPY, "sent");
        e.parent = step;
        e.stream = 1;
        e.begin = t->events[step].end + late;
        e.end = e.begin + 500000;
        trace_add(t, &e);
    }
    expect_ok(trace_finish(t));
    expect_ok(figures_make(t, &f));
    for (int p = 0; p < PHASE_COUNT; p++) phases += f.phases[p].ns;
    expect_about(phases, f.step_ns);
    assert_true(f.covered <= 1);
    figures_free(&f);
    trace_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),          cmocka_unit_test(test_together),
        cmocka_unit_test(test_halves),           cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_times_below_zero), cmocka_unit_test(test_phases_end_with_their_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
