/* tables: stb_ds's hash tables with the project's allocator. base/tables.c contains the implementation. */
#pragma once

#include "base/memory.h"

#define STBDS_REALLOC(context, pointer, bytes) memory_resize(pointer, bytes)
#define STBDS_FREE(context, pointer)           memory_free(pointer)
#include <stb/stb_ds.h>
