/* compare: the naive and the fused path of the same step, joined by operation. Reads summaries; prints and
 * writes. */
#ifndef PROFILE_COMPARE_H
#define PROFILE_COMPARE_H

#include "profile/summary.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One path's measurements. */
typedef struct {
    Summary summary;                     // with timing per operation on
    double step_ms, step_low, step_high; // whole step with it off: median and range over the rounds
    size_t peak_bytes;
} PathProfile;

/* The largest relative difference between the paths' outputs of one operation and pass: ||a - b|| / ||a||. */
typedef struct {
    const char *call;
    Operation operation;
    Pass pass;
    double difference;
} Difference;

typedef struct {
    char device[128], library[96], dtype[8], model[32];
    int64_t batch, seq, rounds;
    Peaks peaks;
    PathProfile paths[FORM_COUNT];
    Difference *differences;
    int difference_count;
} Comparison;

void compare_print(const Comparison *comparison, FILE *file);
CHECKED Status compare_write(const Comparison *comparison, const char *path);
void compare_free(Comparison *comparison);

/* An observer (Ctx.observe) that keeps the outputs of a first run in host memory and compares those of a
 * second with them, call by call. */
typedef struct Capture Capture;
CHECKED Status capture_open(Capture **capture);
void capture_close(Capture *capture);
void capture_second_run(Capture *capture);
CHECKED Status capture_observe(Ctx *ctx, const Call *call); // Ctx.observer is the Capture
/* Hands the differences over; to be freed with memory_free. */
void capture_take(Capture *capture, Difference **differences, int *count);

#ifdef __cplusplus
}
#endif
#endif
