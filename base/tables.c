/* The implementation of stb_ds, a header-only library. */
#define STB_DS_IMPLEMENTATION
#include "base/tables.h"
