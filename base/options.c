#include "base/options_internal.h"

#include "base/memory.h"

#include <argp.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What every program has besides its table. They follow the table's rows in the numbering of options. */
static const char *const builtins[] = {"help",   "usage",           "version",
                                       "manual", "completion-bash", "completion-zsh"};
static const char *const builtin_docs[] = {"print this help",       "print the usage in short",
                                           "print the version",     "print the manual page",
                                           "print what bash needs", "print what zsh needs"};
enum { HELP, USAGE, VERSION, MANUAL, BASH, ZSH, BUILTINS, FIRST_KEY = 256, DOC = 240 };

void options_open(OptionSet *set, const char *program, const char *version, const char *summary) {
    *set = (OptionSet){.program = program, .version = version, .summary = summary};
}

void options_close(OptionSet *set) {
    for (int i = 0; i < set->count; i++) memory_free(set->owned[i]);
    for (int i = 0; i < set->table_count; i++) memory_free(set->tables[i].owned);
    memory_free(set->owned);
    memory_free(set->source);
    memory_free(set->fields);
    memory_free(set->table);
    *set = (OptionSet){0};
}

void options_add(OptionSet *set, const OptionTable *table, void *values) {
    const int from = set->count, count = from + table->count;
    void *own = values ? NULL : memory_allocate(table->size);
    assert(set->table_count < OPTION_TABLES);
    if (own) values = own;
    if (table->size) memcpy(values, table->defaults, table->size);
    set->tables[set->table_count].table = table;
    set->tables[set->table_count].values = values;
    set->tables[set->table_count++].owned = own;
    set->table = memory_resize(set->table, (size_t)count * sizeof *set->table);
    set->fields = memory_resize(set->fields, (size_t)count * sizeof *set->fields);
    set->source = memory_resize(set->source, (size_t)count * sizeof *set->source);
    set->owned = memory_resize(set->owned, (size_t)count * sizeof *set->owned);
    for (int i = from; i < count; i++) {
        set->table[i] = table->rows[i - from];
        set->fields[i] = (char *)values + set->table[i].field;
        set->source[i] = OPTION_SOURCE_DEFAULT;
        set->owned[i] = NULL;
    }
    set->count = count;
}

void *options_values(const OptionSet *set, const OptionTable *table) {
    int i = 0;
    while (i < set->table_count && set->tables[i].table != table) i++;
    assert(i < set->table_count);
    return set->tables[i].values;
}

int option_find(const OptionSet *set, const char *name) {
    for (int i = 0; i < set->count; i++)
        if (set->table[i].name && strcmp(set->table[i].name, name) == 0) return i;
    return -1;
}

const Option *options_find(const OptionSet *set, const char *name) {
    int index = option_find(set, name);
    return index < 0 ? NULL : &set->table[index];
}

bool options_zero(const OptionSet *set, const char *name) {
    char text[4];
    int index = option_find(set, name);
    assert(index >= 0);
    OptionKind kind = set->table[index].kind;
    option_text(set, index, text, sizeof text);
    return (kind == OPTION_FLAG || kind == OPTION_INTEGER || kind == OPTION_NUMBER) && strcmp(text, "0") == 0;
}

bool options_say(const OptionSet *set, const char *name) {
    char text[2];
    int index = option_find(set, name);
    assert(index >= 0);
    option_text(set, index, text, sizeof text);
    return set->table[index].kind == OPTION_FLAG ? *text == '1' : *text != 0;
}

bool options_given(const OptionSet *set, const char *name) {
    int index = option_find(set, name);
    assert(index >= 0);
    return set->source[index] > OPTION_SOURCE_TRAVELLED;
}

/* NULL for a heading. */
static const char *name_at(const OptionSet *set, int index) {
    return index < set->count ? set->table[index].name : builtins[index - set->count];
}

static bool takes_value(const OptionSet *set, int index) {
    return index < set->count && set->table[index].kind != OPTION_FLAG && !set->table[index].bare;
}

Hint option_hint(const OptionSet *set, const char *text, bool file) {
    const char **names = memory_array((size_t)set->count + BUILTINS, sizeof *names);
    int count = 0;
    for (int i = 0; i < set->count + (file ? 0 : BUILTINS); i++)
        if (name_at(set, i) && !(file && set->table[i].command_line_only)) names[count++] = name_at(set, i);
    Hint hint =
        file ? nearest_hint(text, "\"", "\"", names, count) : nearest_hint(text, "'--", "'", names, count);
    memory_free(names);
    return hint;
}

/* ---- looking through the command line before argp does, which cannot say what it does not know ---- */

static Status fail_unknown(const OptionSet *set, const char *argument) {
    char name[128];
    const char *text = argument + strspn(argument, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    const Hint hint = option_hint(set, name, false);
    return fail(ERROR_USAGE, "unknown option '%.100s'%s", argument,
                *hint.text ? hint.text : "; --help lists them all");
}

/* The option whose name is, or alone begins with, the first `length` bytes of `name`: getopt_long's rule. */
static Status find_long(const OptionSet *set, const char *argument, const char *name, size_t length,
                        int *found) {
    int first = -1, second = -1;
    for (int i = 0; i < set->count + BUILTINS; i++) {
        const char *candidate = name_at(set, i);
        const char *alias = i < set->count ? set->table[i].alias : NULL;
        if (alias && strlen(alias) == length && strncmp(alias, name, length) == 0) {
            *found = i;
            return OK;
        }
        if (!candidate || strncmp(candidate, name, length) != 0) continue;
        if (strlen(candidate) == length) {
            *found = i;
            return OK;
        }
        if (first < 0)
            first = i;
        else if (second < 0)
            second = i;
    }
    if (first < 0 || length == 0) return fail_unknown(set, argument);
    if (second >= 0)
        return fail(ERROR_USAGE, "'%.100s' is ambiguous: it could be --%s or --%s", argument,
                    name_at(set, first), name_at(set, second));
    *found = first;
    return OK;
}

static int find_letter(const OptionSet *set, char letter) {
    for (int i = 0; i < set->count; i++)
        if (set->table[i].letter == letter) return i;
    return letter == 'h' ? set->count + HELP : letter == 'V' ? set->count + VERSION : -1;
}

static Status need_value(const OptionSet *set, int index) {
    const Option *option = &set->table[index];
    const char *what = option->argument ? option->argument : option->choices;
    return fail(ERROR_USAGE, "--%s needs a value: --%s=%s", option->name, option->name, what);
}

/* One argument that begins with a dash. `used` is how many arguments it takes; `builtin` is set when it is
 * one of those. */
static Status look_at(const OptionSet *set, char **argv, int left, int *used, int *builtin) {
    const char *argument = argv[0];
    *used = 1;
    bool is_long = argument[1] == '-';
    for (const char *letter = argument + 1; *letter; letter++) {
        size_t length = is_long ? strcspn(argument + 2, "=") : 1;
        int index = -1;
        if (is_long)
            TRY(find_long(set, argument, argument + 2, length, &index));
        else
            index = find_letter(set, *letter);
        if (index < 0) return fail_unknown(set, argument);
        bool has_value = is_long ? argument[2 + length] == '=' : letter[1] != 0;
        if (index >= set->count) {
            if (is_long && has_value) return fail(ERROR_USAGE, "--%s takes no value", name_at(set, index));
            *builtin = index - set->count;
            return OK;
        }
        if (takes_value(set, index)) {
            if (!has_value && left < 2) return need_value(set, index);
            *used = has_value ? 1 : 2;
            return OK;
        }
        if (is_long) return OK;
    }
    return OK;
}

/* Refuses what argp would refuse, in better words. `builtin` is the first of those asked for, or -1. */
static Status look_through(const OptionSet *set, int argc, char **argv, int *builtin) {
    *builtin = -1;
    for (int i = 1; i < argc && *builtin < 0;) {
        const char *argument = argv[i];
        int used = 1;
        bool ends = strcmp(argument, "--") == 0;
        if (ends && i + 1 < argc) argument = argv[i + 1];
        if (argument[0] != '-' || argument[1] == 0 || (ends && i + 1 < argc))
            return fail(ERROR_USAGE, "unexpected argument '%.100s'; options are written --name=value",
                        argument);
        if (!ends) TRY(look_at(set, argv + i, argc - i, &used, builtin));
        i += used;
    }
    return OK;
}

/* ---- argp ---- */

typedef struct {
    OptionSet *set;
    Status status;
} Parse;

static error_t parse_one(int key, char *argument, struct argp_state *state) {
    Parse *parse = state->input;
    OptionSet *set = parse->set;
    int index = key >= FIRST_KEY && key < FIRST_KEY + set->count ? key - FIRST_KEY : -1;
    if (key > 0 && key < FIRST_KEY) index = find_letter(set, (char)key);
    if (index < 0 || index >= set->count) return ARGP_ERR_UNKNOWN;
    const Option *option = &set->table[index];
    const char *bare = option->kind == OPTION_FLAG ? "1" : option->bare;
    Status status = option_store(set, index, argument ? argument : bare);
    set->source[index] = OPTION_SOURCE_COMMAND_LINE;
    if (!status) return 0;
    parse->status = fail_at(status, "--%s=%.100s", option->name, argument ? argument : bare);
    return EINVAL;
}

/* argp's view of rows [first, last). A flag's value is legal but left out of the help. */
static void describe(const OptionSet *set, int first, int last, bool for_help, struct argp_option *options) {
    int count = 0;
    for (int i = first; i < last; i++) {
        if (!name_at(set, i)) continue;
        struct argp_option *o = &options[count++];
        const Option *option = i < set->count ? &set->table[i] : NULL;
        *o = (struct argp_option){.name = name_at(set, i), .key = FIRST_KEY + i, .group = i + 1};
        if (!option) {
            o->doc = builtin_docs[i - set->count];
            if (i == set->count + HELP) o->key = 'h';
            if (i == set->count + VERSION) o->key = 'V';
            continue;
        }
        if (option->letter && (for_help || option->kind != OPTION_FLAG)) o->key = option->letter;
        if (option->kind != OPTION_FLAG) o->arg = option->argument ? option->argument : option->choices;
        if (option->kind == OPTION_FLAG && !for_help) o->arg = "0|1";
        if (o->arg && !takes_value(set, i)) o->flags = OPTION_ARG_OPTIONAL;
        o->doc = option->doc;
        /* The letter of a flag takes no value, so that letters can be written together. */
        if (option->alias && !for_help)
            options[count++] = (struct argp_option){.name = option->alias, .flags = OPTION_ALIAS};
        if (option->letter && o->key != option->letter)
            options[count++] = (struct argp_option){.key = option->letter, .group = i + 1};
    }
    options[count] = (struct argp_option){0};
}

/* ---- answering --help ---- */

/* "doc [default]" */
static void document(const OptionSet *set, int index, char text[DOC]) {
    const Option *option = &set->table[index];
    char value[64];
    option_text(set, index, value, sizeof value);
    const char *shown = option->default_text ? option->default_text : value;
    if (option->kind == OPTION_FLAG || !*shown)
        snprintf(text, DOC, "%s", option->doc);
    else
        snprintf(text, DOC, "%s [%s]", option->doc, shown);
}

/* One argp_help for each heading, because argp would sort what stands under it. */
static void print_help(const OptionSet *set, struct argp_option *options, char (*docs)[DOC]) {
    int end = set->count + BUILTINS;
    printf("Usage: %s [OPTION...]\n%s\nDefaults are in [brackets].\n", set->program, set->summary);
    for (int first = 0, last; first < end; first = last) {
        bool heading = first < set->count && set->table[first].kind == OPTION_HEADING;
        last = first + 1;
        while (last < end && last != set->count && name_at(set, last)) last++;
        if (heading || first == set->count) printf("\n%s\n", heading ? set->table[first].doc : "Help");
        describe(set, first, last, true, options);
        for (int i = first, at = 0; i < last; i++) {
            if (!name_at(set, i)) continue;
            if (i < set->count) {
                document(set, i, docs[i]);
                options[at].doc = docs[i];
            }
            at++;
        }
        struct argp argp = {.options = options};
        argp_help(&argp, stdout, ARGP_HELP_LONG, (char *)(uintptr_t)set->program);
    }
}

static Status answer(const OptionSet *set, int builtin, struct argp_option *options) {
    if (builtin == VERSION) {
        printf("%s\n", set->version);
    } else if (builtin == MANUAL) {
        options_print_manual(set, stdout);
    } else if (builtin == BASH) {
        options_print_bash(set, stdout);
    } else if (builtin == ZSH) {
        options_print_zsh(set, stdout);
    } else if (builtin == USAGE) {
        describe(set, 0, set->count + BUILTINS, true, options);
        struct argp argp = {.options = options};
        argp_help(&argp, stdout, ARGP_HELP_USAGE, (char *)(uintptr_t)set->program);
    } else {
        char(*docs)[DOC] = memory_array((size_t)set->count, DOC);
        print_help(set, options, docs);
        memory_free(docs);
    }
    return fflush(stdout) || ferror(stdout) ? fail(ERROR_FILE, "cannot write to standard output") : OK;
}

Status options_parse(OptionSet *set, int argc, char **argv, bool *printed) {
    int builtin;
    *printed = false;
    TRY(look_through(set, argc, argv, &builtin));
    size_t room = 3 * (size_t)set->count + BUILTINS + 1;
    struct argp_option *options = memory_array(room, sizeof *options);
    Parse parse = {set, OK};
    if (builtin >= 0) {
        *printed = true;
        parse.status = answer(set, builtin, options);
    } else {
        describe(set, 0, set->count + BUILTINS, false, options);
        struct argp argp = {.options = options, .parser = parse_one};
        error_t error = argp_parse(&argp, argc, argv, ARGP_SILENT, NULL, &parse);
        if (error && !parse.status)
            parse.status = fail(error == ENOMEM ? ERROR_MEMORY : ERROR_USAGE,
                                "cannot read the command line: %s", strerror(error));
    }
    memory_free(options);
    return parse.status;
}
