/* The implementation of stb_ds, which comes as a header. */
#define STB_DS_IMPLEMENTATION
#include "base/tables.h"
