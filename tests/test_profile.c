/* Events and tables of real steps traced on the CPU. */
#include "base/memory.h"
#include "profile/compare.h"
#include "profile/profile.h"
#include "report/questions.h"
#include "run/peaks.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"
#include "tests/support/traced.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tables ---- */

static void test_events(void **state) {
    Trace **traces = *state;
    for (int form = 0; form < FORM_COUNT; form++) {
        const Trace *t = traces[form];
        int64_t counts[TRACE_KIND_COUNT] = {0}, own = 0;
        double covered = 0;
        for (int64_t i = 0; i < t->count; i++) {
            const TraceEvent *e = &t->events[i];
            counts[e->kind]++;
            own += e->own;
            assert_true(e->step >= 1 && e->step <= TRACED_STEPS);
            if (e->parent >= 0) {
                const TraceEvent *parent = &t->events[e->parent];
                assert_true(e->begin >= parent->begin && e->end <= parent->end);
            } else {
                assert_int_equal(e->kind, TRACE_STEP);
            }
            if (e->kind == TRACE_PRIMITIVE) assert_non_null(strstr(e->source, "cpu_"));
            if (e->kind == TRACE_OPERATION) covered += (double)trace_length(e);
            if (trace_on_device(e)) assert_true(e->self == 0 && e->device_self == trace_length(e));
        }
        /* Two norms, an attention and four linear layers in a block, embed, final norm, head: forward and
         * backward; the update. */
        assert_int_equal(counts[TRACE_STEP], TRACED_STEPS);
        assert_int_equal(own, TRACED_STEPS); // only "my range", and no range that fusebox opens itself
        assert_int_equal(counts[TRACE_PHASE], TRACED_STEPS); // the others are inside "my range", so they are
                                                             // scopes
        assert_int_equal(counts[TRACE_OPERATION], TRACED_STEPS * (2 * (7 * TRACED_LAYERS + 3) + 1));
        assert_int_equal(counts[TRACE_FILL], TRACED_STEPS); // gradients and loss at once
        assert_true(counts[TRACE_KERNEL] >= counts[TRACE_PRIMITIVE]);
        assert_true(covered <= steps_ns(t));
        assert_true(device_ns(t) <= steps_ns(t)); // in sequence, without overlap
        int64_t early = 0;
        for (int64_t i = 0; i < t->memory_count; i++) early += t->memory[i].at == 0;
        assert_true(early <= ARENA_COUNT); // the earlier window is discarded
    }
}

static void test_operations(void **state) {
    Trace **traces = *state;
    for (int form = 0; form < FORM_COUNT; form++)
        for (int torch = 0; torch < 2; torch++) {
            Tables tables;
            expect_ok(tables_of_trace(traces[form], torch, &tables));
            const Table *t = tables_find(&tables, "operations");
            expect_about(sum_of(t, "self_cpu_ns"), steps_ns(traces[form]));
            expect_about(sum_of(t, "self_cpu_share"), 1);
            if (!torch) expect_about(sum_of(t, "self_device_ns"), device_ns(traces[form]));
            if (!torch) expect_about(sum_of(t, "self_device_share"), 1);
            for (int64_t row = 0; row < t->rows; row++) {
                assert_true(cell(t, row, "self_cpu_ns") <= cell(t, row, "cpu_ns"));
                if (!torch) assert_true(cell(t, row, "self_device_ns") <= cell(t, row, "device_ns"));
            }
            if (torch) {
                tables_free(&tables);
                continue;
            }
            assert_true(cell(t, find_row(t, "linear forward"), "calls") == TRACED_STEPS * 4 * TRACED_LAYERS);
            if (form == FORM_NAIVE) {
                int64_t product = find_row(t, "attention forward: score product");
                assert_true(cell(t, product, "calls") == TRACED_STEPS * TRACED_LAYERS);
                int64_t scores = find_row(t, "attention forward");
                assert_true(cell(t, scores, "cpu_memory_bytes") > TRACED_BATCH * 2 * TRACED_SEQ * 16 * 4 * 4);
            }
            tables_free(&tables);
        }
}

/* Only matrix products may have the category of matrix products. */
static void test_categories_of_operations(void **state) {
    (void)state;
    for (int operation = 0; operation < OP_COUNT; operation++) {
        bool products = operation == OP_LINEAR || operation == OP_DECODE;
        assert_true((operation_category((Operation)operation) == CATEGORY_MATRIX) == products);
    }
    assert_int_equal(operation_category(OP_NORM), CATEGORY_NORMALIZATION);
}

/* A primitive has the category given at its launch, an operation that of ops.def. */
static void test_categories_of_primitives(void **state) {
    static const struct {
        const char *operation, *name;
        Category category;
    } known[] = {
        {"attention", "score product", CATEGORY_MATRIX},  {"attention", "split heads", CATEGORY_MEMORY},
        {"attention", "softmax max", CATEGORY_ATTENTION}, {"norm", "residual add", CATEGORY_ELEMENTWISE},
        {"linear", "GELU gradient", CATEGORY_ACTIVATION}, {"adamw", "clip", CATEGORY_OPTIMIZER}};
    enum { KNOWN = sizeof known / sizeof *known };
    int64_t found[KNOWN] = {0};
    for (int form = 0; form < FORM_COUNT; form++) {
        const Trace *t = ((Trace **)*state)[form];
        for (int64_t i = 0; i < t->count; i++) {
            const TraceEvent *e = &t->events[i];
            for (int o = 0; o < OP_COUNT && e->kind == TRACE_OPERATION; o++)
                if (strcmp(e->operation, operation_name((Operation)o)) == 0)
                    assert_int_equal(e->category, operation_category((Operation)o));
            if (e->kind == TRACE_OPERATION) assert_non_null(e->shapes); // for its contract's inputs
            if (e->kind != TRACE_PRIMITIVE) continue;
            assert_int_not_equal(e->category, CATEGORY_OTHER);
            if (e->torch && !e->torch_part && strstr(e->torch, "mm")) // PyTorch's products: mm, addmm, bmm
                assert_int_equal(e->category, CATEGORY_MATRIX);
            for (int k = 0; k < KNOWN; k++)
                if (strcmp(e->operation, known[k].operation) == 0 && strcmp(e->name, known[k].name) == 0) {
                    assert_int_equal(e->category, known[k].category);
                    found[k]++;
                }
        }
    }
    for (int k = 0; k < KNOWN; k++) assert_true(found[k] > 0);
}

/* Sentences differ in length: each step has its own number of tokens, and the batch's number of sequences. */
static void test_rates_of_each_step(void **state) {
    (void)state;
    Trace *t;
    Tables tables;
    t = trace_open();
    t->run.batch = 4;
    t->run.seq = 100;
    trace_set_times(t, (double[]){10, 20}, (double[]){1, 3}, 2, NULL, 0);
    trace_set_tokens(t, (double[]){50, 300}, NULL);
    expect_ok(trace_finish(t));
    expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
    const Table *perf = tables_find(&tables, "perf");
    expect_about(cell(perf, find_row(perf, "tokens per second"), "least"), 5000);
    expect_about(cell(perf, find_row(perf, "tokens per second"), "most"), 15000);
    expect_about(cell(perf, find_row(perf, "sequences per second"), "mean"), 8 / 0.030);
    expect_about(cell(perf, find_row(perf, "tokens per second"), "mean"), 350 / 0.030);
    expect_about(cell(perf, find_row(perf, "reader cost, ms"), "mean"), 2);
    tables_free(&tables);
    trace_close(t);
}

static void test_sheet(void **state) {
    (void)state;
    const Peaks h200 = datasheet_peaks("NVIDIA H200", BF16, false),
                tf32 = datasheet_peaks("NVIDIA H200", F32, true);
    expect_about(h200.flops, 989.4e12);
    expect_about(h200.bandwidth, 4.8e12);
    expect_about(tf32.flops, 494.7e12);
    assert_true(datasheet_peaks("AMD EPYC", F32, false).flops == 0);
}

static void test_kernels(void **state) {
    Trace **traces = *state;
    Tables tables;
    expect_ok(tables_of_trace(traces[FORM_NAIVE], NAMES_PLAIN, &tables));
    const Table *t = tables_find(&tables, "kernels");
    expect_about(sum_of(t, "share"), 1);
    for (int64_t row = 0; row < t->rows; row++) {
        double least = cell(t, row, "least_ns"), mean = cell(t, row, "mean_ns");
        assert_true(least <= mean && mean <= cell(t, row, "most_ns"));
        assert_true(least <= cell(t, row, "median_ns"));
        expect_about(mean * cell(t, row, "instances"), cell(t, row, "total_ns"));
    }
    int64_t row = find_row(t, "cblas_sgemm NT"); // linear layers and the head, scores
    assert_true(cell(t, row, "instances") == TRACED_STEPS * (4 * TRACED_LAYERS + 1 + 2 * TRACED_LAYERS));
    tables_free(&tables);
    /* Forward and backward are two kernels, although both primitives are called "flash attention". */
    expect_ok(tables_of_trace(traces[FORM_FUSED], NAMES_PLAIN, &tables));
    t = tables_find(&tables, "kernels");
    row = find_row(t, "attention backward: flash attention");
    assert_true(cell(t, row, "instances") == TRACED_STEPS * TRACED_LAYERS);
    row = find_row(t, "attention forward: flash attention");
    assert_true(cell(t, row, "instances") == TRACED_STEPS * TRACED_LAYERS);
    assert_string_equal(t->cells[row * t->column_count + 1].text, "attention forward");
    tables_free(&tables);
}

/* The naive form's activations are vectorized, so that vectorization is not counted as a gain of fusion. A
 * scalar GELU takes 13 ns per element, 580 times as long as a bias on a quarter of the elements; the
 * vectorized one takes 25 times as long. */
static void test_activations_are_vector_code(void **state) {
    static const char *const names[] = {"linear forward: GELU", "linear backward: GELU gradient"};
    Tables tables;
    expect_ok(tables_of_trace(((Trace **)*state)[FORM_NAIVE], NAMES_PLAIN, &tables));
    const Table *t = tables_find(&tables, "kernels");
    double bias =
        cell(t, find_row(t, "linear forward: bias add"), "least_ns"); // of a quarter of the elements
    for (int i = 0; i < 2; i++) {
        double least = cell(t, find_row(t, names[i]), "least_ns");
        if (least > 120 * bias) fail_msg("%s: %.0f ns, beside a bias's %.0f", names[i], least, bias);
    }
    tables_free(&tables);
}

/* Kernels are below their operations, with these operations' device time. */
static void expect_operators(const Table *t, bool fused) {
    const char *kernel = fused ? "  attention forward: flash attention" : "  attention forward: softmax exp";
    int64_t attention = find_row(t, "attention forward"), at = find_row(t, kernel), row = attention + 1;
    double below = 0;
    assert_true(at > attention);
    for (; row < t->rows && *t->cells[row * t->column_count].text == ' '; row++)
        below += cell(t, row, "device_ns");
    assert_true(row > at);
    expect_about(below, cell(t, attention, "device_ns"));
    assert_true(cell(t, attention, "cpu_least_ns") <= cell(t, attention, "cpu_mean_ns"));
    assert_true(cell(t, attention, "calls") == TRACED_STEPS * TRACED_LAYERS);
}

static void test_steps(void **state) {
    Trace **traces = *state;
    for (int form = 0; form < FORM_COUNT; form++) {
        Tables tables;
        expect_ok(tables_of_trace(traces[form], NAMES_PLAIN, &tables));
        const Table *model = tables_find(&tables, "model"), *ranges = tables_find(&tables, "ranges");
        const Table *own = tables_find(&tables, "user_defined"),
                    *operators = tables_find(&tables, "operators");
        int64_t whole = find_row(model, "ProfileStep"); // and its parts
        expect_about(cell(model, whole, "cpu_ns"), steps_ns(traces[form]));
        assert_true(cell(model, whole, "calls") == TRACED_STEPS);
        expect_about(sum_of(model, "cpu_ns"), 2 * steps_ns(traces[form]));
        expect_about(sum_of(model, "device_ns"), 2 * device_ns(traces[form]));
        assert_int_equal(own->rows, 1);
        assert_true(cell(own, find_row(own, "my range"), "calls") == TRACED_STEPS);
        assert_true(cell(own, 0, "device_least_ns") <= cell(own, 0, "device_most_ns"));
        assert_true(cell(ranges, find_row(ranges, "layer 1"), "calls") == TRACED_STEPS * 2);
        expect_operators(operators, form == FORM_FUSED);
        const Table *overview = tables_find(&tables, "overview");
        for (int64_t row = 0; row < overview->rows; row++)
            assert_true(cell(overview, row, "union_ns") <= cell(overview, row, "sum_ns"));
        expect_about(cell(overview, find_row(overview, "ProfileStep"), "share"), 1);
        assert_true(cell(overview, find_row(overview, "UserDefined"), "events") == TRACED_STEPS);
        assert_true(cell(overview, find_row(overview, "Optimization"), "events") == TRACED_STEPS);
        const Table *categories = tables_find(&tables, "categories");
        assert_int_equal(categories->rows, CATEGORY_COUNT);
        expect_about(sum_of(categories, "share"), 1);
        expect_about(sum_of(categories, "device_ns"), device_ns(traces[form]));
        const Table *perf = tables_find(&tables, "perf");
        expect_about(cell(perf, find_row(perf, "batch cost, ms"), "mean"), 3);
        expect_about(cell(perf, find_row(perf, "tokens per second"), "most"),
                     TRACED_BATCH * TRACED_SEQ / 2e-3);
        expect_about(cell(perf, find_row(perf, "reader cost, ms"), "least"), 0.1);
        expect_about(cell(perf, find_row(perf, "reader ratio, %"), "most"), 7.5);
        const Table *copies = tables_find(&tables, "copies");
        assert_true(cell(copies, find_row(copies, "fill"), "least_ns") > 0);
        assert_true(cell(copies, find_row(copies, "fill"), "cpu_ns") > 0);
        const Table *device = tables_find(&tables, "device");
        expect_about(cell(device, 0, "utilization"), 0.5);
        const Table *distribution = tables_find(&tables, "distribution");
        expect_about(cell(distribution, find_row(distribution, "all"), "communication_ns"), 0);
        tables_free(&tables);
    }
}

/* Both forms need the same work, although fused attention performs more. The sum equals op_run's count, and
 * the least time that of all rows. */
static void test_work(void **state) {
    Trace **traces = *state;
    double needed[FORM_COUNT], done[FORM_COUNT];
    for (int form = 0; form < FORM_COUNT; form++) {
        Tables tables;
        expect_ok(tables_of_trace(traces[form], NAMES_PLAIN, &tables));
        const Table *t = tables_find(&tables, "work");
        int64_t all = t->rows - 1;
        Work counted = {0};
        double least = 0, seconds = 1e-9 * cell(t, all, "device_ns");
        needed[form] = cell(t, all, "flops_needed");
        done[form] = cell(t, all, "flops");
        for (int64_t i = 0; i < traces[form]->count; i++) work_add(&counted, traces[form]->events[i].work);
        expect_about(done[form], counted.flops);
        expect_about(needed[form], counted.needed);
        for (int64_t row = 0; strcmp(t->cells[row * t->column_count].text, "(sum)") != 0; row++)
            least += fmax(cell(t, row, "flops") / 1e11, cell(t, row, "bytes") / 1e10);
        expect_about(cell(t, all, "flop_rate"), done[form] / seconds);
        expect_about(cell(t, all, "of_measured"), least / seconds);
        tables_free(&tables);
    }
    expect_about(needed[FORM_FUSED], needed[FORM_NAIVE]);
    assert_true(done[FORM_FUSED] > done[FORM_NAIVE]);
}

/* Exceeding a measured limit is an error, unless the data sheet gives a higher one. */
static void test_limits(void **state) {
    Trace *t = ((Trace **)*state)[FORM_FUSED];
    const Peaks measured = t->run.measured, sheet = t->run.sheet,
                low = {.flops = 1, .bandwidth = 1, .link = 1},
                high = {.flops = 1e18, .bandwidth = 1e18, .link = 1e18}, unknown = {0};
    const struct {
        Peaks measured, sheet;
        const char *flag;
    } cases[] = {{high, unknown, ""},
                 {low, unknown, "ERROR: above 100%"},
                 {low, low, "ERROR: above 100%"},
                 {low, high, "above what was measured"},
                 {high, high, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t->run.measured = cases[i].measured;
        t->run.sheet = cases[i].sheet;
        Tables tables;
        expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
        const Table *work = tables_find(&tables, "work");
        assert_string_equal(work->cells[work->rows * work->column_count - 1].text, cases[i].flag);
        tables_free(&tables);
    }
    t->run.measured = measured;
    t->run.sheet = sheet;
}

static void test_memory(void **state) {
    Trace **traces = *state;
    Tables tables;
    expect_ok(tables_of_trace(traces[FORM_NAIVE], NAMES_PLAIN, &tables));
    const Table *t = tables_find(&tables, "memory"), *tensors = tables_find(&tables, "tensors");
    expect_about(sum_of(t, "share"), 1);
    for (int64_t row = 0; row < t->rows; row++)
        assert_true(cell(t, row, "at_peak_bytes") <= cell(t, row, "own_peak_bytes"));
    assert_true(cell(t, find_row(t, "saved"), "own_peak_bytes") > 0);
    double weights = cell(tensors, find_row(tensors, "weights"), "bytes");
    assert_true(cell(t, find_row(t, "parameters"), "at_peak_bytes") >= weights);
    for (int64_t row = 1; row < tensors->rows; row++)
        assert_true(cell(tensors, row - 1, "bytes") >= cell(tensors, row, "bytes"));
    const Table *timeline = tables_find(&tables, "memory_timeline");
    assert_int_equal(timeline->rows, 16);
    double most = 0;
    for (int64_t row = 0; row < timeline->rows; row++) most = fmax(most, cell(timeline, row, "all_bytes"));
    expect_about(sum_of(t, "at_peak_bytes"), most);
    const Table *sources = tables_find(&tables, "sources");
    assert_true(sources->rows > 20);
    tables_free(&tables);
}

/* The comparison's table explains a share above 100%, and prints no explanation otherwise. */
static void shares_above_the_limit_are_explained(void **state) {
    (void)state;
    for (int above = 0; above < 2; above++) {
        OperationRow row = {.call = "norm", .operation = "norm", .limit = "memory"};
        row.work = (Work){.flops = 1, .bytes = 1e9};
        row.calls = 1;
        row.median = above ? 0.5e6 : 2e6; // ns for 1 GB: 2 and 0.5 TB/s
        Comparison c = {.what = "step",
                        .device = "d",
                        .library = "l",
                        .dtype = "fp32",
                        .model = "m",
                        .rounds = 10,
                        .path_count = 2};
        c.peaks = (Peaks){.flops = 1e15, .bandwidth = 1e12};
        for (int form = 0; form < FORM_COUNT; form++)
            c.paths[form].operations.figures = (Figures){.rows = &row, .row_count = 1};
        char *text;
        size_t size;
        FILE *file = open_memstream(&text, &size);
        compare_print(&c, file);
        fclose(file);
        assert_int_equal(strstr(text, "above 100%:") != NULL, above);
        free(text);
    }
}

/* Without the device's events, a trace has the host's times: no limit bounds them, and between operations the
 * host may wait. */
static void test_host_only(void **state) {
    (void)state;
    Device *device;
    Profile p;
    Answer bound = {0};
    expect_ok(device_open_cpu(1, &device));
    Trace *t = traced(device, ~FUSE_FP8, (CollectorOptions){.host_only = true});
    device->close(device);
    assert_int_equal(t->run.source, SOURCE_CLOCK);
    assert_non_null(strstr(t->run.source_note, "nothing of the GPU"));
    assert_false(peaks_known(&t->run.measured));
    expect_ok(profile_make(&t, 1, NULL, 0, &p));
    assert_true(p.paths[0].figures.row_count > 0 && p.paths[0].figures.rows[0].ns > 0);
    assert_int_equal(audit_failures(t), 0);
    for (int64_t i = 0; i < t->finding_count; i++) {
        assert_string_not_equal(t->findings[i].name, CHECK_COVERED);
        assert_string_not_equal(t->findings[i].name, CHECK_LIMITS);
    }
    question_bound(&p, &p.paths[0], &bound);
    assert_int_equal(bound.count, 1);
    assert_non_null(strstr(bound.lines[0], "not known"));
    memory_free(bound.lines[0]);
    memory_free(bound.lines);
    profile_free(&p);
    trace_close(t);
}

int main(void) {
    const struct CMUnitTest tables[] = {cmocka_unit_test(shares_above_the_limit_are_explained),
                                        cmocka_unit_test(test_events),
                                        cmocka_unit_test(test_operations),
                                        cmocka_unit_test(test_categories_of_operations),
                                        cmocka_unit_test(test_categories_of_primitives),
                                        cmocka_unit_test(test_rates_of_each_step),
                                        cmocka_unit_test(test_sheet),
                                        cmocka_unit_test(test_kernels),
                                        cmocka_unit_test(test_activations_are_vector_code),
                                        cmocka_unit_test(test_steps),
                                        cmocka_unit_test(test_work),
                                        cmocka_unit_test(test_limits),
                                        cmocka_unit_test(test_memory),
                                        cmocka_unit_test(test_host_only)};
    return cmocka_run_group_tests(tables, traced_setup, traced_teardown);
}
