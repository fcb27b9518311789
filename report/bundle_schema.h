/* bundle_schema: the content of a bundle, and the table of its keys, used to write, check and read it;
 * docs/profile-schema.md explains the keys. */
#pragma once

#include "base/json_fields.h"
#include "report/events.h"
#include "report/questions.h"
#include "report/figures.h"
#include "report/table.h"

/* Raised by changes that older readers would misunderstand; new keys do not raise it. */
enum { BUNDLE_VERSION = 1, BUNDLE_BYTES_MOST = 64 << 20 };
#define BUNDLE_SCHEMA    "fusebox-profile"
#define STEP_OF_TRAINING "step"
#define STEP_OF_A_PASS   "forward pass"

/* A path being written points into the profile. A path that was read owns its memory, and `run` and the rows
 * contain only what the table names. Times are ns, per step. */
typedef struct {
    const char *name;
    int64_t recorded, timed; // steps recorded; steps timed with tracing off, -1: an older bundle, which does
                             // not count them
    double ns, low, high, traced, overhead, reader, device, covered, tokens, launches;
    double cores_waited; // see base/cores.h
    bool overhead_noise; // the tracing overhead is within noise
    double spread;       // interquartile range
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
    TraceTensor *classes, *largest; // classes have no names
    int64_t peak_bytes;
    TraceFinding *audit;
    char *timeline; // JSON; not read
    Table *tables;
    RankEvents *recorded; // the first element is rank 0's
    int64_t recorded_count;
    int64_t phases_count, rows_count, kernels_count, classes_count, largest_count, tables_count, audit_count;
} BundlePath;

/* Values for scripts that read the JSON of a PyTorch profile: operations by PyTorch's names, kernels and
 * sums, under the keys that guides use, over all recorded steps. */
typedef struct {
    char *name;
    double device_ms, device_mean_ms, host_ms, host_mean_ms, self_device_ms, self_host_ms;
    int64_t count;
    const char *native, *source, *category; // for PyTorch's operators: the line that implements them in
                                            // fusebox
} GuideRow;

typedef struct {
    double ms, percent;
    int64_t count;
} GuideCategory;

typedef struct {
    int64_t batch, seq, width;
    const char *device;
    double device_ms, host_ms;
    int64_t operators, aten, kernels; // numbers of names
    GuideRow *top_operators, *top_aten, *top_kernels;
    int64_t top_operators_count, top_aten_count, top_kernels_count;
    GuideCategory categories[CATEGORY_COUNT];
} BundleGuide;

typedef struct {
    const char *schema;
    int64_t version;
    TraceRun run;
    BundlePath *paths; // the naive path comes first
    const Difference *differences;
    const Answer *answers;
    int64_t paths_count, differences_count, answers_count;
    BundleGuide guide; // for the first path
} Bundle;

extern const Field bundle_fields[];

/* The name of the path's step if it is neither a training step nor a pass: "prefill", "decoding step"; else
 * "". */
const char *bundle_step_name(const BundlePath *path);

/* The bundle in a folder of --profile-out. */
#define BUNDLE_FILE "profiling_stats.json"

/* Reads and checks a bundle: a file, or a folder with a BUNDLE_FILE. ERROR_FILE; ERROR_FORMAT, with the place
 * of the fault, for anything that is not a bundle, has another version, or has the wrong form. */
CHECKED Status bundle_read(const char *path, Bundle *bundle);
/* Also returns its text, which the caller frees with memory_free, even after an error. */
CHECKED Status bundle_read_text(const char *path, char **text, int64_t *length, Bundle *bundle);
/* The same for text in memory; `name` is for messages. */
CHECKED Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle);
void bundle_free(Bundle *bundle);
