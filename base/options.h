/* options: a program's options as tables of rows, read from the command line and from a JSON file. The
 * rows drive --help, validation, --config and --print-config. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* How an option's text is parsed, and the type of its field. */
typedef enum {
    OPTION_HEADING, // not an option: `doc` is a heading
    OPTION_FLAG,    // bool: --name, --name=0, --name=1
    OPTION_INTEGER, // int64_t in [least, most]
    OPTION_NUMBER,  // double in [low, high]; `above` and `below` exclude the ends
    OPTION_TEXT,    // const char *, never NULL
    OPTION_LIST,    // OptionList, each number in [least, most], at least one
    OPTION_CHOICE,  // an enum: the index of the text in `choices`
} OptionKind;

typedef struct {
    int64_t *values;
    int64_t count;
} OptionList;

typedef struct {
    OptionKind kind;
    const char *name;         // long name, without dashes
    char letter;              // one-letter name, or 0
    const char *argument;     // the value's name in --help: "N"; NULL for flags and choices
    const char *doc;          // one line; --help appends the default
    const char *default_text; // replaces the default in --help; "" shows none
    const char *bare;         // OPTION_TEXT: the value of --name without one; NULL if a value is required
    const char *choices;      // "cosine|linear"
    const char *alias;        // a name of another program or of an older version: accepted, not shown
    const char *(*proposals)(int index); // OPTION_TEXT: values that a shell completes; NULL after the last
    int64_t least, most;
    double low, high;
    bool above, below;
    bool command_line_only; // not a key of a --config file
    const char *word;       // OPTION_INTEGER: a text that stands for least - 1; or NULL
    bool written;           // OPTION_TEXT: a file that the program writes
    bool several;           // OPTION_TEXT: may be repeated; the values are joined by OPTION_SEPARATOR
    bool travels;           // saved with the results and restored by options_read_travelling
    size_t field;           // offset in the values
} Option;

typedef enum {
    OPTION_SOURCE_DEFAULT,
    OPTION_SOURCE_TRAVELLED,
    OPTION_SOURCE_FILE,
    OPTION_SOURCE_COMMAND_LINE
} OptionSource;

// rows, and the struct of values that they fill
typedef struct {
    const Option *rows;
    int count;
    const void *defaults; // the initial values
    size_t size;          // bytes of the struct; 0 if the rows extend an existing one
} OptionTable;

enum { OPTION_TABLES = 16, OPTION_SEPARATOR = 0x1f };

/* A word and a sentence about it. The last element of a list has no word. */
typedef struct {
    const char *word, *text;
} OptionNote;

/* A program's tables, their values, and the source of each value. The set owns the texts and lists that it
 * has read, until options_close. */
typedef struct {
    const char *program;      // "train"; it is installed as "fusebox-train"
    const char *called;       // the first word of the command line
    const char *version;      // text that --version prints
    const char *summary;      // the first lines of --help
    const OptionNote *manual; // sections of the manual after the options, or NULL; a note without text is a
                              // heading
    const OptionNote *absent; // names that are not options, and the options to use instead; or NULL
    const char *other;        // the program with these options, for hints; or NULL
    const OptionTable *others[OPTION_TABLES]; // NULL after the last
    Option *table;                            // (count) rows of all tables
    void **fields;                            // (count) destinations of their values
    int count;
    OptionSource *source; // (count)
    void **owned;         // (count) memory of texts and lists
    struct {
        const OptionTable *table;
        void *values, *owned; // `owned` is NULL if the caller owns the values
    } tables[OPTION_TABLES];
    int table_count;
} OptionSet;

/* Every set includes --help, --usage, --version, --manual, --completion-bash and --completion-zsh; a table
 * must not define them. */
void options_open(OptionSet *set, const char *program, const char *version, const char *summary);
void options_close(OptionSet *set);

/* A manual page in roff. For a program whose first argument is a command, the set has no options. */
void options_print_manual(const OptionSet *set, FILE *file);

/* Appends a table. Its values, which become the defaults, are stored in `values`, or if that is NULL in a
 * struct that the set owns. */
void options_add(OptionSet *set, const OptionTable *table, void *values);

/* The values of an added table. */
void *options_values(const OptionSet *set, const OptionTable *table);

/* Reads the command line. If an option is repeated the last value wins, unless it is marked `several`;
 * --name=VALUE and --name VALUE are the same. `printed` is set if --help, --usage or --version was given and
 * its answer has been printed: the program has nothing left to do. Every error is an ERROR_USAGE that names
 * the option, and for an unknown one the nearest. */
CHECKED Status options_parse(OptionSet *set, int argc, char **argv, bool *printed);

/* Fills options that neither the command line nor an earlier file set, from a JSON object of long names.
 * ERROR_FILE; ERROR_FORMAT if the file is not such an object; ERROR_USAGE for an unknown key or a value
 * out of range. */
CHECKED Status options_read_file(OptionSet *set, const char *path);

/* The same for a file that the user did not name and that may come from a stranger, such as a checkpoint's
 * options. It fills only options marked `travels` and ignores the others. */
CHECKED Status options_read_travelling(OptionSet *set, const char *path);

/* All values, in the table's order, as a JSON object that options_read_file accepts, on one line or (with
 * `lines`) one line per option. The caller frees it with memory_free. */
char *options_json(const OptionSet *set, bool lines);

/* Answers --print-config: prints options_json with lines on standard output. */
CHECKED Status options_print(const OptionSet *set);

/* The row of that name, or NULL. */
const Option *options_find(const OptionSet *set, const char *name);

/* Whether a number is 0 or a flag is off. `name` must be in the table, as below. */
bool options_zero(const OptionSet *set, const char *name);

/* Whether a text is not empty or a flag is on. */
bool options_on(const OptionSet *set, const char *name);

/* Whether the user set the option: on the command line, or to a non-default value in a file named by the
 * user. */
bool options_given(const OptionSet *set, const char *name);
