/* The Chrome trace of a synthetic profile. */
#include "base/files.h"
#include "base/memory.h"
#include "profile/profile.h"
#include "report/bundle.h"
#include "report/bundle_trace.h"
#include "report/chrome.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <zlib.h>

typedef struct {
    int64_t pid, tid;
    double begin, end; // us
} Slice;

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Whether some slice on the track of `event` is open at its time. */
static bool has_slice(const Slice *slices, int count, const json_t *event) {
    double at = number(event, "ts");
    for (int i = 0; i < count; i++)
        if (slices[i].pid == (int64_t)number(event, "pid") &&
            slices[i].tid == (int64_t)number(event, "tid") && slices[i].begin <= at && at <= slices[i].end)
            return true;
    return false;
}

/* Slices of a track must be disjoint or nested; viewers drop those that cross. */
static void expect_nested(const Slice *slices, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) {
            const Slice *a = &slices[k], *b = &slices[i];
            if (a->pid != b->pid || a->tid != b->tid) continue;
            bool apart = b->begin >= a->end - 1e-9 || b->end <= a->begin + 1e-9;
            bool inside = b->begin >= a->begin - 1e-9 && b->end <= a->end + 1e-9;
            assert_true(apart || inside);
        }
}

enum { FEWEST_PROCESSES = 2048 }; // that tracks' numbers leave free: two a rank

static void check_chrome(json_t *root, int64_t kernels) {
    json_t *events = json_object_get(root, "traceEvents"), *event;
    assert_true(json_is_array(events));
    Slice *slices = memory_array(json_array_size(events), sizeof *slices);
    assert_non_null(slices);
    int count = 0;
    int64_t starts = 0, ends = 0, counters = 0;
    size_t i;
    json_array_foreach(events, i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        assert_true(number(event, "ts") >= 0 && number(event, "dur") >= 0);
        slices[count++] = (Slice){(int64_t)number(event, "pid"), (int64_t)number(event, "tid"),
                                  number(event, "ts"), number(event, "ts") + number(event, "dur")};
    }
    expect_nested(slices, count);
    json_array_foreach(events, i, event) {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const bool arrow = *phase == 's' || *phase == 'f';
        /* Viewers reject an arrow without a number, and a track that looks like a process. */
        if (arrow)
            assert_true(json_is_integer(json_object_get(event, "id")) && has_slice(slices, count, event));
        assert_true(number(event, "tid") > FEWEST_PROCESSES);
        starts += *phase == 's';
        ends += *phase == 'f';
        counters += *phase == 'C';
    }
    assert_int_equal(starts, kernels);
    assert_int_equal(ends, kernels);
    assert_true(counters > 0);
    memory_free(slices);
}

/* With a latency below zero each kernel begins before the one ahead of it has ended, as early launches do. */
static void chrome_is_valid(void **state) {
    for (int form = 0; form < FORM_COUNT; form++) {
        Trace *t = sample_trace((Form)form, form ? -200 : 1000);
        const char *path = inside(*state, form ? "trace.json" : "trace.json.gz");
        expect_ok(chrome_write(t, path));
        enum { ROOM = 1 << 20 };
        char *text = memory_allocate(ROOM);
        gzFile file = gzopen(path, "rb");
        assert_non_null(file);
        int length = gzread(file, text, ROOM - 1);
        assert_true(length > 0 && length < ROOM - 1);
        assert_int_equal(gzclose(file), Z_OK);
        json_error_t error;
        json_t *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
        if (!root) fail_msg("%s", error.text);
        check_chrome(root, t->run.launches);
        json_decref(root);
        memory_free(text);
        trace_close(t);
    }
}

/* A trace rendered from the file equals the recorded trace's, byte for byte. */
static void file_renders_the_same(void **state) {
    (void)state;
    for (int form = 0; form < FORM_COUNT; form++) {
        Trace *t = sample_trace((Form)form, 1000);
        Profile profile;
        MadeBundle made;
        Bundle file;
        BundleTrace restored;
        JsonWriter text = {0}, expected = {0}, found = {0};
        expect_ok(profile_make(&t, 1, NULL, 0, &profile));
        Answers answers = questions_answer(&profile);
        bundle_make(&profile, &answers, &(ProfileOptions){0}, &made);
        fields_write(&text, bundle_fields, &made.bundle);
        expect_ok(bundle_parse(text.text, (int64_t)text.length, "text", &file));
        expect_ok(bundle_trace(&file, 0, &restored));
        chrome_render(t, &expected);
        chrome_render(&restored.trace, &found);
        assert_string_equal(found.text, expected.text);
        bundle_trace_free(&restored);
        bundle_free(&file);
        bundle_unmake(&made);
        answers_free(&answers);
        profile_free(&profile);
        json_writer_free(&text);
        json_writer_free(&expected);
        json_writer_free(&found);
        trace_close(t);
    }
}

/* A kernel's row shows its share of its operator: an operator's kernels add up to 1. */
static void kernels_share_their_operator(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_NAIVE, 1000);
    Tables tables;
    expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
    const Table *rows = tables_find(&tables, "operators");
    int column = table_column(rows, "operator_share");
    assert_true(column >= 0);
    double sum = 0;
    for (int64_t row = 0; row < rows->rows; row++) {
        const Cell *cells = &rows->cells[row * rows->column_count];
        if (cells[0].text[0] == ' ')
            sum += cells[column].number;
        else if (row)
            assert_true(fabs(sum - 1) < 1e-9);
        if (cells[0].text[0] != ' ') sum = 0;
    }
    assert_true(fabs(sum - 1) < 1e-9);
    tables_free(&tables);
    trace_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chrome_is_valid, scratch_setup, scratch_teardown),
        cmocka_unit_test(file_renders_the_same),
        cmocka_unit_test(kernels_share_their_operator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
