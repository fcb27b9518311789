#include "base/stats.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Interpolates linearly between two values. */
static double quantile(const double *sorted, int64_t count, double share) {
    double at = share * (double)(count - 1);
    int64_t below = (int64_t)at, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

static Stats stats_of_sorted(const double *values, int64_t count) {
    Stats s = {.count = count};
    if (!count) return s;
    for (int64_t i = 0; i < count; i++) s.total += values[i];
    s.mean = s.total / (double)count;
    s.median = count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
    s.spread = quantile(values, count, 0.75) - quantile(values, count, 0.25);
    s.least = values[0];
    s.most = values[count - 1];
    s.mean = fmin(fmax(s.mean, s.least), s.most); // rounding must not move the mean out of the range
    double squares = 0;
    for (int64_t i = 0; i < count; i++) squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.deviation = count > 1 ? sqrt(squares / (double)(count - 1)) : 0;
    return s;
}

Stats stats_make(double *values, int64_t count) {
    if (count) qsort(values, (size_t)count, sizeof *values, ascending);
    return stats_of_sorted(values, count);
}

/* Squared standard error of a median, for a normal distribution: the error is 1.2533 sigma / sqrt(n), and
 * the interquartile range 1.349 sigma. n - 1 corrects the quartiles of few values. */
static double square_error(Sampled s) {
    double error = 0.93 * s.spread;
    return error * error / (double)(s.count - 1);
}

/* The two-sided 1% quantile of Student's t: Abramowitz and Stegun, 26.7.5. */
static double one_in_hundred(double freedom) {
    return 2.576 + 4.917 / freedom + 8.835 / (freedom * freedom);
}

bool medians_differ(Sampled before, Sampled after) {
    double freedom = (double)(before.count + after.count - 2);
    double error = sqrt(square_error(before) + square_error(after));
    return fabs(after.median - before.median) > one_in_hundred(freedom) * error;
}

/* The probability that |Student's t| exceeds `t`: Abramowitz and Stegun, 26.7.3 and 26.7.4. */
static double chance_beyond(double t, int64_t freedom) {
    const double angle = atan(t / sqrt((double)freedom)), cosine = cos(angle), square = cosine * cosine;
    const bool odd = freedom % 2;
    double term = odd ? cosine : 1, sum = freedom > 1 ? term : 0;
    for (int64_t k = odd ? 3 : 2; k < freedom; k += 2) {
        term *= square * (double)(k - 1) / (double)k;
        sum += term;
    }
    const double within = odd ? (angle + sin(angle) * sum) * M_2_PI : sin(angle) * sum;
    return fmax(1 - within, 0);
}

/* The t that |Student's t| exceeds with this probability. */
static double t_of(double chance, int64_t freedom) {
    double low = 0, high = 1e6;
    for (int i = 0; i < 100; i++) {
        double t = 0.5 * (low + high);
        if (chance_beyond(t, freedom) > chance)
            low = t;
        else
            high = t;
    }
    return high;
}

enum { TRIMMED_LEAST = 5 }; // runs a side

static double log_mean(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += log(values[i]);
    return sum / (double)count;
}

static double log_squares(const double *values, int64_t count, double mean) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (log(values[i]) - mean) * (log(values[i]) - mean);
    return sum;
}

static RunsRatio ratio_of_means(const double *a, int64_t a_count, const double *b, int64_t b_count) {
    const double mean_a = log_mean(a, a_count), mean_b = log_mean(b, b_count), change = mean_b - mean_a;
    const int64_t freedom = a_count + b_count - 2;
    const double variance =
        (log_squares(a, a_count, mean_a) + log_squares(b, b_count, mean_b)) / (double)freedom;
    const double error = sqrt(variance * (1 / (double)a_count + 1 / (double)b_count));
    const double room = t_of(0.05, freedom) * error;
    const double chance = error > 0 ? chance_beyond(fabs(change) / error, freedom) : change == 0;
    return (RunsRatio){exp(change), exp(change - room), exp(change + room), chance};
}

/* The mean of the logarithms without the least and the largest, and the square of its standard error, from the
 * squares of the Winsorized logarithms: the least and the largest take the values of their neighbours. */
static double trimmed_mean(const double *values, int64_t count, double *error2) {
    OWNED double *logs = memory_array((size_t)count, sizeof *logs);
    const double kept = (double)(count - 2);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) logs[i] = log(values[i]);
    (void)median(logs, count); // median sorts the logarithms
    for (int64_t i = 1; i < count - 1; i++) sum += logs[i];
    logs[0] = logs[1];
    logs[count - 1] = logs[count - 2];
    const double middle = (sum + logs[0] + logs[count - 1]) / (double)count;
    for (int64_t i = 0; i < count; i++) squares += (logs[i] - middle) * (logs[i] - middle);
    *error2 = squares / (kept * (kept - 1));
    return sum / kept;
}

/* Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 1974, with pooled degrees of
 * freedom. */
static double trimmed_chance(const double *a, int64_t a_count, const double *b, int64_t b_count) {
    double a_error2, b_error2;
    const double change = trimmed_mean(b, b_count, &b_error2) - trimmed_mean(a, a_count, &a_error2);
    const double error = sqrt(a_error2 + b_error2);
    return error > 0 ? chance_beyond(fabs(change) / error, a_count + b_count - 6) : change == 0;
}

/* The distribution of Mann and Whitney's U (1947, section 3) for a_count and b_count runs of the same
 * program: element u is the probability that in at most u of all pairs b's run is below a's. The caller frees
 * it. Recursion: the largest run is either one of a, which is above all of b, or one of b. */
static double *rank_chances(int64_t a_count, int64_t b_count) {
    const int64_t room = a_count * b_count + 1;
    OWNED double *all = memory_array((size_t)((b_count + 1) * room), sizeof *all);
    for (int64_t j = 0; j <= b_count; j++) all[j * room] = 1; // base case: no runs of a
    for (int64_t i = 1; i <= a_count; i++)
        for (int64_t j = 1; j <= b_count; j++)
            for (int64_t u = room - 1; u >= 0; u--) {
                const double of_a = u >= j ? all[j * room + u - j] : 0, of_b = all[(j - 1) * room + u];
                all[j * room + u] = ((double)i * of_a + (double)j * of_b) / (double)(i + j);
            }
    double *chances = memory_array((size_t)room, sizeof *chances), sum = 0;
    for (int64_t u = 0; u < room; u++) chances[u] = sum += all[b_count * room + u];
    return chances;
}

RunsRatio runs_ratio(const double *a, int64_t a_count, const double *b, int64_t b_count) {
    if (a_count < 1 || b_count < 1) return (RunsRatio){NAN, 0, INFINITY, 1};
    const double change = log_mean(b, b_count) - log_mean(a, a_count);
    if (a_count < 2 || b_count < 2 || !isfinite(change)) return (RunsRatio){exp(change), 0, INFINITY, 1};
    RunsRatio r = ratio_of_means(a, a_count, b, b_count);
    if (a_count >= TRIMMED_LEAST && b_count >= TRIMMED_LEAST)
        r.chance = fmin(r.chance, trimmed_chance(a, a_count, b, b_count));
    int64_t pairs = a_count * b_count, below = 0, above = 0, left_out = -1;
    OWNED double *ratios = memory_array((size_t)pairs, sizeof *ratios);
    OWNED double *chances = rank_chances(a_count, b_count);
    for (int64_t i = 0; i < pairs; i++) ratios[i] = b[i % b_count] / a[i / b_count];
    const double middle = median(ratios, pairs); // median sorts the ratios
    for (int64_t i = 0; i < pairs; i++) below += ratios[i] <= 1, above += ratios[i] >= 1;
    r.chance = fmin(r.chance, 2 * chances[below < above ? below : above]);
    while (2 * chances[left_out + 1] <= 0.05) left_out++;
    if (left_out >= 0) r = (RunsRatio){middle, ratios[left_out], ratios[pairs - 1 - left_out], r.chance};
    return r;
}

/* The k-th smallest and largest leave out at most 2.5% on either side: sum of binomials below k over
 * 2^count. */
MedianInterval median_interval(double *values, int64_t count) {
    const Stats s = stats_make(values, count);
    double tail = pow(0.5, (double)count), term = tail;
    int64_t k = 0;
    while (2 * (k + 1) < count) {
        term *= (double)(count - k) / (double)(k + 1);
        if (tail + term > 0.025) break;
        tail += term;
        k++;
    }
    return (MedianInterval){s.median, count ? values[k] : 0, count ? values[count - 1 - k] : 0};
}

MedianInterval pairs_ratio(const double *over, const double *under, int64_t count) {
    OWNED double *ratios = memory_array((size_t)count + 1, sizeof *ratios);
    for (int64_t i = 0; i < count; i++) ratios[i] = ratio(over[i], under[i]);
    return median_interval(ratios, count);
}

double median(double *values, int64_t count) {
    return stats_make(values, count).median;
}

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

double share_of(double part, double whole) {
    return whole > 0 ? part / whole : NAN;
}

void row_values_add(RowValues *v, int64_t row, double value) {
    v->values = memory_grow(v->values, &v->room, v->count + 1, sizeof *v->values);
    v->values[v->count++] = (RowValue){row, value};
}

static int by_row(const void *a, const void *b) {
    const RowValue *x = a, *y = b;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

Stats *row_values_stats(RowValues *v, int64_t rows) {
    Stats *stats = memory_array((size_t)rows + 1, sizeof *stats);
    OWNED double *sorted = memory_array((size_t)v->count + 1, sizeof *sorted);
    if (v->count) qsort(v->values, (size_t)v->count, sizeof *v->values, by_row);
    for (int64_t i = 0; i < v->count; i++) sorted[i] = v->values[i].value;
    for (int64_t i = 0, end; i < v->count; i = end) {
        for (end = i; end < v->count && v->values[end].row == v->values[i].row;) end++;
        stats[v->values[i].row] = stats_of_sorted(sorted + i, end - i);
    }
    memory_free(v->values);
    *v = (RowValues){0};
    return stats;
}

void series_add(Series *series, double value) {
    series->values = memory_grow(series->values, &series->room, series->count + 1, sizeof *series->values);
    series->values[series->count++] = value;
}

bool series_steady(const Series *series, double within) {
    const int64_t quarter = series->count / 4;
    if (quarter < 2) return false;
    OWNED double *copy = memory_array((size_t)(2 * quarter), sizeof *copy);
    memcpy(copy, series->values + series->count - 2 * quarter, (size_t)(2 * quarter) * sizeof *copy);
    const double before = median(copy, quarter), after = median(copy + quarter, quarter);
    return fabs(after - before) <= within * before;
}
