/* bundle_schema: what a bundle holds, and the one table of its keys, by which it is written, checked and
 * read, and with which docs/profile-schema.md ends. */
#ifndef PROFILE_BUNDLE_SCHEMA_H
#define PROFILE_BUNDLE_SCHEMA_H

#include "base/json_fields.h"
#include "profile/figures.h"

/* A change that an older reader would misunderstand raises it; new keys do not. */
enum { BUNDLE_VERSION = 1 };
#define BUNDLE_SCHEMA "fusebox-profile"

/* Texts and lists are the bundle's own. Times are ns, per step. */
typedef struct {
    char *program, *model, *dtype, *device, *library, *host;
    int64_t batch, seq, accum, layers, heads, width, parameters;
} BundleRun;

typedef struct {
    char *name;
    int64_t recorded,
        timed; // of steps; timed -1: not known, an older bundle, whose steps are timed with tracing off
    double ns, low, high, traced, overhead, reader, device, covered, tokens, launches;
} BundleStep;

typedef struct {
    char *category;
    double ns;
} BundleShare;

typedef struct {
    char *phase;
    double ns;
    BundleShare *categories;
    int64_t categories_count;
} BundlePhase;

typedef struct {
    char *name, *category;
    double ns, calls, launches;
} BundleInside;

typedef struct {
    char *call, *operation, *pass, *form, *category, *source;
    double ns, low, high, host_ns, calls, launches, flops, least_bytes, share_of_limit;
    int64_t memory_bytes;
    char *limit;
    BundleInside *inside;
    int64_t inside_count;
} BundleRow;

typedef struct {
    char *name, *label, *decoded, *kind, *category, *call;
    KernelUse forward, backward, update;
} BundleKernel;

typedef struct {
    char *name, *class_; // of a class no name
    int64_t bytes;
} BundleMemory;

typedef struct {
    char *check, *detail;
    bool passed;
} BundleCheck;

typedef struct {
    char *label, *source, *source_note, *window;
    BundleStep step;
    BundlePhase *phases;
    BundleRow *rows;
    BundleKernel *kernels;
    BundleMemory *classes, *largest;
    int64_t peak_bytes;
    BundleCheck *audit;
    char *timeline, *tables; // JSON; not read
    int64_t phases_count, rows_count, kernels_count, classes_count, largest_count, audit_count;
} BundlePath;

typedef struct {
    char *call, *operation, *pass;
    double difference;
} BundleDifference;

typedef struct {
    char *question;
    char **lines;
    int64_t lines_count;
} BundleAnswer;

typedef struct {
    char *schema;
    int64_t version;
    BundleRun run;
    Peaks measured, sheet;
    BundlePath *paths; // of two, the naive one first
    BundleDifference *differences;
    BundleAnswer *answers;
    int64_t paths_count, differences_count, answers_count;
} Bundle;

extern const Field bundle_fields[];

/* Checks a parsed document: its form, by the table; minimum <= average <= maximum, names are known and
 * identities unique. ERROR_FORMAT with where the first fault is: "paths[0].operations[3].ns: ...". */
CHECKED Status bundle_check(const json_t *root);
#endif
