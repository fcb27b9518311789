/* schedule: the learning rate of each step, a pure function of the step. */
#pragma once

#include <stdint.h>

typedef enum {
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_WSD,
    SCHEDULE_CONSTANT,
    SCHEDULE_NOAM,
    SCHEDULE_COUNT
} ScheduleKind;

typedef struct {
    ScheduleKind kind;
    double rate;    // peak learning rate
    double minimum; // learning rate of the last step; unused by constant and noam
    int64_t warmup; // warm-up steps before the peak
    int64_t steps;  // total steps
} Schedule;

/* The rate of step s, from 0, in a run of n steps with w warm-up steps:
 *     s < w:   rate * (s + 1) / (w + 1), so step w is the first with the full rate
 *     s >= w:  minimum + (rate - minimum) * f(p)
 * p goes from 0 at the first decay step d to 1 at step n - 1 (p = 0 if they are equal), and
 *     cosine:    f = (1 + cos(pi p)) / 2,  d = w      Loshchilov and Hutter 2017, eq. 5, without restarts
 *     linear:    f = 1 - p,                d = w
 *     wsd:       f = 1 - sqrt(p),          d = max(w, n - 1 - n/5): warm-up, stable, decay over the last
 *                fifth. Hu et al. 2024 (MiniCPM), section 4; the form of the decay from Hagele et al. 2024
 *     constant:  f = 1
 * After the end, the last step's rate continues. noam (Vaswani et al. 2017, eq. 3) does not depend on the
 * length of the run: with v = max(w, 1),
 *     noam:      rate * min((s + 1) / v, sqrt(v / (s + 1))); the paper's rate is 1 / sqrt(width * v) */
double schedule_rate(const Schedule *schedule, int64_t step);

const char *schedule_name(ScheduleKind kind);
