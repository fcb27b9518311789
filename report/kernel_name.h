/* kernel_name: what a kernel's name and shape tell. */
#pragma once

#include "report/trace.h"

/* A C++ name as its programmer wrote it; the caller frees it with memory_free. NULL where `name` is no such
 * name, or nobody can tell. */
char *kernel_demangle(const char *name);

/* The name without its return type, namespaces and parameters: "row_max<__nv_bfloat16, 8>". */
enum { KERNEL_NAME_BYTES = 256 };
void kernel_short_name(const char *name, char text[KERNEL_NAME_BYTES]);

/* The short name of one that has parameters, as C++ kernels do; any other as it is. */
void kernel_label(const char *name, char text[KERNEL_NAME_BYTES]);

/* What is coded in the name: "sm90, bf16, tile 128x256x64, TNT, tensor cores"; "" where nothing is. */
void kernel_decode(const char *name, char text[KERNEL_NAME_BYTES]);
