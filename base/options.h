/* options: a program's options as tables of rows, read from the command line and from a JSON file. The
 * rows say everything once: --help, validation, --config and --print-config follow from it. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an option's text means, and the type of the field that it goes to. */
typedef enum {
    OPTION_HEADING, // no option: `doc` stands above those that follow
    OPTION_FLAG,    // bool: --name, --name=0, --name=1
    OPTION_INTEGER, // int64_t in [least, most]
    OPTION_NUMBER,  // double in [low, high], without the ends where `above` or `below` is set
    OPTION_TEXT,    // const char *, never NULL
    OPTION_LIST,    // OptionList, each number in [least, most], at least one
    OPTION_CHOICE,  // an enum: which of `choices` the text is, from 0
} OptionKind;

typedef struct {
    int64_t *values;
    int64_t count;
} OptionList;

typedef struct {
    OptionKind kind;
    const char *name;         // long, without dashes
    char letter;              // short, or 0
    const char *argument;     // how --help calls the value: "N"; NULL for flags and choices
    const char *doc;          // one line; --help puts the default behind it
    const char *default_text; // instead of the default value in --help; "" shows none
    const char *bare;         // OPTION_TEXT: the value of --name with none given; NULL if it needs one
    const char *choices;      // "cosine|linear"
    const char *alias;        // what the option is called elsewhere: it is taken, but not in files or --help
    const char *(*proposals)(int index); // OPTION_TEXT: values that a shell completes; NULL behind the last
    int64_t least, most;
    double low, high;
    bool above, below;
    bool command_line_only; // not a key of a --config file
    bool written;           // OPTION_TEXT: a file that the program writes
    bool travels;           // goes along with what was made under it: options_read_travelling takes it
    size_t field;           // offset in the struct of values
} Option;

typedef enum {
    OPTION_SOURCE_DEFAULT,
    OPTION_SOURCE_TRAVELLED,
    OPTION_SOURCE_FILE,
    OPTION_SOURCE_COMMAND_LINE
} OptionSource;

/* Rows, and the struct of values that they fill. */
typedef struct {
    const Option *rows;
    int count;
    const void *defaults; // the values before any is read
    size_t size;          // of the struct; 0: the rows fill one that is there already
} OptionTable;

enum { OPTION_TABLES = 16 };

/* A word and a sentence about it. Lists of them end with one that has no word. */
typedef struct {
    const char *word, *text;
} OptionNote;

/* A program's tables, the values they fill, and where each came from. Texts and lists that are read belong to
 * the set until options_close. */
typedef struct {
    const char *program;      // "train"; it is installed as "fusebox-train"
    const char *called;       // as it was started: the first word of the command line
    const char *version;      // what --version prints
    const char *summary;      // what --help begins with
    const OptionNote *manual; // behind the options in the manual: a section where there is no text; or NULL
    const OptionNote *absent; // names that are no options, and what to use instead; or NULL
    const char *other;        // the program that has the options of these tables, or NULL
    const OptionTable *others[OPTION_TABLES]; // NULL behind the last
    Option *table;                            // (count) the rows of all tables
    void **fields;                            // (count) where their values go
    int count;
    OptionSource *source; // (count)
    void **owned;         // (count) the text or numbers behind values that were read
    struct {
        const OptionTable *table;
        void *values, *owned; // owned NULL: they are the caller's
    } tables[OPTION_TABLES];
    int table_count;
} OptionSet;

/* --help, --usage, --version, --manual, --completion-bash and --completion-zsh are part of every set; a table
 * must not name them. */
void options_open(OptionSet *set, const char *program, const char *version, const char *summary);
void options_close(OptionSet *set);

/* Adds a table behind those before. Its values, which become the defaults, go to `values`, or where that is
 * NULL to a struct of the set's own. */
void options_add(OptionSet *set, const OptionTable *table, void *values);

/* The values of a table that has been added. */
void *options_values(const OptionSet *set, const OptionTable *table);

/* Reads the command line. The last of several of the same name wins; --name=VALUE and --name VALUE are the
 * same. `printed` tells that --help, --usage or --version
 * was asked for and has been answered on standard output: nothing is left to do. Every error is an
 * ERROR_USAGE that names the option, and for an unknown one the nearest. */
CHECKED Status options_parse(OptionSet *set, int argc, char **argv, bool *printed);

/* Fills what the command line, and files read before, left out, from a JSON object of long names. ERROR_FILE,
 * ERROR_FORMAT for what is not such an object, ERROR_USAGE for an unknown key or a value out of range. */
CHECKED Status options_read_file(OptionSet *set, const char *path);

/* The same for a file that nobody named: one that lies beside what is read and may come from a stranger. It
 * fills only options that travel; what it says of the others is not even looked at. */
CHECKED Status options_read_travelling(OptionSet *set, const char *path);

/* All values, in the table's order, as a JSON object that options_read_file accepts: on one line, or with
 * `lines` a line for each. The caller frees it with memory_free. */
char *options_json(const OptionSet *set, bool lines);

/* Answers --print-config: prints options_json with lines on standard output. */
CHECKED Status options_print(const OptionSet *set);

/* The row of that name, or NULL. */
const Option *options_find(const OptionSet *set, const char *name);

/* Whether an option's value is 0: of a number, or a flag that is not set. */
bool options_zero(const OptionSet *set, const char *name);

/* Whether a text is not empty, or a flag is set. `name` must be in the table, as below. */
bool options_say(const OptionSet *set, const char *name);

/* Whether an option was asked for: it was on the command line, or a file that was named gave it a value other
 * than its default. `name` must be in the table. */
bool options_given(const OptionSet *set, const char *name);
