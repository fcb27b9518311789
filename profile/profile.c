#include "profile/profile.h"

#include "profile/audit.h"
#include "profile/fold.h"

static const char *label_of(const Figures *f) {
    int forms[FORM_COUNT] = {0};
    for (int64_t i = 0; i < f->row_count; i++) forms[f->rows[i].form]++;
    if (forms[FORM_NAIVE] && forms[FORM_FUSED]) return "mixed";
    return form_name(forms[FORM_FUSED] ? FORM_FUSED : FORM_NAIVE);
}

Status profile_make(Trace *const *traces, int count, const Difference *differences, int difference_count,
                    Profile *profile) {
    *profile = (Profile){.differences = differences, .difference_count = difference_count};
    Status status = OK;
    for (int i = 0; i < count; i++) {
        ProfilePath *path = &profile->paths[i];
        path->trace = traces[i];
        status = figures_make(traces[i], &path->figures);
        if (status) break;
        profile->count++;
        path->label = label_of(&path->figures);
        audit_profile(path->trace, &path->figures);
    }
    /* The second path may fall back to the naive form for some operations; it is still called the fused
     * path. */
    if (count == FORM_COUNT) {
        profile->paths[FORM_NAIVE].label = form_name(FORM_NAIVE);
        profile->paths[FORM_FUSED].label = form_name(FORM_FUSED);
    }
    if (status) profile_free(profile);
    return status;
}

void profile_free(Profile *profile) {
    for (int i = 0; i < profile->count; i++) figures_free(&profile->paths[i].figures);
    *profile = (Profile){0};
}
