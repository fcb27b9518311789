/* profile: measurements of one path of a run, or of the naive and the fused path side by side, ready to be
 * printed, written and compared. */
#pragma once

#include "report/figures.h"
#include "report/table.h"

typedef struct {
    const char *label; // "naive", "fused"; "mixed": operations ran in different forms
    Trace *trace;
    Figures figures;
} ProfilePath;

typedef struct {
    ProfilePath paths[FORM_COUNT]; // the naive path comes first
    int count;
    const Difference *differences; // differences of the two paths' outputs; NULL: unknown
    int difference_count;
} Profile;

/* How the profile is printed and written. All zero: everything, with default names. */
typedef struct {
    const char *suffix; // suffix of the files' names: "_bs8_seq128"; NULL: none
    const char *trace;  // name of the trace file, "trace.json.gz"; NULL or "": from the model and its sizes
    bool questions;     // print the answers instead of the tables
    unsigned names;     // NAMES_FULL, OPERATORS_ALONE, THREADS_SEPARATE, DEVICE_ALONE: for the tables
    bool torch;         // tables of operations with PyTorch's names
    TableView view;     // for the tables; its limit is only for the terminal, files have every row
} ProfileOptions;

/* The difference of an operation's outputs between the paths; NULL if none was measured. */
static inline const Difference *profile_difference(const Profile *profile, const OperationRow *row) {
    return difference_find(profile->differences, profile->difference_count, row->call, row->operation,
                           row->pass);
}
