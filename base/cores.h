/* cores: sharing the processor's cores with other programs. */
#pragma once

/* Restarts the program with a short OpenMP spin time, unless the environment sets one. By default OpenMP's
 * threads spin for milliseconds while they wait, which slows a step down many times when other programs
 * need the cores. Where OpenMP binds threads to cores (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), it has
 * bound this one already, and the restarted program gets all of its cores back. Call it first in main. */
void cores_share(char **argv);

/* CPU time of this process's threads, in seconds. */
typedef struct {
    double ran, waited; // on a core; ready to run, but waiting for a core
    double others;      // time that cores spent on other processes, including the host's other virtual
                        // machines
} CoreTimes;

CoreTimes cores_read(void);

/* The share of the time since `since` in which this process's threads were ready to run but waited for a core
 * that other processes used. Waiting for each other does not count. 0 if the system does not report it. */
double cores_waited(CoreTimes since);

/* Above this share, times depend as much on other programs as on this one. */
#define CORES_SHARED 0.05

/* A one-line warning if the share is above CORES_SHARED; "" otherwise. */
typedef struct {
    char text[160];
} CoresWarning;

CoresWarning cores_warning(double waited);
