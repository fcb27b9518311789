/* bundle: a profile as one JSON document, for programs: docs/profile-schema.md says what each key means. */
#pragma once

#include "report/bundle_schema.h"
#include "report/profile.h"
#include "report/questions.h"
#include "report/tables.h"

/* What a path's bundle holds besides what is the profile's own. */
typedef struct {
    BundlePhase phases[PHASE_COUNT];
    BundleShare shares[PHASE_COUNT][CATEGORY_COUNT];
    TraceTensor classes[MEMORY_CLASS_COUNT];
} BundleRoom;

/* A bundle that is made, not read; it points into itself. */
typedef struct {
    Bundle bundle;
    BundlePath paths[FORM_COUNT];
    BundleRoom rooms[FORM_COUNT];
    Tables tables[FORM_COUNT];
} MadeBundle;

/* The profile and the answers must outlive it. It is written by fields_write(writer, bundle_fields, ...). */
void bundle_make(const Profile *profile, const Answers *answers, const ProfileOptions *options,
                 MadeBundle *made);
void bundle_unmake(MadeBundle *made);
