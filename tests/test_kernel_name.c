/* Information in kernels' names and shapes. */
#include "profile/collect.h"
#include "report/kernel_name.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_decode(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", "sm90, bf16, tile 128x256x64, NTN, tensor cores"},
        {"nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "fp16, tile 64x8x64, TNT, tensor cores"},
        {"ampere_sgemm_128x64_tn", "sm80, fp32, tile 128x64, TN, FMA"},
        {"void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm_128x64_8x5_"
         "nn_align1::Params)",
         "sm80, fp32, tile 128x64x8, NN, FMA"},
        {"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(int)",
         "sm80, tf32, tile 128x128x16, TN, tensor cores"},
        {"void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>(int)",
         "sm75, bf16, tile 256x128, NN, tensor cores"},
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute",
         "sm90, bf16, tile 128x128x64, TN, tensor cores"},
        {"void (anonymous namespace)::row_max<__nv_bfloat16, 8>(__nv_bfloat16 const*, long)", "bf16"},
        {"void scale<float, 4>(float*)", "fp32"},
        {"sm86_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_ffma_execute_kernel__5x_cublas",
         "sm86, fp32, tile 128x64x8, TN, FMA"},
        {"cblas_sgemm NT", "fp32, NT"},
        {"maxwell_scudnn_128x64_relu_interior_nn", "sm50, fp32, tile 128x64, NN, FMA"},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
         "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, "
         "3>)",
         "elementwise, add, 4 at a time, fp32"},
        {"void at::native::vectorized_elementwise_kernel<8, "
         "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
         "at::native::GeluType)::{lambda()#1}::operator()() const::{lambda(c10::BFloat16)#1}>(int)",
         "elementwise, GELU, 8 at a time, bf16"},
        {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, "
         "false, "
         "false, cutlass::half_t> >(pytorch_flash::Flash_fwd_params)",
         "attention, forward, fp16"},
        {"onednn_sgemm TN", "fp32, TN, FMA"},
        {"onednn_bf16gemm NN", "bf16, NN"},
        {"amx_bf16x3gemm NT", "bf16, NT"},
        {"softmax max", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[KERNEL_NAME_BYTES];
        kernel_decode(cases[i][0], text);
        assert_string_equal(text, cases[i][1]);
    }
}

static void test_short_names(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"void (anonymous namespace)::row_max<__nv_bfloat16, 8>(__nv_bfloat16 const*, long, float*)",
         "row_max<__nv_bfloat16, 8>"},
        {"void a::b<c::d<1, 2>, (anonymous namespace)::E>(int)", "b<c::d<1, 2>, (anonymous namespace)::E>"},
        {"splitKreduce_kernel", "splitKreduce_kernel"},
        {"log_sum(float const*, long)", "log_sum"},
        {"", ""},
        {"a<b", "a<b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[KERNEL_NAME_BYTES];
        kernel_short_name(cases[i][0], text);
        assert_string_equal(text, cases[i][1]);
    }
    assert_null(kernel_demangle("plain"));
}

/* Hopper's limits. Computed by hand, and equal to NVIDIA's occupancy calculator. */
static void test_occupancy(void **state) {
    (void)state;
    const MultiprocessorLimits hopper = {64, 32, 65536, 233472, 1024};
    const KernelShape light = {.grid = {1, 1, 1}, .block = {256, 1, 1}, .registers = 32};
    assert_true(kernel_occupancy(&hopper, &light) == 1);
    KernelShape heavy = light;
    heavy.registers = 168; // 5376 of a warp's: 3 in each file, 12 warps, one block of 8
    assert_true(kernel_occupancy(&hopper, &heavy) == 8.0 / 64);
    KernelShape wide = light;
    wide.shared_dynamic = 100 * 1024; // two blocks of 101 KiB in 228
    assert_true(kernel_occupancy(&hopper, &wide) == 16.0 / 64);
    KernelShape small = light;
    small.block[0] = 32; // 32 blocks of one warp
    assert_true(kernel_occupancy(&hopper, &small) == 0.5);
    assert_true(kernel_occupancy(&(MultiprocessorLimits){0}, &light) == 0);
    assert_true(kernel_occupancy(&hopper, &(KernelShape){0}) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode), cmocka_unit_test(test_short_names),
                                       cmocka_unit_test(test_occupancy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
