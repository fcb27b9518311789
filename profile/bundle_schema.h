/* bundle_schema: the form that a bundle must have. docs/profile-schema.md says the same in words. */
#ifndef PROFILE_BUNDLE_SCHEMA_H
#define PROFILE_BUNDLE_SCHEMA_H

#include "base/status.h"

#include <jansson.h>

/* Checks a parsed document: every key is there with a value of its kind, numbers are finite and not
 * negative where they count or measure, minimum <= average <= maximum, names are known and identities
 * unique. Keys that it does not know are fine. ERROR_FORMAT with the place of the first fault:
 * "paths[0].operations[3].ns: ...". */
CHECKED Status bundle_check(const json_t *root);

#endif
