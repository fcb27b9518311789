/* gelu: shared by the two halves of the GELU benchmark. */
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

/* Runs on the first GPU; false if there is none. NULL in a build without CUDA. */
bool gelu_cuda(GeluTimes *times) __attribute__((weak));

#ifdef __cplusplus
}
#endif
