/* anatomy: descriptions of the CUDA kernels, in a table made from the comments above the kernels
 * (tools/anatomy). */
#pragma once

#include <stdio.h>

enum {
    ANATOMY_PARALLEL,  // the parallel dimensions
    ANATOMY_LAUNCH,    // grid and block
    ANATOMY_HOLDS,     // registers and shared memory, for sm_90a
    ANATOMY_OCCUPANCY, // limits of the occupancy
    ANATOMY_READS,     // how global memory is read
    ANATOMY_SYNCS,     // where threads wait for each other
    ANATOMY_FUSION,    // possible further fusion
    ANATOMY_PARTS
};

typedef struct {
    const char *kernel, *file;
    int line;
    const char *parts[ANATOMY_PARTS];
} Anatomy;

extern const Anatomy anatomy_rows[];
extern const int anatomy_count;

/* Finds the kernels that a profile's kernel may be. `name` is its C++ signature, `source` the file and line
 * of the operation that it served, or "". Several kernels may have the same name: kernels in the operation's
 * file come first, then those in its folder; kernels in other folders only if there are none of these.
 * Returns how many it wrote, at most `most`; 0 if `name` is not a signature. */
int anatomy_find(const char *name, const char *source, const Anatomy *found[], int most);

const char *anatomy_part_name(int part); // "Parallel"

/* Prints the kernels whose name or file contains `text`, all for ""; returns their number. */
int anatomy_print(const char *text, FILE *file);
