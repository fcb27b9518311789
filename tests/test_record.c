/* Records of work that is captured as a graph, and of the graph's launches. */
#include "kernels/record.h"
#include "tests/support/expect.h"

#include <string.h>
#include <sys/resource.h>

enum { KERNELS = 7 };

/* The marks that another profiler receives. */
typedef struct {
    int64_t stack[16], captures[4], replays[4];
    int depth, most, capture_count, replay_count;
} Marks;

static void mark(void *marker, int64_t record) {
    Marks *marks = marker;
    marks->stack[marks->depth++] = record;
    if (marks->depth > marks->most) marks->most = marks->depth;
}

static void unmark(void *marker) {
    Marks *marks = marker;
    assert_true(marks->depth-- > 0);
}

static void capture(void *marker, int64_t record) {
    Marks *marks = marker;
    marks->captures[marks->capture_count++] = record;
}

static void replay(void *marker, int64_t record, int64_t kernels) {
    Marks *marks = marker;
    assert_int_equal(kernels, KERNELS);
    marks->replays[marks->replay_count++] = record;
    mark(marker, record);
}

static Device *device;

static int open_device(void **state) {
    (void)state;
    expect_ok(device_open_cpu(1, &device));
    return 0;
}

static int close_device(void **state) {
    (void)state;
    device->close(device);
    return 0;
}

static Recorder *open_recorder(Marks *marks, int64_t limit) {
    const RecorderOptions options = {.limit = limit,
                                     .primitives = true,
                                     .whole = true,
                                     .mark = mark,
                                     .unmark = unmark,
                                     .capture = capture,
                                     .replay = replay,
                                     .marker = marks};
    Recorder *recorder = recorder_open(device, &options);
    assert_true(recorder_captures(recorder));
    return recorder;
}

static void begin(Recorder *r, RecordKind kind, const char *name, int64_t step) {
    record_begin(r, &(Record){.kind = kind, .name = name, .call = "", .layer = -1, .step = step});
}

/* forward > product, bias */
static RecordedGraph *capture_work(Recorder *r, int64_t step) {
    Arena arenas[ARENA_COUNT] = {0};
    record_capture_begin(r);
    begin(r, RECORD_SCOPE, "forward", step);
    begin(r, RECORD_OPERATION, "product", step);
    arenas[ARENA_SCRATCH].used = 100;
    record_memory(r, arenas, NULL);
    arenas[ARENA_SCRATCH].used = 0;
    record_end(r);
    record_memory(r, arenas, NULL);
    begin(r, RECORD_OPERATION, "bias", step);
    record_end(r);
    record_end(r);
    return record_capture_end(r);
}

static void launch(Recorder *r, const RecordedGraph *graph, int64_t step) {
    begin(r, RECORD_SCOPE, "step", step);
    record_replay(r, graph, KERNELS, step);
    record_end(r);
    record_end(r);
}

static void launches_repeat_the_capture(void **state) {
    static const char *const names[] = {"step", "graph", "forward", "product", "bias"};
    static const int64_t parents[] = {-1, 0, 1, 2, 2};
    (void)state;
    Marks marks = {0};
    const Record *records;
    int64_t count, dropped;
    Recorder *r = open_recorder(&marks, 0);
    begin(r, RECORD_SCOPE, "step", 4);
    record_memory(r, (Arena[ARENA_COUNT]){0}, NULL);
    RecordedGraph *graph = capture_work(r, 4);
    record_end(r);
    assert_non_null(graph);
    assert_true(recorder_knows(r, graph) && !recorder_knows(r, NULL));
    assert_true(marks.captures[0] == 1 && marks.captures[1] == -1 && marks.capture_count == 2);
    expect_ok(recorder_read(r, &records, &count, &dropped));
    assert_int_equal(count, 1); // the capture did nothing
    (void)recorder_memory(r, &count);
    assert_int_equal(count, ARENA_COUNT);

    for (int window = 0; window < 2; window++) {
        recorder_clear(r);
        marks.replay_count = 0;
        launch(r, graph, 5);
        launch(r, graph, 6);
        expect_ok(recorder_read(r, &records, &count, &dropped));
        assert_int_equal(count, 10);
        assert_int_equal(dropped, 0);
        for (int64_t i = 0; i < count; i++) {
            assert_string_equal(records[i].name, names[i % 5]);
            assert_int_equal(records[i].parent, i % 5 ? i / 5 * 5 + parents[i % 5] : -1);
            assert_int_equal(records[i].step, 5 + i / 5);
            assert_true(records[i].cpu_end >= records[i].cpu_start);
            if (i % 5 >= 2) assert_true(records[i].cpu_end == records[i].cpu_start);
            if (i) assert_true(records[i].cpu_start >= records[i - 1].cpu_start);
        }
        assert_true(marks.replays[0] == 1 && marks.replays[1] == 6 && marks.replay_count == 2);
        const RecordMemory *memory = recorder_memory(r, &count);
        assert_int_equal(count, 4);
        assert_true(memory[2].used == 100 && memory[3].used == 0 && memory[3].at > memory[2].at);
        assert_true(memory[2].record == 8 && memory[3].record == 7);
    }
    assert_int_equal(marks.depth, 0);
    recorded_graph_free(graph);
    recorder_close(r);
}

static void others_graphs_are_not_known(void **state) {
    (void)state;
    Marks marks = {0};
    Recorder *first = open_recorder(&marks, 0), *second = open_recorder(&marks, 0);
    RecordedGraph *graph = capture_work(first, 1);
    assert_true(recorder_knows(first, graph) && !recorder_knows(second, graph));
    recorded_graph_free(graph);
    recorder_close(first);
    recorder_close(second);
    Recorder *plain = recorder_open(device, &(RecorderOptions){.whole = true});
    assert_false(recorder_captures(plain));
    recorder_close(plain);
}

/* Records beyond the limit are counted as dropped, and calls for a dropped record have no effect. */
static void a_full_recorder_drops_launches(void **state) {
    (void)state;
    Marks marks = {0};
    const Record *records;
    int64_t count, dropped;
    Recorder *r = open_recorder(&marks, 8);
    RecordedGraph *graph = capture_work(r, 1);
    recorder_clear(r);
    launch(r, graph, 1);
    launch(r, graph, 2);
    expect_ok(recorder_read(r, &records, &count, &dropped));
    assert_int_equal(count, 6); // a step of five, and the next step without its graph
    assert_int_equal(dropped, 4);
    assert_int_equal(marks.replay_count, 1);
    assert_int_equal(marks.depth, 0);
    recorded_graph_free(graph);
    recorder_close(r);
}

static long page_faults(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

/* The memory of thousands of records is already mapped when a step is recorded; stacks and clocks may cause a
 * few page faults. */
static void pages_are_there(void **state) {
    (void)state;
    enum { RECORDS = 4000, FEW = 20 };
    Recorder *recorder = recorder_open(device, &(RecorderOptions){.whole = true});
    const long before = page_faults();
    for (int i = 0; i < RECORDS; i++) {
        begin(recorder, RECORD_SCOPE, "scope", 1);
        record_end(recorder);
    }
    assert_true(page_faults() - before <= FEW);
    recorder_close(recorder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_repeat_the_capture), cmocka_unit_test(pages_are_there),
        cmocka_unit_test(others_graphs_are_not_known), cmocka_unit_test(a_full_recorder_drops_launches)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
