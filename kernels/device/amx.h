/* amx: the tiles of Intel's processors since 2023: eight registers of 16 rows of 64 bytes, and products of
 * bf16 on them that are summed in fp32. All symbols are weak: NULL in a build for other processors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <sys/cdefs.h>

__BEGIN_DECLS

enum { AMX_SIDE = 16, AMX_DEPTH = 32 }; // rows of a tile, and words of a row; elements of bf16 in a row

/* Whether the kernel lets this process use them. */
__attribute__((weak)) bool amx_ready(void);

/* Eight whole tiles for this thread; a library may have set others since. */
__attribute__((weak)) void amx_begin(void);

/* to (16, 16) = from (16, 16)^T, of 32-bit words, strides in words: pairs of bf16, or fp32. */
__attribute__((weak)) void amx_transpose(const void *from, int64_t from_stride, void *to, int64_t to_stride);

__END_DECLS
