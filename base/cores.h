/* cores: sharing the processor's cores with other programs. */
#pragma once

/* Restarts the program with a short OpenMP spin time, unless the environment sets one. By default OpenMP's
 * threads spin for milliseconds while they wait, which slows a step down many times when other programs
 * need the cores. Call it first in main. */
void cores_share(char **argv);

/* CPU time of this process's threads, in seconds. */
typedef struct {
    double ran, waited; // on a core; ready to run, but for want of a core not running
    double others; // that cores worked for others than this process, other machines of the host among them
} CoreTimes;

CoreTimes cores_read(void);

/* Of the time since then in which its threads could run, the share in which they waited for a core that others
 * had: not for each other. 0 where the system does not tell. */
double cores_waited(CoreTimes since);

/* Above this share, times depend as much on other programs as on this one. */
#define CORES_SHARED 0.05

/* A one-line warning for such a share; "" below it. */
typedef struct {
    char text[160];
} CoresWarning;

CoresWarning cores_warning(double waited);
