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

Stats stats_make(double *values, int64_t count); // sorts the values

/* Compares two medians, of `count` values each with their interquartile range: do they differ at a
 * significance of 1%? The standard error of a median is 0.93 spread / sqrt(count - 1); the difference over
 * its own error is compared with Student's t. Needs two values or more on each side. */
typedef struct {
    double median, spread;
    int64_t count;
} Sampled;

bool medians_differ(Sampled before, Sampled after);

/* The ratio of the times of the runs after a change to those before, each run with one positive value; its
 * 95% interval; and the p-value, the probability that runs of the same program differ at least that much.
 * With at least four runs a side, ratio and interval are Hodges and Lehmann's (1963), which assume no
 * distribution, because processes often have one of two speeds. With fewer runs they come from geometric
 * means and Student's t of the logarithms, with a pooled variance. The p-value is the smallest of that t
 * test, of Mann and Whitney's (1947) rank test and, with at least five runs a side, of Yuen's t test (1974),
 * which leaves each side's shortest and longest run out of its mean, so that one slow process does not hide a
 * change. So the rate of false alarms is at most three times the level. With fewer than two values on a side
 * the interval is unbounded and the p-value 1. */
typedef struct {
    double ratio, low, high, chance;
} RunsRatio;

RunsRatio runs_ratio(const double *before, int64_t before_count, const double *after, int64_t after_count);

/* A median and its confidence interval of at least 95% by the sign test, whose ends are two of the values;
 * with fewer than six values the least and the largest. All 0 without values. */
typedef struct {
    double median, low, high;
} MedianInterval;

MedianInterval median_interval(double *values, int64_t count); // sorts the values

/* The same for the ratios of paired measurements. */
MedianInterval pairs_ratio(const double *over, const double *under, int64_t count);

double median(double *values, int64_t count); // sorts `values`; 0 without values

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

/* A growing list of values, freed by its owner. */
typedef struct {
    double *values; // (count); release with memory_free
    int64_t count, room;
} Series;

void series_add(Series *series, double value);

/* Whether the values have stopped drifting: there are at least eight, and the medians of their third and last
 * quarter differ by at most this share. */
bool series_steady(const Series *series, double within);
