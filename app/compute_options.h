/* compute_options: where and in what precision a program computes; the part of the options that ./train and
 * ./infer share. */
#ifndef APP_COMPUTE_OPTIONS_H
#define APP_COMPUTE_OPTIONS_H

#include "base/options.h"
#include "kernels/op.h"

#define FUSEBOX_VERSION "fusebox 0.1"

typedef enum { DTYPE_AUTO, DTYPE_FP32, DTYPE_TF32, DTYPE_BF16, DTYPE_FP64 } DtypeChoice;

typedef struct {
    const char *device; // "auto", "cpu", "cuda", "cuda:N": for device_open
    DtypeChoice dtype;
    const char *fused; // for fuses_parse
    bool graphs;       // launch what repeats as one CUDA graph, where all of it runs fused
    bool peaks;        // measure the machine's limits first
    int64_t threads;   // of the CPU; 0: one for each core
} ComputeOptions;

/* Their rows of an option table, for a struct whose member `compute` they fill; and their defaults. */
#define COMPUTE_ROWS(Struct)                                                                                 \
    {OPTION_HEADING, .doc = "Computing"}, COMPUTE_DEVICE(Struct), COMPUTE_DTYPE(Struct),                     \
        COMPUTE_FUSED(Struct), COMPUTE_GRAPHS(Struct), COMPUTE_PEAKS(Struct), COMPUTE_THREADS(Struct)
#define COMPUTE_DEVICE(Struct)                                                                               \
    {                                                                                                        \
        OPTION_TEXT, "device", 0, "NAME", "auto, cpu, cuda or cuda:N",                                       \
            .travels = true, .field = offsetof(Struct, compute.device)                                       \
    }
#define COMPUTE_DTYPE(Struct)                                                                                \
    {                                                                                                        \
        OPTION_CHOICE, "dtype", .doc = "auto is bf16 on a GPU, else fp32",                                   \
                                .choices = "auto|fp32|tf32|bf16|fp64", .travels = true,                      \
                                .field = offsetof(Struct, compute.dtype)                                     \
    }
#define COMPUTE_FUSED(Struct)                                                                                \
    {                                                                                                        \
        OPTION_TEXT, "fused", 0, "0|1|LIST", "run fused: none, all, or as in 1,-attention",                  \
            .travels = true, .field = offsetof(Struct, compute.fused)                                        \
    }
#define COMPUTE_GRAPHS(Struct)                                                                               \
    {                                                                                                        \
        OPTION_FLAG, "graphs",                                                                               \
            .doc = "launch a step as one CUDA graph if all is fused; --graphs=0 does not",                   \
            .field = offsetof(Struct, compute.graphs)                                                        \
    }
#define COMPUTE_PEAKS(Struct)                                                                                \
    {                                                                                                        \
        OPTION_FLAG, "peaks", .doc = "measure the machine's limits first; --peaks=0: as seen before",        \
                              .field = offsetof(Struct, compute.peaks)                                       \
    }
#define COMPUTE_THREADS(Struct)                                                                              \
    {                                                                                                        \
        OPTION_INTEGER, "threads", 0, "N", "threads on the CPU", "all",                                      \
            .least = 0, .most = 4096, .travels = true, .field = offsetof(Struct, compute.threads)            \
    }
#define COMPUTE_DEFAULTS                                                                                     \
    { .device = "auto", .dtype = DTYPE_AUTO, .fused = "1", .graphs = true, .peaks = true }

/* Turns the fuses off for fp64, which has no fused path, where --fused was not given. */
void compute_options_resolve(const OptionSet *set, ComputeOptions *options);

/* ERROR_USAGE for what cannot be, or cannot be together. */
CHECKED Status compute_options_check(const ComputeOptions *options);

/* What `dtype` means on a backend. ERROR_USAGE if it has no such precision. */
CHECKED Status compute_options_dtype(const ComputeOptions *options, Backend backend, Dtype *dtype,
                                     bool *tf32);

/* ERROR_USAGE if the option was given although `useful` is false: "--name has no effect without <what>". */
CHECKED Status option_needs(const OptionSet *set, const char *name, bool useful, const char *what);

/* ERROR_USAGE if both were given. */
CHECKED Status options_exclude(const OptionSet *set, const char *one, const char *other);

#endif
