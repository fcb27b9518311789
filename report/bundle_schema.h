/* bundle_schema: what a bundle holds, and the one table of its keys, by which it is written, checked and
 * read, and with which docs/profile-schema.md ends. */
#pragma once

#include "base/json_fields.h"
#include "report/questions.h"
#include "report/figures.h"
#include "report/table.h"

/* A change that an older reader would misunderstand raises it; new keys do not. */
enum { BUNDLE_VERSION = 1 };
#define BUNDLE_SCHEMA    "fusebox-profile"
#define STEP_OF_TRAINING "step"
#define STEP_OF_A_PASS   "forward pass"

/* Of one that is written all is the profile's; of one that was read all is its own, and of `run` and the rows
 * only what the table names is there. Times are ns, per step. */
typedef struct {
    const char *name;
    int64_t recorded, timed; // steps; timed with tracing off, -1: an older bundle, which does not count them
    double ns, low, high, traced, overhead, reader, device, covered, tokens, launches;
    double cores_waited; // cores.h
    bool overhead_noise; // what tracing adds is within noise
    double spread;       // from the first quartile to the third
} BundleStep;

typedef struct {
    const char *category;
    double ns;
} BundleShare;

typedef struct {
    const char *phase;
    double ns;
    BundleShare *categories;
    int64_t categories_count;
} BundlePhase;

typedef struct {
    const char *label, *source, *source_note, *window;
    BundleStep step;
    BundlePhase *phases;
    OperationRow *rows;
    KernelRow *kernels;
    TraceTensor *classes, *largest; // of a class no name
    int64_t peak_bytes;
    TraceFinding *audit;
    char *timeline; // JSON; not read
    Table *tables;
    int64_t phases_count, rows_count, kernels_count, classes_count, largest_count, tables_count, audit_count;
} BundlePath;

/* What scripts that read a PyTorch profile ask of its JSON (profile/bundle_guide.h): JSON texts, each to be freed with
 * memory_free. */
typedef struct {
    char *config, *summary, *top_operators, *top_aten_operators, *top_cuda_kernels, *category_statistics;
} BundleGuide;

typedef struct {
    const char *schema;
    int64_t version;
    TraceRun run;
    BundlePath *paths; // of two, the naive one first
    const Difference *differences;
    const Answer *answers;
    int64_t paths_count, differences_count, answers_count;
    BundleGuide guide; // of the first path; not read
} Bundle;

extern const Field bundle_fields[];

/* What a step of the path is called where it is none of training, nor a pass: "prefill", "decoding step"; "". */
const char *bundle_step_name(const BundlePath *path);

/* Reads and checks a bundle. ERROR_FILE; ERROR_FORMAT, with where the fault is, for what is no bundle, is
 * of another version, or does not have its form. */
CHECKED Status bundle_read(const char *path, Bundle *bundle);
/* The same of text in memory; `name` is for messages. */
CHECKED Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle);
void bundle_free(Bundle *bundle);
