/* bundle_schema: what a bundle holds, and the one table of its keys, by which it is written, checked and
 * read; docs/profile-schema.md explains them. */
#pragma once

#include "base/json_fields.h"
#include "report/events.h"
#include "report/questions.h"
#include "report/figures.h"
#include "report/table.h"

/* A change that an older reader would misunderstand raises it; new keys do not. */
enum { BUNDLE_VERSION = 1, BUNDLE_BYTES_MOST = 64 << 20 };
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
    RankEvents *recorded; // of rank 0 first
    int64_t recorded_count;
    int64_t phases_count, rows_count, kernels_count, classes_count, largest_count, tables_count, audit_count;
} BundlePath;

/* What scripts that read a PyTorch profile ask of its JSON: operations by PyTorch's names, kernels and sums,
 * under the keys that guides use, of all recorded steps. */
typedef struct {
    char *name;
    double device_ms, device_mean_ms, host_ms, host_mean_ms, self_device_ms, self_host_ms;
    int64_t count;
    const char *native, *source, *category; // of PyTorch's own operations: the line that implements them here
} GuideRow;

typedef struct {
    double ms, percent;
    int64_t count;
} GuideCategory;

typedef struct {
    int64_t batch, seq, width;
    const char *device;
    double device_ms, host_ms;
    int64_t operators, aten, kernels; // how many names there are
    GuideRow *top_operators, *top_aten, *top_kernels;
    int64_t top_operators_count, top_aten_count, top_kernels_count;
    GuideCategory categories[CATEGORY_COUNT];
} BundleGuide;

typedef struct {
    const char *schema;
    int64_t version;
    TraceRun run;
    BundlePath *paths; // of two, the naive one first
    const Difference *differences;
    const Answer *answers;
    int64_t paths_count, differences_count, answers_count;
    BundleGuide guide; // of the first path
} Bundle;

extern const Field bundle_fields[];

/* What a step of the path is called where it is none of training, nor a pass: "prefill", "decoding step";
 * else "". */
const char *bundle_step_name(const BundlePath *path);

/* Reads and checks a bundle. ERROR_FILE; ERROR_FORMAT, with where the fault is, for what is no bundle, is
 * of another version, or does not have its form. */
CHECKED Status bundle_read(const char *path, Bundle *bundle);
/* The same of text in memory; `name` is for messages. */
CHECKED Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle);
void bundle_free(Bundle *bundle);
