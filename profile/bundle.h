/* bundle: a profile as one JSON document, for programs: docs/profile-schema.md says what each key means.
 * What writes it and what reads it share one description of its form (bundle_schema.c). */
#ifndef PROFILE_BUNDLE_H
#define PROFILE_BUNDLE_H

#include "base/json_writer.h"
#include "profile/profile.h"
#include "profile/questions.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A change that an older reader would misunderstand raises it; new keys do not. */
enum { BUNDLE_VERSION = 1, BUNDLE_TEXT_BYTES = 4096 }; // of a text at most
#define BUNDLE_SCHEMA "fusebox-profile"

/* The whole document. The caller looks at json_writer_status. */
CHECKED Status bundle_render(const Profile *profile, const Answers *answers, JsonWriter *writer);

/* The timeline of one recorded step, for people to look at: bundle_timeline.c. */
CHECKED Status bundle_timeline(const Trace *trace, JsonWriter *writer);

/* ---- reading ---- */

typedef struct {
    char *call, *operation, *pass;
    double ns, low, high, launches; // per step
} BundleRow;

typedef struct {
    char *label, *source;
    double step_ms, low_ms, high_ms; // tracing off, if `timed`
    bool timed;
    double overhead, device_ns, tokens, flops, launches, peak_bytes;
    int audited, failed; // checks of the audit
    BundleRow *rows;
    int row_count;
} BundlePath;

/* What is needed to compare two. */
typedef struct {
    char *model, *device, *dtype;
    int64_t batch, seq;
    double peak_flops; // measured
    BundlePath paths[FORM_COUNT];
    int path_count;
} Bundle;

/* Reads and checks a bundle that may come from anywhere. ERROR_FILE; ERROR_FORMAT, with the place of the
 * fault, for what is no bundle, is of another version, or does not have its form. */
CHECKED Status bundle_read(const char *path, Bundle *bundle);
/* The same of text in memory; `name` is for messages. */
CHECKED Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle);
void bundle_free(Bundle *bundle);

#ifdef __cplusplus
}
#endif
#endif
