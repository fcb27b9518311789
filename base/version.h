/* version: of the programs, and of what they were built. docs/changes.md lists the changes. */
#pragma once

#define FUSEBOX_VERSION "fusebox 0.1.0"

/* The commit, with "-dirty" behind it where files had changed; "" of a build outside git. */
const char *version_commit(void);

/* The compiler and what it compiled for: "gcc 12.2.0, -march=native, CUDA for sm_90a". */
const char *version_build(void);
