#define _GNU_SOURCE // sched_setaffinity
#include "base/cores.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Spin for about 150 us. That is longer than the gap between two operations: with a third of it,
 * translation by a small model takes 1.7 times as long. It is short enough to leave cores to other
 * programs. */
static const char *const SPINS = "3000";

/* Gives this thread all cores of OpenMP's places, of which OpenMP has bound it to the first. */
static bool unbind(void) {
    cpu_set_t cores;
    int ids[CPU_SETSIZE];
    CPU_ZERO(&cores);
    for (int place = 0; place < omp_get_num_places(); place++) {
        const int count = omp_get_place_num_procs(place);
        if (count > CPU_SETSIZE) return false;
        omp_get_place_proc_ids(place, ids);
        for (int i = 0; i < count; i++) CPU_SET((size_t)ids[i], &cores);
    }
    return sched_setaffinity(0, sizeof cores, &cores) == 0;
}

void cores_share(char **argv) {
    char program[PATH_MAX];
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (omp_get_proc_bind() != omp_proc_bind_false && !unbind()) return;
    ssize_t length = readlink("/proc/self/exe", program,
                              sizeof program - 1); // the program's file, not the link, whose name would
                                                   // become the process's name
    if (length <= 0 || setenv("GOMP_SPINCOUNT", SPINS, 1) != 0) return;
    program[length] = 0;
    execv(program,
          argv); // if it fails, for example because the file is gone, the program continues unchanged
}

/* Adds a thread's "ran waited slices", in nanoseconds. */
static void add_thread(const char *thread, CoreTimes *times) {
    char path[PATH_MAX];
    double ran, waited;
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", thread);
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (fscanf(file, "%lf %lf", &ran, &waited) == 2) {
        times->ran += 1e-9 * ran;
        times->waited += 1e-9 * waited;
    }
    fclose(file);
}

/* The system counts in hundredths of a second. */
static double others_ran(void) {
    double user, nice, system, idle, input, interrupt, soft, stolen;
    struct timespec own;
    FILE *file = fopen("/proc/stat", "r");
    if (!file) return INFINITY;
    int read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &input,
                      &interrupt, &soft, &stolen);
    fclose(file);
    if (read != 8 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0) return INFINITY;
    double all = (user + nice + system + interrupt + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
    return all - ((double)own.tv_sec + 1e-9 * (double)own.tv_nsec);
}

CoreTimes cores_read(void) {
    CoreTimes times = {.others = others_ran()};
    DIR *threads = opendir("/proc/self/task");
    if (!threads) return times;
    for (struct dirent *entry; (entry = readdir(threads));) add_thread(entry->d_name, &times);
    closedir(threads);
    return times;
}

double cores_waited(CoreTimes since) {
    CoreTimes now = cores_read();
    double ran = fmax(now.ran - since.ran, 0), waited = fmax(now.waited - since.waited, 0); // threads end
    if (isfinite(now.others) && isfinite(since.others))
        waited = fmin(waited, fmax(now.others - since.others, 0));
    return ran + waited > 0 ? waited / (ran + waited) : 0;
}

CoresWarning cores_warning(double waited) {
    CoresWarning warning = {""};
    if (waited > CORES_SHARED)
        snprintf(warning.text, sizeof warning.text,
                 "CORES SHARED: the program's threads waited for a core %.0f%% of their time; do not trust "
                 "its times",
                 100 * waited);
    return warning;
}
