/* What the two halves of the GELU bench share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int64_t count;          // elements
    double primitives, one; // ms
} GeluTimes;

/* On the first GPU; false where there is none. NULL in a build without CUDA. */
bool gelu_cuda(GeluTimes *times) __attribute__((weak));

#ifdef __cplusplus
}
#endif
