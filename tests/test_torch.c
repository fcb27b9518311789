/* The table of operations with PyTorch's names, of real steps on the CPU. */
#include "profile/profile.h"
#include "report/bundle.h"
#include "report/chrome.h"
#include "report/torch_tables.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"
#include "tests/support/traced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Tables in_torch_words(const Trace *t) {
    return (Tables){{torch_table(t, false, false), torch_table(t, true, false)}, 2};
}

/* Every part of the naive path has a PyTorch name; other calls have fusebox's. */
static void test_torch_names(void **state) {
    Trace **traces = *state;
    Tables tables;
    tables = in_torch_words(traces[FORM_NAIVE]);
    const Table *t = tables_find(&tables, "operations");
    /* Calls in a step of PyTorch 2.15's profiler for the same model with L layers and N norms. */
    enum { L = TRACED_LAYERS, N = 2 * TRACED_LAYERS + 1 };
    static const struct {
        const char *name;
        int calls;
    } theirs[] = {{"ProfilerStep*", 1},
                  {"aten::embedding", 2},
                  {"aten::native_layer_norm", N},
                  {"aten::addmm", 4 * L},
                  {"aten::bmm", 6 * L},
                  {"aten::masked_fill_", L},
                  {"aten::_softmax", L},
                  {"aten::gelu", L},
                  {"aten::mm", 1 + 2 * (4 * L + 1)},
                  {"aten::_log_softmax", 1},
                  {"aten::nll_loss_forward", 1},
                  {"aten::nll_loss_backward", 1},
                  {"aten::_log_softmax_backward_data", 1},
                  {"aten::_softmax_backward_data", L},
                  {"aten::gelu_backward", L},
                  {"aten::native_layer_norm_backward", N},
                  {"aten::embedding_dense_backward", 2},
                  {"aten::sum", 4 * L}};
    /* PyTorch's views, wrappers and nested calls do not exist here. */
    static const char *const absent[] = {"aten::view",   "aten::t",       "aten::as_strided", "aten::linear",
                                         "aten::matmul", "aten::softmax", "aten::layer_norm", "aten::empty"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        int64_t row = find_row(t, theirs[i].name);
        if (cell(t, row, "calls") != TRACED_STEPS * theirs[i].calls) fail_msg("calls of %s", theirs[i].name);
    }
    for (int64_t row = 0; row < t->rows; row++)
        assert_null(strstr(t->cells[row * t->column_count].text, "fusebox::"));
    for (int64_t row = 0; row < t->rows; row++)
        for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
            const char *name = t->cells[row * t->column_count].text;
            if (strcmp(name, absent[i]) == 0 || strstr(name, "Backward0")) fail_msg("%s did not run", name);
        }
    expect_about(cell(t, find_row(t, "ProfilerStep*"), "cpu_share"), 1);
    /* Per layer: the products p and y; in the backward pass dp and the gradients of queries, keys and
     * values. */
    const double rows = TRACED_BATCH * TRACED_SEQ * 4, of_heads = rows * 32, scores = rows * 2 * TRACED_SEQ;
    expect_about(cell(t, find_row(t, "aten::bmm"), "cpu_memory_bytes"),
                 TRACED_STEPS * L * (4 * of_heads + 2 * scores));
    /* Each call is attributed the memory that it fills: GELU its result, the product before it GELU's
     * argument. */
    expect_about(cell(t, find_row(t, "aten::gelu"), "cpu_memory_bytes"), TRACED_STEPS * L * rows * 128);
    expect_about(cell(t, find_row(t, "aten::addmm"), "cpu_memory_bytes"),
                 TRACED_STEPS * L * rows * (96 + 32 + 128)); // a block's last result has memory already
    expect_about(cell(t, find_row(t, "aten::native_layer_norm"), "cpu_memory_bytes"),
                 TRACED_STEPS * N * rows * (32 + 2));
    expect_about(cell(t, find_row(t, "aten::add"), "cpu_memory_bytes"), TRACED_STEPS * L * of_heads);
    assert_string_equal(t->columns[6].title, "CPU Mem"); // there is no GPU here
    assert_int_equal(t->column_count, 9);
    tables_free(&tables);
}

/* For a fused path PyTorch's names exist only for ranges. */
static void test_torch_names_fused(void **state) {
    Tables tables;
    tables = in_torch_words(((Trace **)*state)[FORM_FUSED]);
    const Table *t = tables_find(&tables, "operations");
    assert_true(cell(t, find_row(t, "fusebox::linear forward"), "calls") == TRACED_STEPS * 4 * TRACED_LAYERS);
    assert_true(cell(t, find_row(t, "my range"), "calls") == TRACED_STEPS);
    tables_free(&tables);
}

/* A product's row has the shapes of its factors. */
static void test_torch_shapes(void **state) {
    Tables tables;
    tables = in_torch_words(((Trace **)*state)[FORM_NAIVE]);
    const Table *t = tables_find(&tables, "operations_by_shape");
    enum { B = TRACED_BATCH, T = TRACED_SEQ, L = TRACED_STEPS * TRACED_LAYERS, ROWS = 3 };
    char shapes[ROWS][160];
    const char *const names[ROWS] = {"aten::addmm", "aten::bmm", "aten::mm"};
    const int calls[ROWS] = {L, 2 * L, L}; // bmm: includes dy times values
    snprintf(shapes[0], sizeof *shapes, "[[%d, 32], [32, 96]]", B * T);
    snprintf(shapes[1], sizeof *shapes, "[[%d, %d, 16], [%d, 16, %d]]", 2 * B, T, 2 * B, T);
    snprintf(shapes[2], sizeof *shapes, "[[%d, 96], [96, 32]]", B * T);
    for (int i = 0; i < ROWS; i++) {
        int64_t found = -1;
        for (int64_t row = 0; row < t->rows; row++) {
            const Cell *cells = &t->cells[row * t->column_count];
            const char *text = cells[t->column_count - 1].text;
            if (strcmp(cells[0].text, names[i]) == 0 && text && strcmp(text, shapes[i]) == 0) found = row;
        }
        if (found < 0) fail_msg("no row for %s of %s", names[i], shapes[i]);
        if (cell(t, found, "calls") != calls[i]) fail_msg("calls of %s of %s", names[i], shapes[i]);
    }
    tables_free(&tables);
}

static int64_t add(Trace *t, TraceKind kind, const char *name, int64_t begin, int64_t end, int64_t parent) {
    TraceEvent e = trace_event(t, kind, name);
    e.thread = 0;
    e.begin = begin;
    e.end = end;
    e.parent = parent;
    e.step = 0;
    if (kind >= TRACE_OPERATION) e.operation = "linear";
    return trace_add(t, &e);
}

/* Queries, keys and values as three layers are three calls, each with its bias. */
static void test_torch_parts(void **state) {
    (void)state;
    Tables tables;
    Trace *t = trace_open();
    int64_t step = add(t, TRACE_STEP, "step", 0, 100, -1),
            linear = add(t, TRACE_OPERATION, "linear", 10, 90, step);
    t->events[linear].shapes = trace_name(t, "[[4, 32, 64], [192, 64], [192]]");
    for (int part = 0; part < 3; part++) {
        int64_t product = add(t, TRACE_PRIMITIVE, "product", 10 + 20 * part, 20 + 20 * part, linear);
        int64_t bias = add(t, TRACE_PRIMITIVE, "bias add", 20 + 20 * part, 25 + 20 * part, linear);
        t->events[product].shapes = trace_name(t, "[[128, 64], [64, 64]]");
        t->events[product].torch = t->events[bias].torch = trace_name(t, "aten::addmm");
        t->events[bias].torch_part = true;
    }
    expect_ok(trace_finish(t));
    tables = in_torch_words(t);
    const Table *by_shape = tables_find(&tables, "operations_by_shape");
    int64_t row = find_row(by_shape, "aten::addmm");
    assert_true(cell(by_shape, row, "calls") == 3 && cell(by_shape, row, "cpu_ns") == 45);
    assert_string_equal(by_shape->cells[(row + 1) * by_shape->column_count - 1].text,
                        "[[128, 64], [64, 64]]");
    tables_free(&tables);
    trace_close(t);
}

/* On a GPU: an operator, the call in it that launches a kernel, and the kernel. */
static int64_t add_launch(Trace *t, int64_t begin, int64_t step) {
    int64_t product = add(t, TRACE_PRIMITIVE, "product", begin, begin + 10, step),
            call = add(t, TRACE_RUNTIME, "cudaLaunchKernel", begin + 2, begin + 6, product),
            kernel = add(t, TRACE_KERNEL, "volta_sgemm_128x64_tn", begin + 8, begin + 38, product);
    t->events[product].torch = trace_name(t, "aten::mm");
    t->events[kernel].thread = -1;
    t->events[kernel].stream = 0;
    t->events[kernel].launch = call;
    return product;
}

/* Kernels, copies and calls of the runtime are rows, as in the tables that PyTorch's users publish. */
static void test_torch_kernels(void **state) {
    (void)state;
    Tables tables;
    Trace *t = trace_open();
    t->run.source = SOURCE_CUPTI;
    t->run.steps = 1;
    int64_t step = add(t, TRACE_STEP, "model_inference", 0, 200, -1);
    t->events[step].own = true;
    (void)add_launch(t, 10, step);
    (void)add_launch(t, 60, step);
    int64_t copy = add(t, TRACE_COPY, "copy", 120, 140, step);
    t->events[copy].copy = (CopyShape){COPY_HOST_TO_DEVICE, HOST_MEMORY_PINNED, 64};
    expect_ok(trace_finish(t));
    tables = in_torch_words(t);
    const Table *rows = tables_find(&tables, "operations");
    int64_t kernel = find_row(rows, "volta_sgemm_128x64_tn"), call = find_row(rows, "cudaLaunchKernel"),
            product = find_row(rows, "aten::mm");
    assert_true(cell(rows, kernel, "calls") == 2 && cell(rows, kernel, "self_device_ns") == 60 &&
                cell(rows, kernel, "self_cpu_ns") == 0);
    assert_true(cell(rows, call, "calls") == 2 && cell(rows, call, "self_cpu_ns") == 8);
    assert_true(cell(rows, product, "self_device_ns") == 60 && cell(rows, product, "self_cpu_ns") == 12);
    assert_true(cell(rows, find_row(rows, "Memcpy HtoD (Pinned -> Device)"), "device_ns") == 20);
    assert_true(cell(rows, find_row(rows, "model_inference"), "calls") == 1);
    assert_string_equal(rows->notes[0], "Self CPU time total: 0.200 us");  // a line each
    assert_string_equal(rows->notes[1], "Self CUDA time total: 0.080 us"); // kernels once
    tables_free(&tables);
    trace_close(t);
}

/* Memory that an operator releases is subtracted, so its memory can be negative. */
static void test_torch_memory(void **state) {
    (void)state;
    Tables tables;
    Trace *t = trace_open();
    int64_t step = add(t, TRACE_STEP, "step", 0, 100, -1), ends[2];
    for (int i = 0; i < 2; i++) {
        ends[i] = add(t, TRACE_PRIMITIVE, "part", 10 + 40 * i, 40 + 40 * i, step);
        t->events[ends[i]].torch = trace_name(t, i ? "aten::sum" : "aten::mm");
    }
    trace_add_memory(t, (TraceMemory){0, MEMORY_SCRATCH, 1024, -1});
    trace_add_memory(t, (TraceMemory){20, MEMORY_SCRATCH, 4096, ends[0]});
    trace_add_memory(t, (TraceMemory){60, MEMORY_SCRATCH, 1024, ends[1]});
    expect_ok(trace_finish(t));
    tables = in_torch_words(t);
    const Table *rows = tables_find(&tables, "operations");
    assert_true(cell(rows, find_row(rows, "aten::mm"), "self_cpu_memory_bytes") == 3072);
    assert_true(cell(rows, find_row(rows, "aten::sum"), "self_cpu_memory_bytes") == -3072);
    assert_true(cell(rows, find_row(rows, "ProfilerStep*"), "cpu_memory_bytes") == 0);
    tables_free(&tables);
    trace_close(t);
}

static char *printed(const Table *table) {
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    table_print_csv(table, file);
    table_print_text(table, &(TableView){0}, file); // with the notes
    fclose(file);
    return text;
}

/* The file contains everything that the tables need: they equal those of the original trace. */
static void test_torch_from_the_file(void **state) {
    Trace *t = ((Trace **)*state)[FORM_NAIVE];
    Profile profile;
    MadeBundle made;
    Bundle read;
    JsonWriter text = {0};
    expect_ok(profile_make(&t, 1, NULL, 0, &profile));
    Answers answers = questions_answer(&profile);
    bundle_make(&profile, &answers, &(ProfileOptions){0}, &made);
    fields_write(&text, bundle_fields, &made.bundle);
    expect_ok(bundle_parse(text.text, (int64_t)text.length, "sample.json", &read));
    const int64_t before = read.paths[0].tables_count;
    expect_ok(torch_tables(&read, false));
    assert_int_equal(read.paths[0].tables_count, before + 1);
    Tables tables = in_torch_words(t);
    for (int i = 0; i < 2; i++) {
        char *theirs = printed(&read.paths[0].tables[i]), *ours = printed(&tables.tables[i]);
        assert_string_equal(theirs, ours);
        free(theirs);
        free(ours);
    }
    assert_string_equal(read.paths[0].tables[2].key, "operators");
    tables_free(&tables);
    bundle_free(&read);
    json_writer_free(&text);
    bundle_unmake(&made);
    answers_free(&answers);
    profile_free(&profile);
}

/* The number of events that did not fit the file is reported. */
static void test_torch_left_out(void **state) {
    (void)state;
    Trace *t = trace_open();
    int64_t step = add(t, TRACE_STEP, "step", 0, 100, -1);
    int64_t product = add(t, TRACE_PRIMITIVE, "product", 10, 20, step);
    t->events[product].torch = trace_name(t, "aten::mm");
    t->run.left_out = 7;
    expect_ok(trace_finish(t));
    Table table = torch_table(t, false, false);
    char *text = printed(&table);
    assert_non_null(strstr(text, "no room for 7 events of later steps"));
    free(text);
    table_free(&table);
    JsonWriter w = {0};
    chrome_render(t, &w);
    assert_non_null(strstr(w.text, "\"left_out\":7")); // the trace for viewers reports them, too
    json_writer_free(&w);
    trace_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch_from_the_file), cmocka_unit_test(test_torch_left_out),
        cmocka_unit_test(test_torch_names),         cmocka_unit_test(test_torch_names_fused),
        cmocka_unit_test(test_torch_shapes),        cmocka_unit_test(test_torch_parts),
        cmocka_unit_test(test_torch_kernels),       cmocka_unit_test(test_torch_memory)};
    return cmocka_run_group_tests(tests, traced_setup, traced_teardown);
}
