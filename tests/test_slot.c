/* The operation table: what is registered is found by its key, and nothing else is. */
#include "kernels/op.h"
#include "tests/support/expect.h"

static Dtype ran; // the dtype whose slot ran

static Status gather_in_fp32(Ctx *ctx, const void *contract) {
    (void)ctx;
    (void)contract;
    ran = F32;
    return OK;
}
SLOT(GATHER, UPDATE, CPU, NAIVE, F32, gather_in_fp32);

static Status gather_in_fp64(Ctx *ctx, const void *contract) {
    (void)ctx;
    (void)contract;
    ran = F64;
    return OK;
}
SLOT(GATHER, UPDATE, CPU, NAIVE, F64, gather_in_fp64);
SLOT(GATHER, UPDATE, CPU, FUSED, F64, gather_in_fp64);

/* Not the context's dtype. */
static void test_call_chooses_its_dtype(void **state) {
    (void)state;
    Device *device;
    expect_ok(device_open_cpu(1, &device));
    Ctx ctx = {.device = device, .dtype = F32, .layer = -1};
    Call call = {.operation = OP_GATHER, .pass = PASS_UPDATE, .dtype = F64};
    expect_ok(op_run(&ctx, &call));
    assert_int_equal(ran, F64);
    call.dtype = F32;
    expect_ok(op_run(&ctx, &call));
    assert_int_equal(ran, F32);
    call.dtype = BF16;
    expect_error(op_run(&ctx, &call), ERROR_INTERNAL, "gather update has no naive form for bf16");
    device->close(device);
}

/* The specification computes in fp32 and fp64, whatever else there is. */
static void test_every_operation_has_its_specification(void **state) {
    (void)state;
    for (int i = 0; i < OP_COUNT; i++) {
        assert_true(slots_filled(BACKEND_CPU, F32, (Operation)i, FORM_NAIVE));
        assert_true(slots_filled(BACKEND_CPU, F64, (Operation)i, FORM_NAIVE));
        assert_false(slots_filled(BACKEND_CPU, I32, (Operation)i, FORM_NAIVE));
    }
}

/* Gather's fused form lacks one of its passes here, its other passes have it. */
static void test_form_with_a_missing_pass_is_not_filled(void **state) {
    (void)state;
    assert_non_null(slot_function(BACKEND_CPU, F32, OP_GATHER, PASS_FORWARD, FORM_FUSED));
    assert_null(slot_function(BACKEND_CPU, F32, OP_GATHER, PASS_UPDATE, FORM_FUSED));
    assert_false(slots_filled(BACKEND_CPU, F32, OP_GATHER, FORM_FUSED));
    assert_true(slots_filled(BACKEND_CPU, F32, OP_NORM, FORM_FUSED));
    Ctx ctx = {.fuses = ~0u};
    expect_ok(device_open_cpu(1, &ctx.device));
    assert_int_equal(op_form(&ctx, OP_GATHER, F32), FORM_NAIVE);
    assert_int_equal(op_form(&ctx, OP_NORM, F32), FORM_FUSED);
    assert_int_equal(op_form(&ctx, OP_NORM, F64), FORM_NAIVE);
    ctx.device->close(ctx.device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call_chooses_its_dtype),
        cmocka_unit_test(test_every_operation_has_its_specification),
        cmocka_unit_test(test_form_with_a_missing_pass_is_not_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
