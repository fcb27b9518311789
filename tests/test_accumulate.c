/* accumulate: one addition per element in every form; a step has the same bits if products accumulate
 * instead. */
#include "kernels/accumulate/accumulate.h"
#include "tests/support/compare.h"
#include "tests/support/model.h"

#include <stdlib.h>

static const int64_t counts[] = {64, 65, 4096, 100003};
enum { COUNTS = sizeof counts / sizeof *counts };

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Shape shape = shape1(*(const int64_t *)what);
    const Dtype wide = wide_dtype(&rig->ctx);
    const Accumulate a = {.x = rig_put(rig, "x", wide, shape, in[0]),
                          .sum = rig_put(rig, "sum", wide, shape, in[1])};
    expect_ok(accumulate(&rig->ctx, &a));
    rig_get(rig, a.sum, out[0]);
}

static void check(const Variant *variant) {
    const Dtype wide = dtype_wide(variant->dtype);
    for (int i = 0; i < COUNTS; i++) {
        const int64_t count = counts[i];
        double *in[2] = {normals(count, 1, wide), normals(count, 1, wide)};
        double *got[1] = {zeros(count)}, *sum = zeros(count);
        for (int64_t k = 0; k < count; k++)
            sum[k] = wide == F64 ? in[1][k] + in[0][k] : (double)((float)in[1][k] + (float)in[0][k]);
        rig_run(variant, run, &count, in, got);
        expect_equal(got[0], sum, count, "sum");
    }
}

static void specification_adds(void **state) {
    (void)state;
    check(&specification);
}

static void forms_add(void **state) {
    check(test_variant(state, OP_ACCUMULATE));
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const Accumulate right = {tensor_view(NULL, F32, shape1(8)), tensor_view(NULL, F32, shape1(8))};
    Accumulate wrong[3] = {right, right, right};
    wrong[0].sum = tensor_view(NULL, F32, shape1(9));
    wrong[1].sum.dtype = BF16;
    wrong[2].x = (Tensor){0};
    for (int i = 0; i < 3; i++) {
        Status status = accumulate(&ctx, &wrong[i]);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

enum { BATCH = 2, SEQ = 16, ACCUM = 3, STEPS = 3 };

/* Other tokens for each micro-batch. */
static Status fetch(void *tokens, int64_t index, Batch *micro) {
    return model_fetch((int32_t *)tokens + index, index, micro);
}

/* Losses and gradient norms of some steps, and the final weights. */
static Tensor train(Device *device, uint32_t fuses, Trainer *t, StepResult results[STEPS]) {
    int32_t tokens[BATCH * SEQ + ACCUM + 1];
    for (int i = 0; i < BATCH * SEQ + ACCUM + 1; i++) tokens[i] = 7 * i * i % 64;
    model_open_trainer(t, device, &(SmallTrainer){BATCH, SEQ, .accum = ACCUM, .fuses = fuses});
    for (int step = 0; step < STEPS; step++) {
        t->ctx.step = step + 1;
        expect_ok(trainer_step(t, fetch, tokens, 1e-2, &results[step]));
    }
    return t->model.parameters.weight;
}

static void expect_the_same(Device *device) {
    StepResult apart[STEPS], together[STEPS];
    float *weights[2] = {0};
    int64_t count = 0;
    for (int i = 0; i < 2; i++) {
        Trainer t;
        Tensor weight =
            train(device, i ? ~FUSE_FP8 : ~(FUSE_FP8 | 1u << OP_ACCUMULATE), &t, i ? together : apart);
        count = tensor_count(weight);
        weights[i] = malloc((size_t)count * sizeof *weights[i]);
        expect_ok(values_read(&t.ctx, weight, 0, count, weights[i]));
        trainer_close(&t);
    }
    for (int step = 0; step < STEPS; step++) {
        assert_true(together[step].loss == apart[step].loss && together[step].norm == apart[step].norm);
        assert_true(apart[step].norm > 0);
    }
    assert_memory_equal(weights[0], weights[1], (size_t)count * sizeof *weights[0]);
    for (int i = 0; i < 2; i++) free(weights[i]);
}

static void steps_have_the_same_bits(void **state) {
    expect_the_same(test_device(test_variant(state, OP_ACCUMULATE)->backend));
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_adds), ONCE(wrong_contracts_are_refused),
                                       ON_VARIANT(steps_have_the_same_bits, 1, "cpu fused fp32"),
                                       ON_VARIANT(steps_have_the_same_bits, 5, "cuda fused fp32"),
                                       ON_EACH_VARIANT(forms_add)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
