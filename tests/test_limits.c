/* The machine's limits, and the work that a model needs. */
#include "base/limits.h"
#include "kernels/linear/linear.h"
#include "run/peaks.h"
#include "tests/support/program.h"

#include <math.h>
#include <string.h>

static void near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.17g, expected %.17g", value, expected);
}

/* 1 GB/s in memory, 10 in an L3 of 1,000 bytes, 100 in an L2 of 100; writes take twice as long as reads. */
static const Peaks levels = {.flops = 1e9,
                             .bandwidth = 1e9,
                             .read = 1e9,
                             .write = 0.5e9,
                             .caches = {{100, 100e9, 100e9, 50e9}, {1000, 10e9, 10e9, 5e9}}};

static void a_call_is_held_against_the_levels_that_it_reaches(void **state) {
    (void)state;
    const Work small = {.bytes = 100}, middle = {.bytes = 600}, large = {.bytes = 3100};
    near(limit_ns(&levels, small, 1), 1);
    assert_string_equal(limit_name(&levels, small, 1), "L2");
    near(limit_ns(&levels, middle, 1), 1 + 50);
    assert_string_equal(limit_name(&levels, middle, 1), "L3");
    near(limit_ns(&levels, large, 1), 1 + 100 + 2000);
    assert_string_equal(limit_name(&levels, large, 1), "memory");
    near(limit_ns(&levels, work_times(middle, 5), 5), 5 * 51); // five calls, each of 600 bytes
    near(limit_share(&levels, small, 1, 4), 0.25);
}

static void reads_and_writes_have_rates_of_their_own(void **state) {
    (void)state;
    const Work read = {.bytes = 100}, written = {.bytes = 100, .written = 100},
               both = {.bytes = 100, .written = 40};
    near(limit_ns(&levels, read, 1), 1);
    near(limit_ns(&levels, written, 1), 2);
    near(limit_ns(&levels, both, 1), 1); // at once: 40 bytes are written in 0.8 ns
    Peaks plain = levels;
    memset(plain.caches, 0, sizeof plain.caches);
    plain.read = plain.write = 0;
    near(limit_ns(&plain, written, 1), 100); // only the mixed rate is known
}

/* 3 ns in the dtype of the run, 2 ns in 8 bits. */
static void products_in_8_bits_have_a_rate_of_their_own(void **state) {
    (void)state;
    Peaks peaks = {.flops = 1e9, .flops8 = 2e9, .bandwidth = 1e9};
    const Work work = {.flops = 7, .bytes = 1, .flops8 = 4};
    near(limit_ns(&peaks, work, 1), 3 + 2);
    near(limit_ns(&peaks, work_times(work, 2), 2), 10);
    assert_string_equal(limit_name(&peaks, work, 1), "arithmetic");
    peaks.flops8 = 0;
    assert_true(limit_ns(&peaks, work, 1) == 0); // unknown
}

static void nothing_is_said_without_limits(void **state) {
    (void)state;
    const Peaks unknown = {0};
    const Work work = {.flops = 1, .bytes = 1};
    assert_true(limit_ns(&unknown, work, 1) == 0 && limit_share(&unknown, work, 1, 1) == 0);
    assert_string_equal(limit_name(&unknown, work, 1), "");
    assert_true(isnan(mfu_of(1, 0, 0, 0).share));
    assert_true(isnan(mfu_of(1, 0, 10, 0.5).share)); // other programs used the cores
    near(mfu_of(5, 0, 10, 0).share, 0.5);
    near(mfu_of(5, 20, 10, 0).share, 0.25);
    assert_string_equal(mfu_of(5, 20, 10, 0).of, "data sheet");
}

/* The whole memory, except a remainder of less than a cache line per thread. */
static void streams_pass_over_the_memory(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    Device *device;
    void *memory;
    expect_ok(device_open_cpu(2, &device));
    expect_ok(device->allocate(device, BYTES, &memory));
    char *bytes = memory;
    memset(bytes, 7, BYTES);
    expect_ok(device->stream(device, STREAM_READ, memory, BYTES, 2));
    for (int i = 0; i < BYTES; i++) assert_int_equal(bytes[i], 7);
    expect_ok(device->stream(device, STREAM_WRITE, memory, BYTES, 2));
    for (int i = 0; i < BYTES; i++) assert_int_equal(bytes[i], 1);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (char)(i / (BYTES / 4)); // each thread: a half of 2k, one of 2k + 1
    expect_ok(device->stream(device, STREAM_COPY, memory, BYTES, 1));
    for (int i = 0; i < BYTES; i++) assert_int_equal(bytes[i], 2 * (i / (BYTES / 2)));
    device->release(device, memory);
    device->close(device);
}

/* All threads together get more from memory than one thread, and no cache level is slower than the next
 * one. */
static void all_threads_are_measured(void **state) {
    (void)state;
    Device *device;
    Peaks peaks;
    expect_ok(device_open_cpu(0, &device));
    Ctx ctx = {.device = device, .dtype = F32};
    expect_ok(peaks_measure(&ctx, &peaks));
    if (!peaks_known(&peaks)) {
        assert_non_null(peaks.note); // a busy machine: nothing is cached, and the reason is reported
        device->close(device);
        skip();
    }
    assert_true(peaks.read > 0 && peaks.write > 0 && peaks.bandwidth >= fmax(peaks.read, peaks.write));
    for (int i = 0; i < CACHE_COUNT; i++)
        if (peaks.caches[i].bytes > 0) assert_true(peaks.caches[i].most >= peaks.bandwidth);
    Peaks again;
    assert_true(peaks_remember(&ctx, &again));
    near(again.caches[CACHE_L3].write, peaks.caches[CACHE_L3].write);
    device->close(device);
}

/* A GPU that multiplies 8-bit numbers does it faster, and the rate is measured only where it is needed. */
static void products_in_8_bits_are_measured(void **state) {
    (void)state;
    Device *device;
    Peaks peaks;
    Status status = device_open("cuda", 0, &device);
    if (status) {
        status_free(status);
        skip();
    }
    Ctx ctx = {.device = device, .dtype = BF16, .fuses = FUSE_FP8};
    const bool multiplies = linear_multiplies_fp8(&ctx);
    bool holds = false;
    for (int attempt = 0; attempt < 3 && !holds; attempt++) { // other tests may use the GPU meanwhile
        expect_ok(peaks_measure(&ctx, &peaks));
        holds = !peaks_known(&peaks) || (multiplies ? peaks.flops8 > 1.2 * peaks.flops : peaks.flops8 == 0);
    }
    assert_true(holds);
    device->close(device);
}

/* Recomputation counts as performed, not as needed. */
static void recomputed_work_is_not_needed(void **state) {
    double needed[3], done[3];
    static const char *const recompute[] = {"none", "hidden", "blocks"};
    for (int i = 0; i < 3; i++) {
        program_succeeds(*state,
                         "train " TINY
                         " --steps=4 --val-every=0 --profile=1,0,1,1,1 --recompute=%s --fused=0 "
                         "--profile-out=again -q",
                         recompute[i]);
        json_t *bundle = json_load_file(inside(*state, "again/profiling_stats.json"), 0, NULL), *row;
        const json_t *path = json_array_get(json_object_get(bundle, "paths"), 0);
        size_t at;
        needed[i] = done[i] = 0;
        json_array_foreach(json_object_get(path, "operations"), at, row) {
            needed[i] += json_number_value(json_object_get(row, "flops_needed"));
            done[i] += json_number_value(json_object_get(row, "flops"));
        }
        json_decref(bundle);
    }
    near(done[0], needed[0]);
    near(needed[1], needed[0]);
    near(needed[2], needed[0]);
    assert_true(done[1] > done[0] && done[2] > done[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_is_held_against_the_levels_that_it_reaches),
                                       cmocka_unit_test(reads_and_writes_have_rates_of_their_own),
                                       cmocka_unit_test(products_in_8_bits_have_a_rate_of_their_own),
                                       cmocka_unit_test(nothing_is_said_without_limits),
                                       cmocka_unit_test(streams_pass_over_the_memory),
                                       cmocka_unit_test(all_threads_are_measured),
                                       cmocka_unit_test(products_in_8_bits_are_measured),
                                       cmocka_unit_test(recomputed_work_is_not_needed)};
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
