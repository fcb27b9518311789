/* turns: times the paths of a program in turns, and splits the gain of the fused path on a CPU into what fusion,
 * more threads and the products' library give. */
#pragma once

#include "profile/compare.h"
#include "run/profiling.h"
#include "run/progress.h"

typedef struct {
    Ctx *ctx;
    int first, end; // the paths are first to end - 1, of COMPARE_NAIVE, ...
    int64_t rounds;
    /* Runs one path to its end. Rounds below 0 are warm-up. */
    Status (*run)(void *program, int path, int64_t round, StepCost *cost);
    void *program;
    Progress *progress; // its total is 2 * rounds; may be NULL
} Turns;

/* The path, of `count`, that takes a turn of a round: over 2 * count rounds each path takes each turn twice,
 * because machines change during a round. */
int turns_path(int64_t round, int turn, int count);

/* One round without records; costs (COMPARE_PATHS). */
CHECKED Status turns_round(const Turns *turns, int64_t round, StepCost *costs);

/* The rounds -warmup to -1. */
CHECKED Status turns_warm_up(const Turns *turns, int64_t warmup);

/* Times the paths as a whole: sets step and pairs of `paths` (COMPARE_PATHS). If the naive path is among them
 * and the device is a CPU with several threads, or with two libraries of products, every round also runs what
 * `split` needs. costs (COMPARE_PATHS, rounds) receives the costs of the paths. */
CHECKED Status turns_time(const Turns *turns, StepCost *costs, PathTimes *paths, GainSplit *split);

/* Times each operation, with `primitives` also its primitives, in separate rounds: sets `operations` of `paths`.
 * For `option` see timed_operations_read. */
CHECKED Status turns_operations(const Turns *turns, const Peaks *peaks, bool primitives, const char *option,
                                PathTimes *paths);
