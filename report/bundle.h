/* bundle: a profile as one JSON document, for programs; docs/profile-schema.md explains each key. */
#pragma once

#include "report/bundle_schema.h"
#include "report/profile.h"
#include "report/questions.h"
#include "report/tables.h"

/* The data of a path's bundle that is not in the profile. */
typedef struct {
    BundlePhase phases[PHASE_COUNT];
    BundleShare shares[PHASE_COUNT][CATEGORY_COUNT];
    TraceTensor classes[MEMORY_CLASS_COUNT];
} BundleRoom;

/* A bundle that is created, not read; it contains pointers into itself. */
typedef struct {
    Bundle bundle;
    BundlePath paths[FORM_COUNT];
    BundleRoom rooms[FORM_COUNT];
    Tables tables[FORM_COUNT];
} MadeBundle;

/* The profile and the answers must outlive the bundle. Write it with fields_write(writer, bundle_fields,
 * ...). */
void bundle_make(const Profile *profile, const Answers *answers, const ProfileOptions *options,
                 MadeBundle *made);
void bundle_unmake(MadeBundle *made);
