/* BERT and the encoder-decoder against PyTorch (fixtures/make_architectures.py): logits, loss, every gradient,
 * the parameters after five AdamW steps, with rows of different lengths, one of them all padding; for the
 * specification in double precision, and for each form, dtype and device. Gradients of the whole models
 * against central differences. See tests/support/task.h for the bounds. */
#include "tests/support/task.h"

#include <stdio.h>

#define FIXTURES "tests/fixtures/"
enum { MODELS = 3 };
static const char *const models[MODELS] = {FIXTURES "bert/model", FIXTURES "transformer/after",
                                           FIXTURES "transformer/before"};

static Task open_model(int i, Safetensors **file) {
    char path[100];
    snprintf(path, sizeof path, "%s/values.safetensors", models[i]);
    return task_open(models[i], path, file);
}

static void gradients_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        Task task = open_model(i, &file);
        task_check_gradients(&task, file, variant);
        safetensors_close(file);
    }
}

static void recomputation_changes_no_bit(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        Task task = open_model(i, &file);
        Parameters p;
        expect_ok(parameters_open(&task.config, &p));
        int64_t logits = task.batch * task.seq * task.config.vocab;
        TaskResult kept = task_result(logits, 1, p.size), again = task_result(logits, 1, p.size);
        rig_run(variant, task_gradient, &task, NULL, kept.values);
        for (task.recompute = RECOMPUTE_HIDDEN; task.recompute <= RECOMPUTE_BLOCKS; task.recompute++) {
            rig_run(variant, task_gradient, &task, NULL, again.values);
            expect_equal(again.values[1], kept.values[1], 1, "loss");
            expect_equal(again.values[2], kept.values[2], p.size, "gradient");
        }
        parameters_close(&p);
        safetensors_close(file);
    }
}

static void five_steps_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        Task task = open_model(i, &file);
        task_check_steps(&task, file, variant);
        safetensors_close(file);
    }
}

static void gradients_are_slopes(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        Task task = open_model(i, &file);
        task.config.activation = ACTIVATION_GELU; // differences would step over a ReLU's kinks
        task_check_slopes(&task);
        safetensors_close(file);
    }
}

/* With dropout there is no PyTorch to compare with, which draws other masks: gradients against differences of
 * the loss under the same masks, and every form against the specification. */
static void dropouts_gradients_are_slopes(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        Task task = open_model(i, &file);
        task.config.activation = ACTIVATION_GELU;
        task.dropout = 0.3;
        task_check_slopes(&task);
        safetensors_close(file);
    }
}

static void every_form_draws_the_same_masks(void **state) {
    const Variant *variant = test_variant(state, OP_DROPOUT);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        Task task = open_model(i, &file);
        Parameters p;
        task.dropout = 0.2;
        expect_ok(parameters_open(&task.config, &p));
        int64_t logits = task.batch * task.seq * task.config.vocab;
        TaskResult want = task_result(logits, 1, p.size), got = task_result(logits, 1, p.size);
        rig_run(&specification, task_gradient, &task, NULL, want.values);
        rig_run(variant, task_gradient, &task, NULL, got.values);
        TaskResult change = task_sensitivity(&task, task_gradient, task_unit(variant), &got);
        task_expect_near(got.values[0], want.values[0], change.values[0], logits, "logits");
        task_expect_near(got.values[2], want.values[2], change.values[2], p.size, "gradient");
        task.recompute = RECOMPUTE_BLOCKS;
        rig_run(variant, task_gradient, &task, NULL, want.values);
        expect_equal(want.values[2], got.values[2], p.size, "gradient with recomputation");
        parameters_close(&p);
        safetensors_close(file);
    }
}

#define ON_ALL(test)                                                                                         \
    {#test ", cpu naive fp64", test, NULL, test_end, (void *)&specification}, ON_EACH_VARIANT(test)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_ALL(gradients_are_pytorchs),      ON_ALL(recomputation_changes_no_bit),
        ON_ALL(five_steps_are_pytorchs),     ONCE(gradients_are_slopes),
        ONCE(dropouts_gradients_are_slopes), ON_EACH_VARIANT(every_form_draws_the_same_masks)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
