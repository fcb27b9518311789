/* page: a bundle as one self-contained HTML file: no network, no other file. Its parts are in
 * report/page/. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* Embeds the files of report/page/ in the program. */
#define INCLUDED(name, file)                                                                                 \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"report/page/" file "\"\n.byte 0\n.popsection\n");   \
    extern const char name[] __attribute__((visibility("hidden")));

/* Writes the page of a bundle's text, which was created here or checked by bundle_parse. */
CHECKED Status page_write(const char *bundle, int64_t length, const char *path);
