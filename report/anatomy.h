/* anatomy: how each CUDA kernel is built. The table is made from the comments beside the kernels (tools/anatomy). */
#pragma once

#include <stdio.h>

enum {
    ANATOMY_PARALLEL,  // over what
    ANATOMY_LAUNCH,    // grid and block
    ANATOMY_HOLDS,     // registers and shared memory, for sm_90a
    ANATOMY_OCCUPANCY, // what limits it
    ANATOMY_READS,     // how global memory is read
    ANATOMY_SYNCS,     // where threads wait for each other
    ANATOMY_FUSION,    // what could still be fused
    ANATOMY_PARTS
};

typedef struct {
    const char *kernel, *file;
    int line;
    const char *parts[ANATOMY_PARTS];
} Anatomy;

extern const Anatomy anatomy_rows[];
extern const int anatomy_count;

/* The kernels that a profile's kernel may be: `name` is its C++ signature, `source` is the file and line of the
 * operation that it served, or "". Several kernels may have one name: those of the operation's file come before
 * those of its folder, and these before all others, which are left out. Gives how many it wrote, at most `most`; 0 where
 * `name` is no signature. */
int anatomy_find(const char *name, const char *source, const Anatomy *found[], int most);

const char *anatomy_part_name(int part); // "Parallel"

/* Prints the kernels whose name or file contains `text`, all for ""; gives their number. */
int anatomy_print(const char *text, FILE *file);
