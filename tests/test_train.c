/* The program train from the user's side: its log, its options file, runs that must be equal or must agree,
 * divergence. */
#include "tests/support/program.h"

#include "base/files.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 12 };
#define RUN                                                                                                  \
    TINY " --val-data=validation.txt --val-every=6 --val-steps=4 --sample-every=6 --sample-tokens=8 "        \
         "--steps=12 "

/* The run that other runs are compared with. */
static int setup(void **state) {
    if (program_setup(state) != 0) return -1;
    program_succeeds(*state, "train " RUN "--lr=1e-2 --out=first --save-every=6 --log=first.jsonl --peaks "
                             "--hash-trace=first.trace");
    return 0;
}

static void expect_equal_run(const char *folder, const char *log) {
    assert_string_equal(log_numbers(folder, log, 0), log_numbers(folder, "first.jsonl", 0));
}

/* ---- output ---- */

typedef struct {
    const char *event;
    int count;
    const char *fields; // separated by blanks
} Expected;

static void expect_fields(const json_t *event, const char *fields) {
    char copy[256], *place = NULL;
    snprintf(copy, sizeof copy, "%s", fields);
    for (char *name = strtok_r(copy, " ", &place); name; name = strtok_r(NULL, " ", &place)) {
        const json_t *value = json_object_get(event, name);
        const bool shared_cores = !strcmp(name, "mfu"); // without limits there is no share
        if (!value || (json_is_null(value) && !shared_cores)) fail_msg("an event without %s", name);
        if (json_is_real(value)) assert_true(isfinite(json_real_value(value)));
    }
}

static double number(const json_t *event, const char *name) {
    return json_number_value(json_object_get(event, name));
}

/* The last line's rate covers only steps, not a validation after them. */
static void expect_rate(const json_t *step, const json_t *end) {
    double tokens = 1e-3 * number(step, "ms") * number(step, "tokens_per_s");
    double rate = number(end, "tokens_per_s");
    assert_true(rate >= 0.999 * tokens / (1e-3 * number(end, "high_ms")));
    assert_true(rate <= 1.001 * tokens / (1e-3 * number(end, "low_ms")));
}

static void test_log(void **state) {
    static const Expected expected[] = {
        {"config", 1,
         "device library dtype parameters data_tokens step_flops peak_flops peak_bandwidth options"},
        {"plan", 1, "parameters gradients total"},
        {"step", STEPS, "step loss norm lr ms data_ms tokens_per_s mfu"},
        {"val", 2, "step loss"},
        {"sample", 2, "step text"},
        {"save", 2, "step folder"},
        {"end", 1,
         "step reason median_ms low_ms high_ms tokens_per_s mfu data_ms planned_bytes host_peak_bytes"},
    };
    json_t *events = log_read(*state, "first.jsonl", false), *e;
    size_t i, total = 0;
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
        int count = 0;
        json_array_foreach(events, i, e) {
            if (strcmp(json_string_value(json_object_get(e, "event")), expected[k].event) != 0) continue;
            count++;
            expect_fields(e, expected[k].fields);
        }
        assert_int_equal(count, expected[k].count);
        total += (size_t)count;
    }
    assert_int_equal(json_array_size(events), total);
    assert_int_equal(log_step(log_last(events, "end")), STEPS);
    assert_string_equal(json_string_value(json_object_get(log_last(events, "end"), "reason")), "done");
    assert_string_equal(json_string_value(json_object_get(log_last(events, "save"), "folder")),
                        "first/step-00000012");
    const json_t *end = log_last(events, "end");
    expect_rate(json_array_get(events, 2), end);
    assert_true(number(end, "planned_bytes") > 0); // on the CPU the process has held them
    assert_true(number(end, "host_peak_bytes") > number(end, "planned_bytes"));
    double first = number(json_array_get(events, 2), "loss");
    assert_true(fabs(first - log(256)) < 0.5); // knows nothing yet
    double last = number(log_last(events, "val"), "loss");
    assert_true(last < first - 1);
    json_decref(events);
}

static void test_terminal(void **state) {
    const Ran *ran = program_succeeds(*state, "train " RUN "--lr=1e-2");
    static const char *const parts[] = {"configuration\n",
                                        "memory plan\n",
                                        "step     1/12",
                                        "step    12/12",
                                        "validation loss",
                                        "sample at step 12",
                                        "done: median of the last 6"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) expect_text(ran->output, parts[i]);
    assert_string_equal(ran->error, "");
}

static void test_quiet(void **state) {
    const Ran *ran = program_succeeds(*state, "train " RUN "--quiet --profile --out=quiet");
    assert_string_equal(ran->output, "");
    assert_string_equal(ran->error, "");
    ran = program_succeeds(*state, "train " TINY " --quiet --compare");
    assert_string_equal(ran->output, "");
}

static void test_profile(void **state) {
    const Ran *ran = program_succeeds(*state, "train " RUN "--profile --limit=0 --fused=0");
    expect_text(ran->output, "attention forward: split heads ");
    expect_text(ran->output, "attention backward: softmax delta ");
    expect_text(ran->output, "Self CPU time total: ");
}

/* Limits are cached by device name, and a CPU's name contains its number of threads: no other test uses
 * three. */
static void test_unknown_peaks(void **state) {
    const Ran *ran = program_succeeds(*state, "train " RUN "--device=cpu --threads=3 --log=unknown.jsonl");
    assert_null(strstr(ran->output, "MFU"));
    assert_null(strstr(ran->output, "TFLOP/s products"));
    json_t *events = log_read(*state, "unknown.jsonl", false);
    assert_true(json_is_null(json_object_get(log_last(events, "end"), "mfu")));
    json_decref(events);
}

/* Impossibly high limits, in the cache's format, for the device in the log. */
static void keep_limits(const char *folder, const char *log, const char *peaks) {
    char key[320];
    json_t *events = log_read(folder, log, false);
    const json_t *config = log_last(events, "config");
    snprintf(key, sizeof key, "%s | %s | %s", json_string_value(json_object_get(config, "device")),
             json_string_value(json_object_get(config, "library")),
             json_string_value(json_object_get(config, "dtype")));
    json_decref(events);
    json_t *cache = json_pack("{s:o}", key, json_loads(peaks, 0, NULL));
    char *text = json_dumps(cache, 0);
    program_succeeds(folder, "mkdir -p fusebox");
    write_text_file(inside(folder, "fusebox/peaks.json"), text);
    free(text);
    json_decref(cache);
}

/* Cached limits are not measured again. The limits of older versions, from copies by one thread, are
 * ignored. */
static void test_limits_are_measured_once(void **state) {
    program_succeeds(*state, "train " RUN "--peaks=0 --quiet --log=kept.jsonl");
    keep_limits(*state, "kept.jsonl", "{\"flops\": 7e18, \"bandwidth\": 7e12}");
    assert_null(strstr(program_succeeds(*state, "train " RUN "--peaks=0")->output, "TFLOP/s products"));
    keep_limits(*state, "kept.jsonl", "{\"flops\": 7e18, \"bandwidth\": 7e12, \"read\": 7e12}");
    const Ran *ran = program_succeeds(*state, "train " RUN);
    expect_text(ran->output, "7e+06 TFLOP/s products");
    if (!strstr(ran->output, "CORES SHARED")) expect_text(ran->output, "as a share of the measured rate");
    program_succeeds(*state, "rm $(find . -name peaks.json)");
}

/* ---- TensorBoard ---- */

/* TFRecord's masked CRC-32C, from the most significant bit on: 0x1EDC6F41 is Castagnoli's polynomial. */
static uint32_t record_checksum(const uint8_t *bytes, size_t count) {
    uint32_t crc = ~0u, turned = 0;
    for (size_t i = 0; i < 8 * count; i++) {
        uint32_t bit = bytes[i / 8] >> i % 8 & 1u;
        crc = (crc >> 31 ^ bit) ? crc << 1 ^ 0x1EDC6F41 : crc << 1;
    }
    for (int i = 0; i < 32; i++) turned |= (crc >> i & 1u) << (31 - i);
    turned = ~turned;
    return (turned >> 15 | turned << 17) + 0xA282EAD8;
}

static uint32_t word_at(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* A record is length, checksum, event, checksum; an event ends with its curve's name and value. */
static void test_tensorboard(void **state) {
    program_succeeds(*state,
                     "train " RUN
                     "--steps=4 --val-every=2 --tensorboard=board --log=board.jsonl -q && mv board/* curves");
    json_t *events = log_read(*state, "board.jsonl", false);
    const float loss = (float)json_number_value(json_object_get(log_last(events, "val"), "loss"));
    json_decref(events);
    FileMap map;
    expect_ok(file_map(inside(*state, "curves"), &map));
    int records = 0;
    const uint8_t *at = map.data, *end = map.data + map.size, *last = NULL;
    for (uint64_t length; at < end; at += 16 + length, records++) {
        memcpy(&length, at, sizeof length);
        assert_true(length < 200 && at + 16 + length <= end);
        assert_true(word_at(at + 8) == record_checksum(at, 8));
        assert_true(word_at(at + 12 + length) == record_checksum(at + 12, length));
        last = at + 12 + length;
    }
    assert_int_equal(records, 1 + 4 * 4 + 2); // the version; four curves of steps; two validations
    float drawn;
    memcpy(&drawn, last - 4, sizeof drawn);
    assert_true(drawn == loss);
    assert_memory_equal(last - 5 - strlen("loss/validation"), "loss/validation", strlen("loss/validation"));
    file_unmap(&map);
}

/* ---- runs that are bitwise equal ---- */

static void test_same_seed(void **state) {
    program_succeeds(*state, "train " RUN "--lr=1e-2 --out=second --save-every=6 --log=second.jsonl "
                             "--hash-trace=second.trace -q");
    expect_equal_run(*state, "second.jsonl");
    expect_same_file(*state, "first.trace", "second.trace");
    static const char *const files[] = {"config.json", "model.safetensors", "training_state.safetensors"};
    for (int i = 0; i < 3; i++) {
        char one[64], other[64];
        snprintf(one, sizeof one, "first/step-00000012/%s", files[i]);
        snprintf(other, sizeof other, "second/step-00000012/%s", files[i]);
        expect_same_file(*state, one, other);
    }
    FileMap trace;
    expect_ok(file_map(inside(*state, "first.trace"), &trace));
    assert_true(trace.size > 10000);
    file_unmap(&trace);
}

static void test_other_seed(void **state) {
    program_succeeds(*state, "train " RUN "--lr=1e-2 --seed=2 --log=other.jsonl -q");
    assert_string_not_equal(log_numbers(*state, "other.jsonl", 0), log_numbers(*state, "first.jsonl", 0));
}

static void test_workers(void **state) {
    program_succeeds(*state, "train " RUN "--lr=1e-2 --workers=4 --log=workers.jsonl -q");
    expect_equal_run(*state, "workers.jsonl");
}

static void test_recompute(void **state) {
    program_succeeds(*state, "train " RUN "--lr=1e-2 --recompute --log=recompute.jsonl -q");
    expect_equal_run(*state, "recompute.jsonl");
    program_succeeds(*state, "train " RUN "--lr=1e-2 --recompute=blocks --log=blocks.jsonl -q");
    expect_equal_run(*state, "blocks.jsonl");
    program_succeeds(*state, "train " RUN "--lr=1e-2 --recompute=auto --log=auto.jsonl -q");
    expect_equal_run(*state, "auto.jsonl");
}

static void test_check(void **state) {
    program_succeeds(*state, "train " RUN "--lr=1e-2 --check --log=check.jsonl -q");
    expect_equal_run(*state, "check.jsonl");
}

static void test_same_seed_cuda(void **state) {
    program_needs_gpu(*state);
    for (int i = 0; i < 2; i++)
        program_succeeds(*state, "train " RUN "--device=cuda --log=cuda%d.jsonl --hash-trace=cuda%d.trace -q",
                         i, i);
    assert_string_equal(log_numbers(*state, "cuda0.jsonl", 0), log_numbers(*state, "cuda1.jsonl", 0));
    expect_same_file(*state, "cuda0.trace", "cuda1.trace");
    program_succeeds(*state, "train " RUN "--device=cuda --recompute --log=cuda2.jsonl -q");
    assert_string_equal(log_numbers(*state, "cuda0.jsonl", 0), log_numbers(*state, "cuda2.jsonl", 0));
}

static void test_print_config(void **state) {
    program_succeeds(*state, "train " RUN "--lr=1e-2 --print-config >config.json && "
                             "train --config=config.json --log=config.jsonl -q");
    expect_equal_run(*state, "config.jsonl");
    program_succeeds(*state, "train --config=config.json --print-config >config2.json");
    expect_same_file(*state, "config.json", "config2.json");
    /* Its warm-up is always a tenth of the steps. */
    program_succeeds(*state, "train " TINY " --print-config >config3.json && "
                             "train --config=config3.json --steps=3 --val-every=0 --sample-every=0 -q");
}

/* ---- runs that agree except for rounding ---- */

/* Rounding errors are amplified from step to step, depending on the model. The distance of naive fp32 from
 * naive fp64, the specification, from the same start on the same batches, measures this. The fused path
 * rounds no more often, so its distance may be at most a few times that; a wrong formula would differ by far
 * more. */
static void test_paths(void **state) {
    enum { MOST = 30 };
    double wide[MOST], naive[MOST], fused[MOST], allowed = 0;
    const char *folder = *state, *run = "train " TINY " --steps=30 --val-every=0 --sample-every=0 -q";
    program_succeeds(folder, "%s --dtype=fp64 --log=wide.jsonl", run);
    program_succeeds(folder, "%s --fused=0 --log=naive.jsonl", run);
    program_succeeds(folder, "%s --fused=1 --log=fused.jsonl", run);
    assert_int_equal(log_losses(folder, "wide.jsonl", "step", 0, wide, MOST), MOST);
    assert_int_equal(log_losses(folder, "naive.jsonl", "step", 0, naive, MOST), MOST);
    assert_int_equal(log_losses(folder, "fused.jsonl", "step", 0, fused, MOST), MOST);
    bool equal = true;
    for (int i = 0; i < MOST; i++) {
        double distance = fabs(naive[i] - wide[i]), rounding = 0x1p-23 * wide[i];
        allowed = fmax(allowed, 4 * (distance + rounding));
        if (!(fabs(fused[i] - wide[i]) <= allowed))
            fail_msg("step %d: fused %.9g, naive %.9g, fp64 %.9g, allowed %.3g", i + 1, fused[i], naive[i],
                     wide[i], allowed);
        equal = equal && fused[i] == naive[i];
    }
    assert_false(equal); // the fused path has run
}

/* Two micro-batches of one row equal one micro-batch of two rows, except for the order of the mean's sum. In
 * fp64 that is far below the fp32 in which a step reports its loss. */
static void test_accumulation(void **state) {
    double whole[STEPS], halves[STEPS];
    const char *folder = *state,
               *run = "train " TINY " --steps=12 --val-every=0 --sample-every=0 --dtype=fp64 -q";
    program_succeeds(folder, "%s --log=whole.jsonl", run);
    program_succeeds(folder, "%s --batch=1 --accum=2 --log=halves.jsonl", run);
    assert_int_equal(log_losses(folder, "whole.jsonl", "step", 0, whole, STEPS), STEPS);
    assert_int_equal(log_losses(folder, "halves.jsonl", "step", 0, halves, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(whole[i] - halves[i]) <= 0x1p-23 * whole[i]))
            fail_msg("step %d: %.9g, in halves %.9g", i + 1, whole[i], halves[i]);
}

/* ---- divergence ---- */

/* The first update has a magnitude of 1e30: every later loss is infinite or NaN. */
static void test_divergence(void **state) {
    const Ran *ran =
        program_refuses(*state, ERROR_NONFINITE, "the last 5 steps",
                        "train " RUN "--warmup=0 --lr=1e30 --out=diverged --save-every=1 --keep=0 "
                        "--log=diverged.jsonl");
    expect_text(ran->output, "the update is skipped");
    json_t *events = log_read(*state, "diverged.jsonl", false);
    assert_int_equal(log_step(log_last(events, "skip")), 6);
    assert_true(json_is_null(json_object_get(log_last(events, "skip"), "loss")));
    assert_string_equal(json_string_value(json_object_get(log_last(events, "end"), "reason")), "diverged");
    json_decref(events);
    program_succeeds(*state, "cd diverged && test \"$(echo step-*)\" = step-00000001");
}

/* A run that ends before it is aborted for divergence has diverged, too; its last state is saved. */
static void test_divergence_at_the_end(void **state) {
    program_refuses(*state, ERROR_NONFINITE, "the last 2 steps",
                    "train " TINY
                    " --val-every=0 --warmup=0 --lr=1e30 --out=ended --steps=3 --save-every=2 -q");
    program_succeeds(*state, "cd ended && test \"$(echo step-*)\" = step-00000003");
}

/* Weights that an update has made infinite do not replace a good checkpoint. */
static void test_divergence_saved(void **state) {
    program_succeeds(*state, "train " TINY " --val-every=0 --steps=1 --out=burst --sample-every=0 -q");
    program_refuses(*state, ERROR_NONFINITE, "a value that is not finite, so it is not saved",
                    RESUME " --out=burst --steps=2 --schedule=constant --lr=1e38 --weight-decay=9 "
                           "--sample-every=0 -q");
    program_succeeds(*state, "cd burst && test \"$(echo step-*)\" = step-00000001");
}

static void test_divergence_checked(void **state) {
    program_refuses(*state, ERROR_NONFINITE, "--check: output",
                    "train " RUN "--warmup=0 --lr=1e30 --check -q");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_unknown_peaks),
        cmocka_unit_test(test_limits_are_measured_once),
        cmocka_unit_test(test_tensorboard),
        cmocka_unit_test(test_same_seed),
        cmocka_unit_test(test_other_seed),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_print_config),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_divergence_at_the_end),
        cmocka_unit_test(test_divergence_saved),
        cmocka_unit_test(test_divergence_checked),
        cmocka_unit_test(test_same_seed_cuda),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
