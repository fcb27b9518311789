#include "optim/schedule.h"

#include <math.h>

static const char *const names[] = {"cosine", "linear", "wsd", "constant", "noam"};

const char *schedule_name(ScheduleKind kind) {
    return kind < SCHEDULE_COUNT ? names[kind] : "unknown";
}

/* The remaining height above the minimum after the part p of the decay. */
static double remainder_of(ScheduleKind kind, double p) {
    switch (kind) {
    case SCHEDULE_COSINE: return 0.5 * (1 + cos(3.14159265358979323846 * p));
    case SCHEDULE_LINEAR: return 1 - p;
    case SCHEDULE_WSD: return 1 - sqrt(p);
    case SCHEDULE_CONSTANT:
    case SCHEDULE_NOAM:
    case SCHEDULE_COUNT: break;
    }
    return 1;
}

static double noam(double rate, int64_t warmup, int64_t step) {
    double v = warmup > 1 ? (double)warmup : 1, count = (double)step + 1;
    return rate * fmin(count / v, sqrt(v / count));
}

double schedule_rate(const Schedule *schedule, int64_t step) {
    if (schedule->kind == SCHEDULE_NOAM) return noam(schedule->rate, schedule->warmup, step);
    int64_t last = schedule->steps - 1, first = schedule->warmup;
    if (step < first) return schedule->rate * (double)(step + 1) / (double)(first + 1);
    int64_t stable_end = last - schedule->steps / 5;
    if (schedule->kind == SCHEDULE_WSD && stable_end > first) first = stable_end;
    double p = 0;
    if (step > first && last > first) p = step < last ? (double)(step - first) / (double)(last - first) : 1;
    double left = remainder_of(schedule->kind, p);
    /* Exact at both ends: left is 1 at p = 0 and 0 at p = 1. */
    return left * schedule->rate + (1 - left) * schedule->minimum;
}
