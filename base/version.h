/* version: the version number of the programs, and how they were built. docs/changes.md lists the changes. */
#pragma once

#define FUSEBOX_VERSION "fusebox 0.1.0"

/* The commit, followed by "-dirty" if files had changed; "" if built outside git. */
const char *version_commit(void);

/* Compiler and targets: "gcc 12.2.0, -march=native, CUDA for sm_90a". */
const char *version_build(void);
