/* compute_options: where and in what precision a program computes; the part of the options that ./train and
 * ./infer share. */
#pragma once

#include "base/options.h"
#include "kernels/op.h"
#include "run/peaks.h"

typedef enum { DTYPE_AUTO, DTYPE_FP32, DTYPE_TF32, DTYPE_BF16, DTYPE_FP64 } DtypeChoice;

typedef struct {
    const char *device; // "auto", "cpu", "cuda", "cuda:N": for device_open
    DtypeChoice dtype;
    const char *fused; // for fuses_parse
    bool graphs;       // launch what repeats as one CUDA graph, where all of it runs fused
    bool peaks;        // measure the machine's limits first
    int64_t threads;   // of the CPU; 0: one for each core
} ComputeOptions;

/* Of --fused in --help: what it takes, and the names of the operations. */
extern const char fused_doc[];

#define COMPUTE_DEFAULTS                                                                                     \
    { .device = "auto", .dtype = DTYPE_AUTO, .fused = "1", .graphs = true, .peaks = true }

/* Turns the fuses off for fp64, which has no fused form, where --fused was not given. */
void compute_options_resolve(const OptionSet *set, ComputeOptions *options);

/* ERROR_USAGE for what cannot be, or cannot be together. */
CHECKED Status compute_options_check(const ComputeOptions *options);

/* ERROR_USAGE where nothing runs fused, for --compare. */
CHECKED Status compute_options_check_compare(const ComputeOptions *options);

/* What `dtype` means on a backend; auto is bf16 where that is fast. ERROR_USAGE where there is no such
 * precision. */
CHECKED Status compute_options_dtype(const ComputeOptions *options, Backend backend, bool bf16_fast,
                                     Dtype *dtype, bool *tf32);

/* The machine's limits: those measured before, where there are any, else measured now, as where --peaks was
 * given; with --peaks=0 never measured. Before the arenas are allocated. */
CHECKED Status compute_options_peaks(const ComputeOptions *options, const OptionSet *set, Ctx *ctx,
                                     Peaks *peaks);

/* Answers --list-models: prints the presets with their sizes on standard output. */
CHECKED Status compute_options_list_models(void);

/* ERROR_USAGE if the option was given although `useful` is false: "--name has no effect without <what>". */
CHECKED Status option_needs(const OptionSet *set, const char *name, bool useful, const char *what);

/* ERROR_USAGE if both were given. */
CHECKED Status options_exclude(const OptionSet *set, const char *one, const char *other);
