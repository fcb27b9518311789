/* Which library multiplies on the CPU, and the autotuning cache (kernels/gemm/choices.h). */
#define _GNU_SOURCE
#include "base/directories.h"
#include "base/memory.h"
#include "kernels/gemm/choices.h"
#include "kernels/gemm/cpu.h"
#include "tests/support/expect.h"

#include <cblas.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* An empty cache of the test's own. */
static int enter_cache(void **state) {
    (void)state;
    char folder[] = "/tmp/fusebox-choices-XXXXXX";
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    unsetenv("FUSEBOX_TUNE");
    unsetenv("FUSEBOX_ONEDNN");
    return 0;
}

static int leave_cache(void **state) {
    (void)state;
    expect_ok(directory_remove(getenv("XDG_CACHE_HOME")));
    return 0;
}

static void choices_are_found_again(void **state) {
    (void)state;
    const int64_t first[3] = {256, -1, 7}, second[3] = {256, -1, 8};
    const KeptChoice one = {0xFEDCBA9876543210u, 12.5f}, two = {2, 0.25f};
    KeptChoice found;
    assert_true(choices_wanted());
    assert_false(choice_find("file.txt", first, 3, &found));
    choice_keep("file.txt", first, 3, &one);
    choice_keep("file.txt", second, 3, &two);
    assert_true(choice_find("file.txt", first, 3, &found));
    assert_true(found.fingerprint == one.fingerprint && found.microseconds == one.microseconds);
    assert_true(choice_find("file.txt", second, 3, &found));
    assert_true(found.fingerprint == two.fingerprint && found.microseconds == two.microseconds);
    assert_false(choice_find("file.txt", first, 2, &found)); // a shorter key is another one
    assert_false(choice_find("other.txt", first, 3, &found));
}

static void write_cache(const char *name, const char *text) {
    char *path = path_in_cache(name, true);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    memory_free(path);
}

/* A pipe in place of the file would block forever. */
static void a_pipe_keeps_nothing(void **state) {
    (void)state;
    const int64_t key[] = {1};
    const KeptChoice choice = {.fingerprint = 1, .microseconds = 1};
    KeptChoice found;
    char *path = path_in_cache("pipe.txt", true), *peaks = path_in_cache("peaks.json", true);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mkfifo(peaks, 0600), 0);
    alarm(60);
    assert_false(choice_keep("pipe.txt", key, 1, &choice));
    assert_false(choice_find("pipe.txt", key, 1, &found));
    assert_null(path_in_cache("peaks.json", true)); // nothing is written in this case
    alarm(0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(peaks), 0);
    memory_free(path);
    memory_free(peaks);
}

static void damaged_lines_choose_nothing(void **state) {
    (void)state;
    const char *const texts[] = {"",
                                 "\n",
                                 "7\n",
                                 "7 ",
                                 "7 12",
                                 "7 12 \n",
                                 "7 12 0.0\n",
                                 "7 12 -1.0\n",
                                 "7 12 nan\n",
                                 "7 12 1.0",
                                 "7 12 1.0 more\n",
                                 "x 12 1.0\n"};
    const int64_t key = 7;
    KeptChoice found;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_cache("damaged.txt", texts[i]);
        if (choice_find("damaged.txt", &key, 1, &found)) fail_msg("\"%s\" chooses something", texts[i]);
    }
    write_cache("damaged.txt", "7 12\n7 nonsense\n\n7 12 1.0\n");
    assert_true(choice_find("damaged.txt", &key, 1, &found));
    assert_int_equal(found.fingerprint, 0x12);
    write_cache("damaged.txt", "8 12 1.0\n7 12"); // an entry appended after it gets a line of its own
    assert_true(choice_keep("damaged.txt", &key, 1, &(KeptChoice){.fingerprint = 0x34, .microseconds = 2}));
    assert_true(choice_find("damaged.txt", &key, 1, &found));
    assert_int_equal(found.fingerprint, 0x34);
}

static void nothing_is_timed_unless_wanted(void **state) {
    (void)state;
    char *cache = memory_text(getenv("XDG_CACHE_HOME")),
         *home = getenv("HOME") ? memory_text(getenv("HOME")) : NULL;
    setenv("FUSEBOX_TUNE", "0", 1);
    assert_false(choices_wanted());
    unsetenv("FUSEBOX_TUNE");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_false(choices_wanted());
    setenv("XDG_CACHE_HOME", cache, 1);
    if (home) setenv("HOME", home, 1);
    memory_free(cache);
    memory_free(home);
}

static void one_process_chooses_at_a_time(void **state) {
    (void)state;
    int lock = choices_lock(), other;
    assert_true(lock >= 0);
    char *folder = path_in_cache(".", false);
    Status status = directory_lock(folder, &other);
    assert_non_null(status);
    status_free(status);
    memory_free(folder);
    close(lock);
    lock = choices_lock();
    assert_true(lock >= 0);
    close(lock);
}

/* ---- on the CPU ---- */

static struct {
    int products;
    useconds_t pause; // of each
} openblas;

/* Replaces OpenBLAS's function, and calls it. */
void cblas_sgemm(CBLAS_LAYOUT order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k,
                 float alpha, const float *a, blasint lda, const float *b, blasint ldb, float beta, float *c,
                 blasint ldc) {
    __typeof__(cblas_sgemm) *own;
    *(void **)&own = dlsym(RTLD_NEXT, "cblas_sgemm");
    openblas.products++;
    usleep(openblas.pause);
    own(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static Ctx open_cpu(void) {
    Ctx ctx = {.dtype = F32, .form = FORM_FUSED, .layer = -1};
    expect_ok(device_open_cpu(0, &ctx.device));
    return ctx;
}

/* Whether oneDNN has this product, as a new process reports. It has fewer rows than AMX tiles support, so
 * that the libraries are timed on every processor, and is just large enough for timing. */
static bool onednn_multiplies(void) {
    enum { ROWS = 16, COLUMNS = 256 };
    static float a[ROWS * COLUMNS], b[COLUMNS * COLUMNS], c[ROWS * COLUMNS];
    const Gemm g = {.a = a,
                    .b = b,
                    .c = c,
                    .m = ROWS,
                    .n = COLUMNS,
                    .k = COLUMNS,
                    .lda = COLUMNS,
                    .ldb = COLUMNS,
                    .ldc = COLUMNS,
                    .alpha = 1};
    const GemmFinish plain = {0};
    Ctx ctx = open_cpu();
    const CpuPlan *plan;
    expect_ok(gemm_cpu_finishes(&ctx, &g, &plain, &plan));
    bool does = plan != NULL;
    expect_ok(gemm(&ctx, &g));
    ctx.device->close(ctx.device);
    return does;
}

static bool onednn_is_here(void) {
    Ctx ctx = open_cpu();
    bool here = ((CpuDevice *)ctx.device)->onednn != NULL;
    assert_int_equal(strncmp(ctx.device->library, "oneDNN ", 7) == 0, here);
    assert_non_null(strstr(ctx.device->library, "OpenBLAS "));
    ctx.device->close(ctx.device);
    return here;
}

static char *products_file(void) {
    Ctx ctx = open_cpu();
    char *folder = path_in_cache("", true), *path = NULL;
    PathList found = {0};
    expect_ok(directory_list(folder, &found));
    for (int64_t i = 0; i < found.count; i++)
        if (strstr(found.paths[i], "products-")) path = memory_text(found.paths[i]);
    path_list_free(&found);
    memory_free(folder);
    ctx.device->close(ctx.device);
    return path;
}

static void a_race_is_run_once(void **state) {
    (void)state;
    if (!onednn_is_here()) skip();
    bool selected = onednn_multiplies();
    char *path = products_file(), *text, *again;
    int64_t length;
    assert_non_null(path);
    expect_ok(file_read(path, 1 << 20, &text, &length));
    assert_ptr_equal(strchr(text, '\n'), text + length - 1); // one line
    assert_int_equal(onednn_multiplies(), selected);
    expect_ok(file_read(path, 1 << 20, &again, &length));
    assert_string_equal(again, text);

    /* The file decides: with the other fingerprint, 1 for OpenBLAS, 2 for oneDNN, the other library is
     * selected. */
    char *fingerprint = strrchr(text, ' ') - 1;
    assert_int_equal(*fingerprint, selected ? '2' : '1');
    *fingerprint = selected ? '1' : '2';
    char *name = strrchr(path, '/') + 1;
    write_cache(name, text);
    assert_int_equal(onednn_multiplies(), !selected);
    memory_free(path);
    memory_free(text);
    memory_free(again);
}

/* A single run can take seconds; more runs would not change the result. */
static void a_race_that_openblas_loses_by_far_ends(void **state) {
    (void)state;
    if (!onednn_is_here()) skip();
    openblas.products = 0;
    openblas.pause = 500000;
    assert_true(onednn_multiplies());
    openblas.pause = 0;
    assert_int_equal(openblas.products, 1);
}

static void without_the_library_openblas_multiplies(void **state) {
    (void)state;
    setenv("FUSEBOX_ONEDNN", "none", 1);
    assert_false(onednn_is_here());
    assert_false(onednn_multiplies());
    Ctx ctx = open_cpu();
    bool fast;
    expect_ok(gemm_cpu_bf16_fast(ctx.device, &fast));
    assert_false(fast);
    ctx.device->close(ctx.device);
    unsetenv("FUSEBOX_ONEDNN");
}

static void the_setting_names_no_file(void **state) {
    (void)state;
    Device *device;
    if (!onednn_is_here()) skip();
    setenv("FUSEBOX_ONEDNN", "/nowhere/libdnnl.so", 1);
    expect_error(device_open_cpu(0, &device), ERROR_USAGE, "FUSEBOX_ONEDNN=/nowhere/libdnnl.so");
    unsetenv("FUSEBOX_ONEDNN");
}

static void untimed_onednn_multiplies(void **state) {
    (void)state;
    if (!onednn_is_here()) skip();
    setenv("FUSEBOX_TUNE", "0", 1);
    assert_true(onednn_multiplies());
    assert_null(products_file());
}

/* Otherwise choices made by processor type would depend on whether a file can be opened. */
static void the_processors_name_needs_no_file(void **state) {
    (void)state;
    struct rlimit usual, none;
    char name[PROCESSOR_BYTES], without[PROCESSOR_BYTES];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = (struct rlimit){0, usual.rlim_max};
    device_processor(name);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    device_processor(without);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    assert_string_equal(without, name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(choices_are_found_again, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(a_pipe_keeps_nothing, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(damaged_lines_choose_nothing, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(nothing_is_timed_unless_wanted, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(one_process_chooses_at_a_time, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(a_race_is_run_once, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(a_race_that_openblas_loses_by_far_ends, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(without_the_library_openblas_multiplies, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(the_setting_names_no_file, enter_cache, leave_cache),
        cmocka_unit_test_setup_teardown(untimed_onednn_multiplies, enter_cache, leave_cache),
        cmocka_unit_test(the_processors_name_needs_no_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
