/* page: a bundle as one HTML file that needs nothing else: no network, no other file. Its parts are
 * report/page/. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* Writes the page of a bundle's text, which was made here, or which bundle_parse has checked. */
CHECKED Status page_write(const char *bundle, int64_t length, const char *path);
