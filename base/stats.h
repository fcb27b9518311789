/* stats: what a list of values amounts to, and lists of values that fall into rows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* In the values' own unit; all zero of none. */
typedef struct {
    int64_t count;
    double total, mean, median, least, most, deviation;
    double spread; // from the first quartile to the third
} Stats;

Stats stats_make(double *values, int64_t count); // sorts them

/* Medians of `count` values each that spread so, before and after: do they differ by more than chance lets
 * medians differ once in a hundred times? A median's standard error is taken as 0.93 spread / sqrt(count -
 * 1); their difference over its own error is held against Student's t. Of no use with fewer than two
 * values. */
typedef struct {
    double median, spread;
    int64_t count;
} Sampled;

bool medians_differ(Sampled before, Sampled after);

/* How many times as long the runs after took as those before, each with one positive value: the ratio of their
 * geometric means, its 95% interval, and the chance that runs of one and the same thing differ as much. From
 * Student's t of the values' logarithms with one spread for both sides. With fewer than two values on a side the
 * interval is everything and the chance 1. */
typedef struct {
    double ratio, low, high, chance;
} RunsRatio;

RunsRatio runs_ratio(const double *before, int64_t before_count, const double *after, int64_t after_count);

/* Ratios of pairs that were taken side by side: their median, and between which two of them the true median lies
 * with a chance of at least 95%, by the signs alone; the least and the most where there are fewer than six. */
typedef struct {
    double median, low, high;
} PairsRatio;

PairsRatio pairs_ratio(const double *over, const double *under, int64_t count);

double median(double *values, int64_t count); // sorts `values`; 0 of none

/* part / whole; of nothing 0, or in tables not a number, which is an empty cell. */
double ratio(double part, double whole);
double share_of(double part, double whole);

/* Values that fall into rows: the times of each kernel, of each phase. All zero: none. */
typedef struct {
    int64_t row;
    double value;
} RowValue;

typedef struct {
    RowValue *values;
    int64_t count, room;
} RowValues;

void row_values_add(RowValues *values, int64_t row, double value);
/* Frees the values. For each of `rows` rows its statistics, all zero for a row without values; to be freed
 * with memory_free. */
Stats *row_values_stats(RowValues *values, int64_t rows);

/* Values, as many as come. */
typedef struct {
    double *values; // (count), the owner's to memory_free
    int64_t count, room;
} Series;

void series_add(Series *series, double value);
