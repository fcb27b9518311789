/* The table of operations in PyTorch's words, of real steps on the CPU. */
#include "tests/support/expect.h"
#include "tests/support/profile.h"
#include "tests/support/traced.h"

#include <stdio.h>
#include <string.h>

/* The naive path is made of what PyTorch has names for; calls outside it are ours. */
static void test_torch_names(void **state) {
    Trace **traces = *state;
    Tables tables;
    expect_ok(tables_of_trace(traces[FORM_NAIVE], NAMES_TORCH, &tables));
    const Table *t = tables_find(&tables, "operations");
    /* A step of PyTorch 2.15's profiler for the same model, with its layers L and norms N. */
    enum { L = TRACED_LAYERS, N = 2 * TRACED_LAYERS + 1 };
    static const struct {
        const char *name;
        int calls;
    } theirs[] = {{"ProfilerStep*", 1},
                  {"aten::embedding", 2},
                  {"aten::layer_norm", N},
                  {"aten::native_layer_norm", N},
                  {"aten::linear", 4 * L + 1},
                  {"aten::addmm", 4 * L},
                  {"aten::matmul", 2 * L + 1},
                  {"aten::bmm", 6 * L},
                  {"aten::softmax", L},
                  {"aten::_softmax", L},
                  {"aten::gelu", L},
                  {"aten::mm", 1 + 2 * (4 * L + 1)},
                  {"aten::cross_entropy_loss", 1},
                  {"aten::nll_loss_forward", 1},
                  {"autograd::engine::evaluate_function: AddmmBackward0", 4 * L},
                  {"AddmmBackward0", 4 * L},
                  {"MmBackward0", 1},
                  {"BmmBackward0", 2 * L},
                  {"SoftmaxBackward0", L},
                  {"aten::_softmax_backward_data", L},
                  {"GeluBackward0", L},
                  {"aten::native_layer_norm_backward", N},
                  {"Optimizer.step#AdamW.step", 1},
                  /* Views, and what they need. */
                  {"aten::view", 75},
                  {"aten::t", 45},
                  {"aten::transpose", 73},
                  {"aten::as_strided", 170},
                  {"aten::reshape", 49},
                  {"aten::_unsafe_view", 25},
                  {"aten::expand", 24},
                  {"aten::clone", 18},
                  {"aten::contiguous", L},
                  {"aten::split", L},
                  {"aten::sum", 4 * L + 1},
                  {"aten::linalg_vector_norm", 12 * L + 4 + 1},
                  {"torch::autograd::AccumulateGrad", 12 * L + 4},
                  {"ViewBackward0", 20},
                  {"UnsafeViewBackward0", 19},
                  {"TransposeBackward0", 5 * L},
                  {"SplitBackward0", L},
                  {"TBackward0", 4 * L + 1}};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        int64_t row = find_row(t, theirs[i].name);
        if (cell(t, row, "calls") != TRACED_STEPS * theirs[i].calls) fail_msg("calls of %s", theirs[i].name);
    }
    for (int64_t row = 0; row < t->rows; row++)
        assert_null(strstr(t->cells[row * t->column_count].text, "fusebox::"));
    /* What nests: a product's time is its linear layer's, too. */
    double linear = cell(t, find_row(t, "aten::linear"), "cpu_ns");
    assert_true(linear > cell(t, find_row(t, "aten::addmm"), "cpu_ns"));
    expect_about(cell(t, find_row(t, "ProfilerStep*"), "cpu_share"), 1);
    assert_true(cell(t, find_row(t, "aten::linear"), "cpu_memory_bytes") > 0);
    /* Each layer's: p and y; of the backward pass dp and of queries, keys and values a gradient each. */
    const double rows = TRACED_BATCH * TRACED_SEQ * 4, of_heads = rows * 32, scores = rows * 2 * TRACED_SEQ;
    expect_about(cell(t, find_row(t, "aten::bmm"), "cpu_memory_bytes"),
                 TRACED_STEPS * L * (4 * of_heads + 2 * scores));
    /* Each call has what it fills: GELU its result, and the product before it GELU's argument. */
    expect_about(cell(t, find_row(t, "aten::gelu"), "cpu_memory_bytes"), TRACED_STEPS * L * rows * 128);
    expect_about(cell(t, find_row(t, "aten::addmm"), "cpu_memory_bytes"),
                 TRACED_STEPS * L * rows * (96 + 32 + 128)); // a block's last result has its place already
    expect_about(cell(t, find_row(t, "aten::native_layer_norm"), "cpu_memory_bytes"),
                 TRACED_STEPS * N * rows * (32 + 2));
    expect_about(cell(t, find_row(t, "aten::add"), "cpu_memory_bytes"), TRACED_STEPS * L * of_heads);
    assert_string_equal(t->columns[6].title, "CPU Mem"); // here is no GPU
    assert_int_equal(t->column_count, 9);
    tables_free(&tables);
}

/* Of a fused path PyTorch has no rows but the ranges'. */
static void test_torch_names_fused(void **state) {
    Tables tables;
    expect_ok(tables_of_trace(((Trace **)*state)[FORM_FUSED], NAMES_TORCH, &tables));
    const Table *t = tables_find(&tables, "operations");
    assert_true(cell(t, find_row(t, "fusebox::linear forward"), "calls") == TRACED_STEPS * 4 * TRACED_LAYERS);
    assert_true(cell(t, find_row(t, "my range"), "calls") == TRACED_STEPS);
    tables_free(&tables);
}

static void test_torch_shapes(void **state) {
    Tables tables;
    expect_ok(tables_of_trace(((Trace **)*state)[FORM_NAIVE], NAMES_TORCH, &tables));
    const Table *t = tables_find(&tables, "operations_by_shape");
    enum { B = TRACED_BATCH, T = TRACED_SEQ, L = TRACED_STEPS * TRACED_LAYERS };
    enum { ROWS = 10 };
    char shapes[ROWS][160];
    const char *const names[ROWS] = {
        "aten::linear",  "aten::addmm",    "aten::matmul",   "aten::bmm",          "aten::gelu",
        "GeluBackward0", "AddmmBackward0", "SplitBackward0", "aten::masked_fill_", "BmmBackward0"};
    const int calls[ROWS] = {L, L, L, 2 * L, L, L, L, L, 2 * L, L}; // bmm: dy times values, too
    snprintf(shapes[0], sizeof *shapes, "[[%d, %d, 32], [96, 32], [96]]", B, T);
    snprintf(shapes[1], sizeof *shapes, "[[96], [%d, 32], [32, 96], [], []]", B * T);
    snprintf(shapes[2], sizeof *shapes, "[[%d, 2, %d, 16], [%d, 2, 16, %d]]", B, T, B, T);
    snprintf(shapes[3], sizeof *shapes, "[[%d, %d, 16], [%d, 16, %d]]", 2 * B, T, 2 * B, T);
    snprintf(shapes[4], sizeof *shapes, "[[%d, %d, 128], []]", B, T);
    snprintf(shapes[5], sizeof *shapes, "[[%d, %d, 128]]", B, T);
    snprintf(shapes[6], sizeof *shapes, "[[%d, 96]]", B * T);
    snprintf(shapes[7], sizeof *shapes, "[[%d, %d, 32], [%d, %d, 32], [%d, %d, 32]]", B, T, B, T, B, T);
    snprintf(shapes[8], sizeof *shapes, "[[%d, 2, %d, %d], [%d, %d], []]", B, T, T, T, T);
    snprintf(shapes[9], sizeof *shapes, "[[%d, %d, %d]]", 2 * B, T, T);
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

/* Queries, keys and values as three layers are three calls there, each with a third of weight and bias. */
static void test_torch_parts(void **state) {
    (void)state;
    Tables tables;
    Trace *t = trace_open();
    int64_t step = add(t, TRACE_STEP, "step", 0, 100, -1),
            linear = add(t, TRACE_OPERATION, "linear", 10, 90, step);
    t->events[linear].shapes = trace_name(t, "[[4, 32, 64], [192, 64], [192]]");
    for (int part = 0; part < 3; part++) {
        int64_t product = add(t, TRACE_PRIMITIVE, "product", 10 + 20 * part, 20 + 20 * part, linear);
        t->events[product].shapes = trace_name(t, "[[128, 64], [64, 64]]");
        add(t, TRACE_PRIMITIVE, "bias add", 20 + 20 * part, 25 + 20 * part, linear);
    }
    expect_ok(trace_finish(t));
    expect_ok(tables_of_trace(t, NAMES_TORCH, &tables));
    const Table *by_shape = tables_find(&tables, "operations_by_shape");
    int64_t row = find_row(by_shape, "aten::linear");
    assert_true(cell(by_shape, row, "calls") == 3 && cell(by_shape, row, "cpu_ns") == 45);
    assert_string_equal(by_shape->cells[(row + 1) * by_shape->column_count - 1].text,
                        "[[4, 32, 64], [64, 64], [64]]");
    row = find_row(by_shape, "aten::addmm");
    assert_true(cell(by_shape, row, "calls") == 3);
    assert_string_equal(by_shape->cells[(row + 1) * by_shape->column_count - 1].text,
                        "[[64], [128, 64], [64, 64], [], []]");
    tables_free(&tables);
    trace_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch_names), cmocka_unit_test(test_torch_names_fused),
        cmocka_unit_test(test_torch_shapes), cmocka_unit_test(test_torch_parts)};
    return cmocka_run_group_tests(tests, traced_setup, traced_teardown);
}
