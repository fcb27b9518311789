/* stats: summary statistics of values, and values grouped by row. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

// in the values' unit; all zero without values
typedef struct {
    int64_t count;
    double total, mean, median, least, most, deviation;
    double spread; // interquartile range
} Stats;

Stats stats_make(double *values, int64_t count); // sorts them

/* Compares two medians, of `count` values each with their interquartile range: do they differ at a
 * significance of 1%? The standard error of a median is 0.93 spread / sqrt(count - 1); the difference over
 * its own error is compared with Student's t. Needs two values or more on each side. */
typedef struct {
    double median, spread;
    int64_t count;
} Sampled;

bool medians_differ(Sampled before, Sampled after);

double median(double *values, int64_t count); // sorts `values`; 0 if there are none

/* part / whole. For whole = 0, ratio gives 0, and share_of NaN, which tables show as an empty cell. */
double ratio(double part, double whole);
double share_of(double part, double whole);

/* Accumulates samples by row (kernel, phase). Zero-initialized means empty. */
typedef struct {
    int64_t row;
    double value;
} RowValue;

typedef struct {
    RowValue *values;
    int64_t count, room;
} RowValues;

void row_values_add(RowValues *values, int64_t row, double value);
/* Frees the samples. Returns statistics for each of `rows` rows, all zero for a row without samples; the
 * caller frees them with memory_free. */
Stats *row_values_stats(RowValues *values, int64_t rows);

/* A growing list of values. */
typedef struct {
    double *values; // (count), freed by the owner with memory_free
    int64_t count, room;
} Series;

void series_add(Series *series, double value);
