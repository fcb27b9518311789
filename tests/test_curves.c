/* A hundred training losses of BERT, the encoder-decoder and a Llama against PyTorch's on the same batches
 * (fixtures/make_curves.py, fixtures/make_llama.py): in fp32 within 1e-5 of each, in shorter dtypes within a
 * bound from their unit roundoff. */
#include "tests/support/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIXTURES "tests/fixtures/"
static const char *const models[] = {FIXTURES "bert/model", FIXTURES "transformer/after",
                                     FIXTURES "transformer/before", FIXTURES "llama/llama",
                                     FIXTURES "vit/model"};
enum { MODELS = sizeof models / sizeof *models };

static void expect_within(const char *model, const double *got, const double *want, double share) {
    for (int step = 0; step < 100; step++)
        if (fabs(got[step] - want[step]) > share * want[step])
            fail_msg("%s: loss %d is %.9f, and PyTorch's %.9f", model, step, got[step], want[step]);
}

/* How far each of model i's losses may move with this unit: the same for both forms, so computed once. */
static const double *changes_of(size_t i, const ModelTask *task, double unit, const TaskResult *like) {
    static struct { double unit, losses[100]; } known[MODELS];
    if (known[i].unit != unit) {
        TaskResult change = task_sensitivity(task, task_training, unit, like);
        memcpy(known[i].losses, change.values[0], sizeof known[i].losses);
        known[i].unit = unit;
    }
    return known[i].losses;
}

static void a_hundred_losses_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    for (size_t i = 0; i < MODELS; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/curve.safetensors", models[i]);
        Safetensors *file;
        ModelTask task = task_open(models[i], path, &file);
        assert_int_equal(task.steps, 100);
        Parameters p;
        parameters_open(&task.config, &p);
        TaskResult got = task_result(task.steps, task.steps, p.size);
        double *room[] = {zeros(p.size)}, unit = task_unit(variant), *want = doubles_of(file, "losses");
        rig_run_once(variant, task_training, &task, room, got.values);
        assert_true(got.values[0][99] < 0.8 * got.values[0][0]); /* it learns */
        if (unit <= 0x1p-23) {                                   /* fp64 and fp32 */
            expect_within(models[i], got.values[0], want, 1e-5);
        } else {
            task_expect_curve_near(got.values[0], want, changes_of(i, &task, unit, &got), task.steps, unit,
                                   "the loss");
        }
        parameters_close(&p);
        safetensors_close(file);
    }
}

#define ON_ALL(test)                                                                                         \
    {#test ", cpu naive fp64", test, NULL, test_end, (void *)&specification}, ON_EACH_VARIANT(test)

int main(void) {
    const struct CMUnitTest tests[] = {ON_ALL(a_hundred_losses_are_pytorchs)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
