/* compare: compares results with the specification's. Bounds are derived, not tuned: every bound is an array
 * with one number per element, which a test computes from the magnitudes that enter the element and the unit
 * roundoffs below (Higham 2002, "Accuracy and stability of numerical algorithms", chapter 3). */
#pragma once

#include "tests/support/rig.h"

/* Unit roundoffs: the largest relative error of one rounding. */
typedef struct {
    double storage; // of intermediate results that a form may store: the computation's dtype
    double product; // of inputs of a matrix product: the dtype, or tf32
    double wide;    // of sums, statistics and elementwise arithmetic
} Units;

Units units_of(const Variant *variant);

/* The relative error of a sum of n terms against the sum of their magnitudes, in any order: at most n*u, and
 * below 6 sqrt(n) u but for one case in 10^7 (Higham, Mary 2019, "A new approach to probabilistic rounding
 * error analysis", theorem 2.4, lambda = 6). */
double sum_error(double unit, int64_t n);

/* The error of a product over k: rounded inputs, and the sum. */
double product_error(Units u, int64_t k);

/* Requires |got - want| <= bound for each element, equal infinities, no NaN; a failure names the worst
 * element. */
void expect_close(const double *got, const double *want, const double *bound, int64_t count,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Requires bitwise equality. */
void expect_equal(const double *got, const double *want, int64_t count, const char *name);

/* A function of `inputs` arrays, and its backward pass. */
typedef struct {
    int inputs, outputs;
    int64_t input_counts[8], output_counts[4];
    Body forward;  // in: the inputs; out: the outputs
    Body backward; // in: the inputs, then the outputs' cotangents; out: the inputs' gradients
} Differentiable;

/* Compares the specification's gradients with central differences, along every element of short inputs and
 * four random directions of long ones, at the point `inputs`. */
void expect_gradients(const Differentiable *d, const void *what, double *const *inputs, const char *name);
