/* kernel_name: extracts information from a kernel's name. */
#pragma once

#include "report/trace.h"

/* A demangled C++ name; the caller frees it with memory_free. NULL if `name` is not mangled, or no demangler
 * is available. */
char *kernel_demangle(const char *name);

/* The name without its return type, namespaces and parameters: "row_max<__nv_bfloat16, 8>". */
enum { KERNEL_NAME_BYTES = 256 };
void kernel_short_name(const char *name, char text[KERNEL_NAME_BYTES]);

/* The short name of a C++ kernel, which has parameters; any other name unchanged. */
void kernel_label(const char *name, char text[KERNEL_NAME_BYTES]);

/* Properties encoded in the name: "sm90, bf16, tile 128x256x64, TNT, tensor cores"; "" if there are none. */
void kernel_decode(const char *name, char text[KERNEL_NAME_BYTES]);
