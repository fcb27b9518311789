/* page: a bundle as one HTML file that needs nothing else: no network, no other file. Its parts are
 * report/page/. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* The files of report/page/ become texts of the program. */
#define INCLUDED(name, file)                                                                                 \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"report/page/" file "\"\n.byte 0\n.popsection\n");   \
    extern const char name[] __attribute__((visibility("hidden")));

/* Writes the page of a bundle's text, which was made here, or which bundle_parse has checked. */
CHECKED Status page_write(const char *bundle, int64_t length, const char *path);
