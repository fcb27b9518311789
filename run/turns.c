#include "run/turns.h"

#include "base/memory.h"
#include "kernels/device/cpu.h"

#include <stdlib.h>
#include <string.h>

enum { ONE_THREAD_EVERY = 2 }; // rounds, because one thread takes long

int turns_path(int64_t round, int turn, int count) {
    round = llabs(round);
    return (int)(((round % 2 ? count - 1 - turn : turn) + round / 2) % count);
}

/* The fused path with the naive path's products. */
static Status blas_run(const Turns *t, int64_t round, StepCost *cost) {
    t->ctx->blas_only = true;
    Status status = t->run(t->program, COMPARE_FUSED, round, cost);
    t->ctx->blas_only = false;
    return status;
}

/* How much faster the fused forms are on one thread, with the naive path's products. */
static Status one_thread_round(const Turns *t, int64_t round, double *faster) {
    const int threads = t->ctx->device->threads;
    StepCost costs[FORM_COUNT];
    Status status = OK;
    cpu_use_threads(t->ctx->device, 1);
    for (int turn = 0; turn < FORM_COUNT && !status; turn++) {
        const int form = turns_path(round, turn, FORM_COUNT);
        status = form == FORM_NAIVE ? t->run(t->program, COMPARE_NAIVE, round, &costs[form])
                                    : blas_run(t, round, &costs[form]);
    }
    cpu_use_threads(t->ctx->device, threads);
    if (!status) *faster = costs[FORM_NAIVE].ms / costs[FORM_FUSED].ms;
    return status;
}

/* Runs each path, and unless `blas` is NULL, blas_run. */
static Status one_round(const Turns *t, int64_t round, Recorder *const *recorders, StepCost *costs,
                        StepCost *blas) {
    const int count = t->end - t->first + (blas ? 1 : 0);
    for (int turn = 0; turn < count; turn++) {
        const int path = t->first + turns_path(round, turn, count);
        t->ctx->recorder = recorders ? recorders[path] : NULL;
        Status status =
            path < t->end ? t->run(t->program, path, round, &costs[path]) : blas_run(t, round, blas);
        t->ctx->recorder = NULL;
        TRY(status);
    }
    return OK;
}

Status turns_round(const Turns *t, int64_t round, StepCost *costs) {
    return one_round(t, round, NULL, costs, NULL);
}

Status turns_warm_up(const Turns *t, int64_t warmup) {
    StepCost costs[COMPARE_PATHS];
    for (int64_t round = -warmup; round < 0; round++) TRY(turns_round(t, round, costs));
    return OK;
}

/* ---- whole runs ---- */

typedef struct {
    double *ms[COMPARE_PATHS];   // (rounds) ms of each path
    double *blas;                // (rounds) ms of blas_run
    bool libraries;              // naive and fused products may use different ones, so blas_run has run
    double *with_all, *with_one; // (pairs) naive over fused time, with all threads and with one
    int64_t pairs;
} Times;

static Status time_rounds(const Turns *t, Times *times, StepCost *costs) {
    const Device *device = t->ctx->device;
    const bool compared = t->first == COMPARE_NAIVE;
    const bool threaded = compared && device->backend == BACKEND_CPU && device->threads > 1;
    times->libraries = compared && strstr(device->library, "oneDNN");
    for (int64_t round = 0; round < t->rounds; round++) {
        StepCost taken[COMPARE_PATHS] = {{0}}, blas;
        TRY(one_round(t, round, NULL, taken, times->libraries ? &blas : NULL));
        if (times->libraries) times->blas[round] = blas.ms;
        for (int path = t->first; path < t->end; path++) {
            times->ms[path][round] = taken[path].ms;
            costs[path * t->rounds + round] = taken[path];
        }
        if (threaded && round % ONE_THREAD_EVERY == 0) {
            const double fused = times->libraries ? blas.ms : taken[COMPARE_FUSED].ms;
            times->with_all[times->pairs] = taken[COMPARE_NAIVE].ms / fused;
            TRY(one_thread_round(t, round, &times->with_one[times->pairs++]));
        }
        if (t->progress) progress_step(t->progress, round + 1, 0);
    }
    return OK;
}

static void summarize(const Turns *t, const Times *times, PathTimes *paths, GainSplit *split) {
    *split = (GainSplit){0};
    for (int path = t->first + 1; path < t->end; path++)
        paths[path].pairs = pairs_ratio(times->ms[path - 1], times->ms[path], t->rounds);
    if (times->libraries) {
        split->forms = pairs_ratio(times->ms[COMPARE_NAIVE], times->blas, t->rounds);
        split->products = pairs_ratio(times->blas, times->ms[COMPARE_FUSED], t->rounds);
    }
    split->threads = pairs_ratio(times->with_all, times->with_one, times->pairs);
    /* Last, because these sort the values, which were paired. */
    split->one_thread = median_interval(times->with_one, times->pairs);
    for (int path = t->first; path < t->end; path++)
        paths[path].step = stats_make(times->ms[path], t->rounds);
}

Status turns_time(const Turns *t, StepCost *costs, PathTimes *paths, GainSplit *split) {
    enum { ROWS = COMPARE_PATHS + 3 };
    OWNED double *rows = memory_array((size_t)t->rounds * ROWS, sizeof *rows);
    Times times = {.blas = rows + COMPARE_PATHS * t->rounds};
    for (int path = 0; path < COMPARE_PATHS; path++) times.ms[path] = rows + path * t->rounds;
    times.with_all = times.blas + t->rounds;
    times.with_one = times.with_all + t->rounds;
    TRY(time_rounds(t, &times, costs));
    summarize(t, &times, paths, split);
    return OK;
}

/* ---- operations ---- */

Status turns_operations(const Turns *t, const Peaks *peaks, bool primitives, const char *option,
                        PathTimes *paths) {
    const RecorderOptions options = {.primitives = primitives, .timed = true};
    Recorder *recorders[COMPARE_PATHS];
    Status status = OK;
    for (int path = t->first; path < t->end; path++)
        recorders[path] = recorder_open(t->ctx->device, &options);
    for (int64_t round = 0; round < t->rounds && !status; round++) {
        StepCost costs[COMPARE_PATHS];
        status = one_round(t, round, recorders, costs, NULL);
        if (t->progress) progress_step(t->progress, t->rounds + round + 1, 0);
    }
    for (int path = t->first; path < t->end && !status; path++)
        status = timed_operations_read(recorders[path], peaks, option, &paths[path].operations);
    for (int path = t->first; path < t->end; path++) recorder_close(recorders[path]);
    return status;
}
