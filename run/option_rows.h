/* option_rows: macros for rows of an option table, and the rows that ./train and ./infer share. A file that
 * uses them first defines how a member is found in its struct of values:
 *     #define AT(member) .field = offsetof(Struct, member) */
#pragma once

#include "base/options.h"
#include "model/config.h"

// clang-format off
#define HEADING(text)           {OPTION_HEADING, .doc = text}
#define FLAG(name, member)      OPTION_FLAG, name, AT(member)
#define CHOICE(name, texts, member) OPTION_CHOICE, name, .choices = texts, AT(member)
#define TEXT(name, what, member) OPTION_TEXT, name, .argument = what, AT(member)
#define COUNT(name, from, to, member)  \
    OPTION_INTEGER, name, .argument = "N", .least = from, .most = to, AT(member)
#define NUMBER(name, from, to, member) \
    OPTION_NUMBER, name, .argument = "X", .low = from, .high = to, AT(member)
#define LIST(name, from, to, member)   \
    OPTION_LIST, name, .argument = "LIST", .least = from, .most = to, AT(member)

#define MODEL_ROW                                                                                            \
    {TEXT("model", "NAME", model), .proposals = config_preset_name,                                          \
     .doc = "a preset (gpt2-nano, bert-base, transformer-base, ...) or a folder", .travels = true},          \
    {FLAG("list-models", list_models), .doc = "list the presets with their sizes and exit",                  \
     .command_line_only = true}
#define TOKENIZER_ROW                                                                                        \
    {TEXT("tokenizer", "NAME", tokenizer), .doc = "bytes, or a tokenizer's folder",                          \
     .default_text = "the model's", .travels = true}

/* For a member ComputeOptions compute; compute_options.h has fused_doc. */
#define COMPUTE_ROWS                                                                                         \
    HEADING("Computing"),                                                                                    \
    {TEXT("device", "NAME", compute.device), .doc = "auto, cpu, cuda or cuda:N", .travels = true},           \
    {CHOICE("dtype", "auto|fp32|tf32|bf16|fp64", compute.dtype),                                             \
     .doc = "auto is bf16 on a GPU and on a CPU with fast bf16 products, else fp32",                         \
     .travels = true},                                                                                       \
    {TEXT("fused", "0|1|LIST", compute.fused), .doc = fused_doc, .travels = true},                           \
    {FLAG("graphs", compute.graphs),                                                                         \
     .doc = "launch a step as one CUDA graph if all of it is fused; --graphs=0 does not"},                   \
    {FLAG("peaks", compute.peaks),                                                                           \
     .doc = "measure the machine's limits even if known; --peaks=0 never does"},                          \
    {COUNT("threads", 0, 4096, compute.threads), .doc = "threads on the CPU; 0 for one per core",            \
     .default_text = "all", .travels = true}

/* For a member ProfilingOptions profiling. */
#define PROFILING_ROWS                                                                                       \
    {TEXT("profile", "WINDOW", profiling.window), .bare = "3,0,1,5,1",                                       \
     .doc = "trace these steps, counted from 1: [a,b) or skip,closed,ready,record,repeat"},                  \
    {FLAG("profile-graphs", profiling.graphs),                                                               \
     .doc = "run profiled steps as CUDA graphs"},                                                            \
    {FLAG("profile-isolate", profiling.isolate), .alias = "profile-apart",                                   \
     .doc = "let the GPU idle before each profiled primitive"},                                              \
    {FLAG("profile-latency", profiling.latency),                                                             \
     .doc = "profile how long kernels wait to be submitted"},                                                \
    {CHOICE("profile-targets", "cpu,gpu|cpu|gpu", profiling.targets),                                        \
     .doc = "record the host's ranges (cpu), the GPU's events (gpu), or both"},                              \
    {TEXT("profile-out", "FOLDER", profiling.out), .doc = "write the profile's files to FOLDER"},                \
    {TEXT("profile-trace", "NAME", profiling.trace),                                                         \
     .doc = "name of the trace file, such as trace.json.gz", .default_text = "MODEL_trace_bsN_seqM.json"},   \
    {TEXT("profile-name", "NAME", profiling.range),                                                          \
     .doc = "name of the range around each recorded step"},                                                  \
    {FLAG("skip-benchmark", profiling.skip_benchmark),                                                       \
     .doc = "with --profile: time no steps with tracing off"},                                               \
    {CHOICE("report", "brief|tables|questions", profiling.report), .doc = "what the profile prints"},        \
    {FLAG("sweep", profiling.sweep),                                                                         \
     .doc = "profile each pair of --batch-sizes and --seq-lens"},                                            \
    {FLAG("timer-only", profiling.timer_only), .doc = "with --profile: time steps, trace nothing"},          \
    {TEXT("sort", "COLUMN", profiling.sort), .doc = "sort the profile's tables by this column"},             \
    {COUNT("limit", 0, 1000000, profiling.limit), .doc = "rows in each table of the profile; 0 for all"},    \
    {CHOICE("unit", "auto|s|ms|us|ns", profiling.unit), .doc = "unit of the profile's times"},               \
    {FLAG("full-names", profiling.full_names), .doc = "do not cut long names in the profile"},               \
    {FLAG("op-detail", profiling.op_detail),                                                                 \
     .doc = "kernels below operators; --op-detail=0: none"},                                                 \
    {FLAG("thread-sep", profiling.thread_sep),                                                               \
     .doc = "rows by thread in operators and ranges"},                                                       \
    {FLAG("torch-compat", profiling.torch), .doc = "name operations as PyTorch's profiler does"}

#define CONFIG_ROWS                                                                                          \
    {TEXT("config", "FILE", config), .doc = "JSON object of options; the command line wins",                 \
     .command_line_only = true},                                                                             \
    {FLAG("print-config", print_config), .doc = "print the options as such an object and exit",              \
     .command_line_only = true}
// clang-format on
