/* cores: how a program shares the processor's cores with others. */
#pragma once

/* OpenMP's threads wait for work without leaving their core, for milliseconds, unless the environment says
 * otherwise when the program starts; where others want the cores, a step then takes many times as long.
 * Starts the program anew with a short wait, unless the environment says how to wait. The first thing that
 * main does. */
void cores_share(char **argv);

/* What this process's threads did up to a moment, in seconds. */
typedef struct {
    double ran, waited; // on a core; ready to run, but for want of a core not running
    double others; // that cores worked for others than this process, other machines of the host among them
} CoreTimes;

CoreTimes cores_read(void);

/* Of the time since then in which its threads could run, the share in which they waited for a core that others
 * had: not for each other. 0 where the system does not tell. */
double cores_waited(CoreTimes since);

/* A larger share than this, and times are the other programs' as much as this one's. */
#define CORES_SHARED 0.05

/* The warning for such a share, a sentence of one line; "" for a smaller one. */
typedef struct {
    char text[160];
} CoresWarning;

CoresWarning cores_warning(double waited);
