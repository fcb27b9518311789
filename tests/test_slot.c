/* The operation table: registered forms are found by their keys, and nothing else. */
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

static OpFunction on_cpu(Dtype dtype, int operation, int pass, Form form) {
    return slot_function(BACKEND_CPU, dtype, (Operation)operation, (Pass)pass, form);
}

/* The specification exists in both of its dtypes, and for every fused CPU form. */
static void test_specification_is_registered_twice(void **state) {
    (void)state;
    for (int operation = 0; operation < OP_COUNT; operation++)
        for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++) {
            const OpFunction in_fp32 = on_cpu(F32, operation, pass, FORM_NAIVE);
            assert_int_equal(!in_fp32, !on_cpu(F64, operation, pass, FORM_NAIVE));
            if (on_cpu(F32, operation, pass, FORM_FUSED)) assert_non_null(in_fp32);
            assert_null(on_cpu(I32, operation, pass, FORM_NAIVE));
        }
    assert_non_null(on_cpu(F64, OP_NORM, PASS_BACKWARD, FORM_NAIVE));
}

/* CUDA slots are filled in a build with CUDA, even without a GPU, and empty in other builds. */
static void test_cuda_is_registered_where_it_is_built(void **state) {
    (void)state;
    for (int i = 0; i < OP_COUNT; i++)
        for (int k = 0; k < 2; k++) {
            const Dtype dtype = k ? BF16 : F32;
            bool naive = slots_filled(BACKEND_CUDA, dtype, (Operation)i, FORM_NAIVE);
            bool fused = slots_filled(BACKEND_CUDA, dtype, (Operation)i, FORM_FUSED);
            const bool cpu_alone =
                i == OP_GATHER || i == OP_DEQUANTIZE; // dequantize, and one of gather's passes
            if (!cpu_alone) assert_int_equal(naive || fused, device_open_cuda != NULL);
        }
}

/* Here gather's fused form lacks one of its passes. */
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
        cmocka_unit_test(test_specification_is_registered_twice),
        cmocka_unit_test(test_cuda_is_registered_where_it_is_built),
        cmocka_unit_test(test_form_with_a_missing_pass_is_not_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
