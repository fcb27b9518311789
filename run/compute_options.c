#include "run/compute_options.h"

#include "base/wrap.h"
#include "model/architectures.h"
#include "model/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char fused_doc[] =
    "operations to run fused: 0 (none), 1 (all), or a list such as norm,attention or -attention, of"
#define OPERATION(name, NAME, CATEGORY) " " #name
#include "kernels/ops.def"
#undef OPERATION
    "; also fp8 (8-bit products) and invariant (a row's bits depend on no other), which 1 does not include";

void compute_options_resolve(const OptionSet *set, ComputeOptions *options) {
    if (options->dtype == DTYPE_FP64 && !options_given(set, "fused")) options->fused = "0";
}

static bool begins(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static Status check_device(const char *device) {
    if (strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0 || strcmp(device, "cuda") == 0) return OK;
    const char *number = begins(device, "cuda:") ? device + strlen("cuda:") : "";
    size_t digits = strspn(number, "0123456789");
    if (digits >= 1 && digits <= 3 && !number[digits]) return OK;
    return fail(ERROR_USAGE, "--device=%.100s: expected auto, cpu, cuda or cuda:N", device);
}

Status compute_options_check(const ComputeOptions *options) {
    uint32_t fuses;
    TRY(check_device(options->device));
    TRY(fuses_parse(options->fused, &fuses));
    const uint32_t ordered = 1u << OP_LINEAR | 1u << OP_ATTENTION; // their fused forms keep the order of sums
    if (fuses & FUSE_INVARIANT && (fuses & ordered) != ordered)
        return fail(ERROR_USAGE, "--fused=invariant needs linear and attention fused: --fused=1,invariant");
    bool cpu = strcmp(options->device, "cpu") == 0, cuda = begins(options->device, "cuda");
    if (cpu && options->dtype == DTYPE_TF32)
        return fail(ERROR_USAGE, "--dtype=tf32 needs a GPU, but --device=cpu was given");
    if (cuda && options->dtype == DTYPE_FP64)
        return fail(ERROR_USAGE, "--dtype=fp64 runs on the CPU only, but --device=%s was given",
                    options->device);
    if (options->dtype == DTYPE_FP64 && fuses)
        return fail(ERROR_USAGE, "--dtype=fp64 runs naive only, but --fused=%.100s was given; leave it out",
                    options->fused);
    return OK;
}

Status compute_options_check_compare(const ComputeOptions *options) {
    uint32_t fuses;
    TRY(fuses_parse(options->fused, &fuses));
    if (fuses) return OK;
    return fail(ERROR_USAGE, "--compare needs operations that run fused, but %s leaves none",
                options->dtype == DTYPE_FP64 ? "--dtype=fp64" : "--fused=0");
}

Status compute_options_dtype(const ComputeOptions *options, Backend backend, bool bf16_fast, Dtype *dtype,
                             bool *tf32) {
    static const Dtype dtypes[] = {
        [DTYPE_AUTO] = F32, [DTYPE_FP32] = F32, [DTYPE_TF32] = F32, [DTYPE_BF16] = BF16, [DTYPE_FP64] = F64};
    bool cuda = backend == BACKEND_CUDA;
    *dtype = options->dtype == DTYPE_AUTO && bf16_fast ? BF16 : dtypes[options->dtype];
    *tf32 = options->dtype == DTYPE_TF32;
    if (!cuda && *tf32) return fail(ERROR_USAGE, "--dtype=tf32 needs a GPU; the CPU has fp32, bf16 and fp64");
    if (cuda && *dtype == F64)
        return fail(ERROR_USAGE, "--dtype=fp64 runs on the CPU only; add --device=cpu");
    return OK;
}

Status compute_options_peaks(const ComputeOptions *options, const OptionSet *set, Ctx *ctx, Peaks *peaks) {
    bool settled = peaks_remember(ctx, peaks), wanted = options_given(set, "peaks") || !settled;
    return options->peaks && wanted ? peaks_measure(ctx, peaks) : OK;
}

Status option_needs(const OptionSet *set, const char *name, bool useful, const char *what) {
    if (useful || !options_given(set, name)) return OK;
    return fail(ERROR_USAGE, "--%s has no effect without %s", name, what);
}

Status options_exclude(const OptionSet *set, const char *one, const char *other) {
    if (!options_given(set, one) || !options_given(set, other)) return OK;
    return fail(ERROR_USAGE, "--%s and --%s exclude each other; give one of them", one, other);
}

Status compute_options_list_models(void) {
    printf("%-16s %8s %6s %5s %5s %7s %6s  %s\n", "preset", "size", "layers", "width", "heads", "context",
           "vocab", "family");
    for (int i = 0; config_preset_name(i); i++) {
        Config c;
        TRY(config_preset(config_preset_name(i), &c));
        printf("%-16s %7.2fM %6" PRId64 " %5" PRId64 " %5" PRId64 " %7" PRId64 " %6" PRId64 "  %s\n", c.name,
               1e-6 * (double)config_parameters(&c), c.layers, c.width, c.heads, c.context, c.vocab,
               strchr(c.architecture->description, ' ') + 1); // omits the article
    }
    print_report(
        "", 0, stdout,
        "A preset is a shape: its weights are random until they are trained. Other models are folders: "
        "--model=FOLDER");
    return fflush(stdout) ? fail(ERROR_FILE, "cannot write to standard output") : OK;
}
