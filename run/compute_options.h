/* compute_options: device and precision; the options that ./train and ./infer share. */
#pragma once

#include "base/options.h"
#include "kernels/op.h"
#include "run/peaks.h"

typedef enum { DTYPE_AUTO, DTYPE_FP32, DTYPE_TF32, DTYPE_BF16, DTYPE_FP64 } DtypeChoice;

typedef struct {
    const char *device; // "auto", "cpu", "cuda", "cuda:N": for device_open
    DtypeChoice dtype;
    const char *fused; // for fuses_parse
    bool graphs;       // launch repeated work as one CUDA graph if all of it runs fused
    bool peaks;        // measure the machine's limits first
    int64_t threads;   // CPU threads; 0: one per core
} ComputeOptions;

/* Help for --fused: its values, and the names of the operations. */
extern const char fused_doc[];

#define COMPUTE_DEFAULTS                                                                                     \
    { .device = "auto", .dtype = DTYPE_AUTO, .fused = "1", .graphs = true, .peaks = true }

/* Turns the fuses off for fp64, which has no fused form, unless --fused was given. */
void compute_options_resolve(const OptionSet *set, ComputeOptions *options);

/* ERROR_USAGE for invalid values and combinations. */
CHECKED Status compute_options_check(const ComputeOptions *options);

/* ERROR_USAGE if nothing runs fused, for --compare. */
CHECKED Status compute_options_check_compare(const ComputeOptions *options);

/* The precision for `dtype` on a backend; "auto" is bf16 if that is faster than fp32. ERROR_USAGE if the
 * backend lacks the precision. */
CHECKED Status compute_options_dtype(const ComputeOptions *options, Backend backend, bool bf16_fast,
                                     Dtype *dtype, bool *tf32);

/* The machine's limits from the cache. If there are none, or with --peaks, they are measured now; with
 * --peaks=0 never. Call before the arenas are allocated. */
CHECKED Status compute_options_peaks(const ComputeOptions *options, const OptionSet *set, Ctx *ctx,
                                     Peaks *peaks);

/* Implements --list-models: prints the presets with their sizes on standard output. */
CHECKED Status compute_options_list_models(void);

/* ERROR_USAGE if the option was given although `useful` is false: "--name has no effect without <what>". */
CHECKED Status option_needs(const OptionSet *set, const char *name, bool useful, const char *what);

/* ERROR_USAGE if both were given. */
CHECKED Status options_exclude(const OptionSet *set, const char *one, const char *other);
