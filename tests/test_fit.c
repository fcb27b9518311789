/* Recomputation that makes a training run fit in memory (run/fit.h). */
#include "run/fit.h"
#include "tests/support/rig.h"
#include "tests/support/model.h"

#include <string.h>

enum { BATCH = 2, SEQ = 32, STEPS = 3 };

static size_t left; // the memory that the device reports

static Status available(Device *device, size_t *bytes) {
    (void)device;
    *bytes = left;
    return OK;
}

static Status measure(void *user) {
    return trainer_measure(user, NULL);
}

typedef struct {
    Trainer t;
    Status (*available)(Device *device, size_t *bytes);
} Fixture;

static void open_fixture(Fixture *f, Device *device) {
    Config config;
    expect_ok(config_preset("gpt2-nano", &config));
    config.layers = 4;
    config.context = SEQ;
    const Session session = {.device = device, .config = config};
    expect_ok(trainer_open(&f->t, &session, NULL));
    f->t.batch = BATCH;
    f->t.seq = SEQ;
    f->t.update = (UpdateOptions){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
    f->available = device->available;
    device->available = available;
}

static void close_fixture(Fixture *f) {
    f->t.ctx.device->available = f->available;
    trainer_close(&f->t);
}

static size_t bytes_of(Trainer *t, Recompute recompute, int64_t spared) {
    t->model.recompute = recompute;
    t->model.spared = spared;
    plan_forget(&t->ctx);
    expect_ok(trainer_measure(t, NULL));
    return plan_bytes(&t->ctx);
}

static void losses(Trainer *t, double values[STEPS]) {
    int32_t tokens[BATCH * SEQ + 1];
    for (int i = 0; i <= BATCH * SEQ; i++) tokens[i] = (7 * i + i / 5) % 250;
    expect_ok(trainer_measure(t, NULL));
    expect_ok(trainer_allocate(t));
    expect_ok(parameters_initialize(&t->ctx, &t->model.parameters, 1));
    for (int i = 0; i < STEPS; i++) {
        StepResult result;
        expect_ok(trainer_step(t, model_fetch, tokens, 1e-3, &result));
        values[i] = result.loss;
    }
}

/* Every level needs less than the previous one, fits if exactly its bytes are free, and trains to the same
 * bits. */
static void auto_takes_the_least_that_fits(void **state) {
    (void)state;
    Device *device = test_device(BACKEND_CPU);
    double plain[STEPS];
    Fixture f;
    open_fixture(&f, device);
    left = SIZE_MAX;
    expect_ok(fit_choose(&f.t, measure, &f.t));
    assert_true(f.t.model.recompute == RECOMPUTE_NONE && f.t.model.spared == 0);
    losses(&f.t, plain);
    close_fixture(&f);
    for (Recompute recompute = RECOMPUTE_HIDDEN; recompute <= RECOMPUTE_BLOCKS; recompute++)
        for (int64_t spared = 3; spared >= 0; spared--) {
            double values[STEPS];
            open_fixture(&f, device);
            left = bytes_of(&f.t, recompute, spared);
            size_t before =
                spared < 3 ? bytes_of(&f.t, recompute, spared + 1) : bytes_of(&f.t, recompute - 1, 0);
            assert_true(left < before);
            expect_ok(fit_choose(&f.t, measure, &f.t));
            assert_int_equal(f.t.model.recompute, recompute);
            assert_int_equal(f.t.model.spared, spared);
            losses(&f.t, values);
            assert_memory_equal(values, plain, sizeof plain);
            close_fixture(&f);
        }
}

static void what_never_fits_recomputes_all_and_is_refused(void **state) {
    (void)state;
    Fixture f;
    open_fixture(&f, test_device(BACKEND_CPU));
    left = 1000;
    expect_ok(fit_choose(&f.t, measure, &f.t));
    assert_true(f.t.model.recompute == RECOMPUTE_BLOCKS && f.t.model.spared == 0);
    expect_ok(trainer_measure(&f.t, NULL));
    expect_error(trainer_allocate(&f.t), ERROR_MEMORY, "this run needs");
    close_fixture(&f);
}

/* The list ends with the first alternative that fits; trainer and plan are unchanged. */
static void advice_has_numbers(void **state) {
    (void)state;
    Fixture f;
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    open_fixture(&f, test_device(BACKEND_CPU));
    left = bytes_of(&f.t, RECOMPUTE_BLOCKS, 0);
    size_t all = bytes_of(&f.t, RECOMPUTE_NONE, 0);
    expect_ok(fit_advise(&f.t, measure, &f.t, file));
    fclose(file);
    assert_non_null(strstr(text, "--recompute=hidden"));
    const char *blocks = strstr(text, "--recompute=blocks");
    assert_non_null(blocks);
    assert_string_equal(blocks + strlen(blocks) - strlen(", fits\n"), ", fits\n");
    assert_null(strstr(text, "--batch"));
    assert_int_equal(plan_bytes(&f.t.ctx), all);
    assert_int_equal(f.t.model.recompute, RECOMPUTE_NONE);
    free(text);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(auto_takes_the_least_that_fits),
                                       cmocka_unit_test(what_never_fits_recomputes_all_and_is_refused),
                                       cmocka_unit_test(advice_has_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
