/* profile: what was measured of one path of a run, or of the naive and the fused path side by side, ready
 * to be printed, written and compared. */
#pragma once

#include "report/figures.h"
#include "report/table.h"

typedef struct {
    const char *label; // "naive", "fused"; "mixed": some operations ran in one form and some in the other
    Trace *trace;
    Figures figures;
} ProfilePath;

typedef struct {
    ProfilePath paths[FORM_COUNT]; // of two, the naive one first
    int count;
    const Difference *differences; // of the two paths' outputs; NULL: not known
    int difference_count;
} Profile;

/* How it is made, written and printed. All zero: everything, with the plain names. */
typedef struct {
    const char *suffix; // of the files' names: "_bs8_seq128"; NULL: none
    const char *trace;  // name of the trace file, "trace.json.gz"; NULL or "": of the model and its sizes
    bool questions;     // print the answers in place of the tables
    unsigned names;     // NAMES_TORCH, NAMES_FULL: of the tables
    TableView view;     // of the tables; its limit is the terminal's alone, files have every row
} ProfileOptions;

/* The difference of an operation's outputs between the paths; NULL where none was taken. */
static inline const Difference *profile_difference(const Profile *profile, const OperationRow *row) {
    return difference_find(profile->differences, profile->difference_count, row->call, row->operation,
                           row->pass);
}
