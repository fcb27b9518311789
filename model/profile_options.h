/* profile_options: how a program is profiled; the part of the options that ./train and ./infer share. */
#ifndef MODEL_PROFILE_OPTIONS_H
#define MODEL_PROFILE_OPTIONS_H

#include "base/options.h"
#include "profile/table.h"

typedef struct {
    const char *window; // for window_parse; "": no profile
    const char *out;    // folder for the report's files; "": none
    bool timer_only;    // time steps, trace nothing
    const char *sort;   // key of a column; "": as each table is
    int64_t limit;      // rows of a table; 0: all
    TimeUnit unit;
    bool full_names, torch;
} ProfileOptions;

/* Their rows of an option table, for a struct whose member `profile` they fill; and their defaults. */
#define PROFILE_ROWS(Struct) PROFILE_WINDOW(Struct), PROFILE_OUTPUT(Struct), PROFILE_TABLES(Struct)
#define PROFILE_WINDOW(Struct)                                                                               \
    {                                                                                                        \
        OPTION_TEXT, "profile", .argument = "WINDOW", .bare = "3,0,2,10,1",                                  \
                                .doc = "skip,closed,ready,record,repeat or [a,b): trace these steps",        \
                                .field = offsetof(Struct, profile.window)                                    \
    }
#define PROFILE_OUTPUT(Struct)                                                                               \
    {OPTION_TEXT, "profile-out", .argument = "FOLDER", .doc = "write the profile's files there",             \
     .field = offsetof(Struct, profile.out)},                                                                \
    {                                                                                                        \
        OPTION_FLAG, "timer-only", .doc = "with --profile: time steps, trace nothing",                       \
                                   .field = offsetof(Struct, profile.timer_only)                             \
    }
#define PROFILE_TABLES(Struct)                                                                               \
    {OPTION_TEXT, "sort", .argument = "COLUMN", .doc = "sort the profile's tables by this column",           \
     .field = offsetof(Struct, profile.sort)},                                                               \
        {OPTION_INTEGER,                                                                                     \
         "limit",                                                                                            \
         .argument = "N",                                                                                    \
         .least = 0,                                                                                         \
         .most = 1000000,                                                                                    \
         .doc = "rows of the profile's tables; 0 for all",                                                   \
         .field = offsetof(Struct, profile.limit)},                                                          \
        {OPTION_CHOICE, "unit", .choices = "auto|s|ms|us|ns", .doc = "of the profile's times",               \
         .field = offsetof(Struct, profile.unit)},                                                           \
        {OPTION_FLAG, "full-names", .doc = "do not cut long names in the profile",                           \
         .field = offsetof(Struct, profile.full_names)},                                                     \
    {                                                                                                        \
        OPTION_FLAG, "torch-compat", .doc = "name operations as PyTorch's profiler does",                    \
                                     .field = offsetof(Struct, profile.torch)                                \
    }
#define PROFILE_DEFAULTS                                                                                     \
    { .window = "", .out = "", .sort = "", .limit = 25 }

/* ERROR_USAGE for a window that cannot be, a column that no table has, options without --profile. A window
 * that records steps after `steps`, unless that is 0, cannot be. */
CHECKED Status profile_options_check(const ProfileOptions *options, const OptionSet *set, int64_t steps);

#endif
