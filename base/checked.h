/* checked: arithmetic of sizes. checked_multiply and checked_add are for sizes from outside, and return true on
 * overflow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_multiply(int64_t a, int64_t b, int64_t *product) {
    return __builtin_mul_overflow(a, b, product);
}

static inline bool checked_add(int64_t a, int64_t b, int64_t *sum) {
    return __builtin_add_overflow(a, b, sum);
}

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The number of pieces of size `of` that cover `count`. */
static inline int64_t pieces(int64_t count, int64_t of) {
    return (count + of - 1) / of;
}
