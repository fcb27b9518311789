/* bundle_read: reads bundles, which may come from anywhere. */
#pragma once

#include "profile/bundle_schema.h"

/* Reads and checks a bundle. ERROR_FILE; ERROR_FORMAT, with where the fault is, for what is no bundle, is
 * of another version, or does not have its form. */
CHECKED Status bundle_read(const char *path, Bundle *bundle);
/* The same of text in memory; `name` is for messages. */
CHECKED Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle);
void bundle_free(Bundle *bundle);
