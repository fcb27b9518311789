#include "base/options_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

// options that every program has
typedef struct {
    bool help, usage, version, manual, bash, zsh;
} Builtins;

#define BUILTIN(name, member)                                                                                \
    OPTION_FLAG, name, .command_line_only = true, .field = offsetof(Builtins, member)
static const Option builtin_rows[] = {
    {OPTION_HEADING, .doc = "Help"},
    {BUILTIN("help", help), .letter = 'h', .doc = "print this help"},
    {BUILTIN("usage", usage), .doc = "print the usage in short"},
    {BUILTIN("version", version), .letter = 'V', .doc = "print the version"},
    {BUILTIN("manual", manual), .doc = "print the manual page"},
    {BUILTIN("completion-bash", bash), .doc = "print a completion script for bash"},
    {BUILTIN("completion-zsh", zsh), .doc = "print a completion script for zsh"},
};
static const Builtins unasked;
static const OptionTable builtins = {builtin_rows, sizeof builtin_rows / sizeof *builtin_rows, &unasked,
                                     sizeof unasked};

void options_open(OptionSet *set, const char *program, const char *version, const char *summary) {
    *set = (OptionSet){.program = program, .called = program, .version = version, .summary = summary};
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

static bool is_name(const char *candidate, const char *name, size_t length) {
    return candidate && strlen(candidate) == length && strncmp(candidate, name, length) == 0;
}

/* The option whose name or alias is these `length` bytes; -1: none. */
static int find_name(const OptionSet *set, const char *name, size_t length) {
    for (int i = 0; i < set->count; i++)
        if (is_name(set->table[i].name, name, length) || is_name(set->table[i].alias, name, length)) return i;
    return -1;
}

int option_find(const OptionSet *set, const char *name) {
    return find_name(set, name, strlen(name));
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

bool options_on(const OptionSet *set, const char *name) {
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

static bool takes_value(const Option *option) {
    return option->kind != OPTION_FLAG && !option->bare;
}

Hint option_hint(const OptionSet *set, const char *text, bool file) {
    OWNED const char **names = memory_array((size_t)set->count, sizeof *names);
    int count = 0;
    for (int i = 0; i < set->count; i++)
        if (set->table[i].name && !(file && set->table[i].command_line_only))
            names[count++] = set->table[i].name;
    return file ? nearest_hint(text, "\"", "\"", names, count) : nearest_hint(text, "'--", "'", names, count);
}

/* ---- the command line ---- */

/* Whether a table of another program has an option of that name. */
static bool others_have(const OptionSet *set, const char *name) {
    for (const OptionTable *const *table = set->others; *table; table++)
        for (int i = 0; i < (*table)->count; i++)
            if ((*table)->rows[i].name && strcmp((*table)->rows[i].name, name) == 0) return true;
    return false;
}

/* A hint of all options that begin with the name; "" if there are none, or more than three. */
static Hint hint_longer(const OptionSet *set, const char *name) {
    enum { MOST = 3 };
    Hint hint = {"; did you mean "};
    int count = 0;
    for (int i = 0; i < set->count; i++) {
        const char *longer = set->table[i].name;
        size_t used = strlen(hint.text);
        if (!longer || strncmp(longer, name, strlen(name)) != 0) continue;
        snprintf(hint.text + used, sizeof hint.text - used, "%s'--%s'", count++ ? " or " : "", longer);
    }
    if (count == 0 || count > MOST) return (Hint){""};
    size_t used = strlen(hint.text);
    snprintf(hint.text + used, sizeof hint.text - used, "?");
    return hint;
}

/* Names the other program as this one was called: ./infer for ./train, fusebox-infer for fusebox-train. */
static Status fail_other(const OptionSet *set, const char *name) {
    const char *slash = strrchr(set->called, '/'), *own = strstr(slash ? slash : set->called, set->program);
    int before = own ? (int)(own - set->called) : 0;
    return fail(ERROR_USAGE, "--%s is an option of %.*s%s", name, before, set->called, set->other);
}

static Status fail_unknown(const OptionSet *set, const char *argument) {
    char name[128];
    const char *text = argument + strspn(argument, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    for (const OptionNote *note = set->absent; note && note->word; note++)
        if (strcmp(note->word, name) == 0)
            return fail(ERROR_USAGE, "there is no option --%s: %s", name, note->text);
    if (others_have(set, name)) return fail_other(set, name);
    Hint hint = hint_longer(set, name);
    if (!*hint.text) hint = option_hint(set, name, false);
    return fail(ERROR_USAGE, "unknown option '%.100s'%s", argument,
                *hint.text ? hint.text : "; --help lists them all");
}

static int find_letter(const OptionSet *set, char letter) {
    for (int i = 0; i < set->count; i++)
        if (set->table[i].letter == letter) return i;
    return -1;
}

/* Finds the option of an argument: a long name up to '=', or the letter at `letter`. A part of a name is not
 * accepted, because it could mean another option in a later version. */
static Status find(const OptionSet *set, const char *argument, const char *letter, int *found) {
    const char *name = argument + 2;
    *found = argument[1] == '-' ? find_name(set, name, strcspn(name, "=")) : find_letter(set, *letter);
    return *found < 0 ? fail_unknown(set, argument) : OK;
}

static Status take(OptionSet *set, int index, const char *value) {
    const Option *option = &set->table[index];
    if (!value) value = option->kind == OPTION_FLAG ? "1" : option->bare;
    set->source[index] = OPTION_SOURCE_COMMAND_LINE;
    return fail_at(option_store(set, index, value), "--%s=%.100s", option->name, value);
}

/* Reads one argument that begins with a dash, and its value, which may be the next argument. Letters
 * without values can be combined. `used` counts the arguments; `asked` receives the first builtin option,
 * which ends the parsing. Values are stored only if `takes` is set. */
static Status read_argument(OptionSet *set, char **argv, int left, bool takes, int *used, int *asked) {
    const char *argument = argv[0];
    bool is_long = argument[1] == '-';
    *used = 1;
    for (const char *letter = argument + 1; *letter; letter++) {
        int index = -1;
        TRY(find(set, argument, letter, &index));
        const Option *option = &set->table[index];
        const char *value = is_long ? strchr(argument, '=') : letter;
        if (value) value = is_long || letter[1] ? value + 1 : NULL;
        if (option >= &set->table[set->count - builtins.count]) {
            if (is_long && value) return fail(ERROR_USAGE, "--%s takes no value", option->name);
            *asked = index;
            return OK;
        }
        if (takes_value(option) && !value) {
            if (left < 2)
                return fail(ERROR_USAGE, "--%s needs a value: --%s=%s", option->name, option->name,
                            option->argument ? option->argument : option->choices);
            value = argv[1];
            *used = 2;
        }
        bool last = is_long || takes_value(option);
        if (takes) TRY(take(set, index, last ? value : NULL));
        if (last) return OK;
    }
    return OK;
}

static Status read_arguments(OptionSet *set, int argc, char **argv, bool takes, int *asked) {
    *asked = -1;
    for (int i = 1; i < argc && *asked < 0;) {
        const char *argument = argv[i];
        int used = 1;
        bool ends = strcmp(argument, "--") == 0;
        if (ends && i + 1 < argc) argument = argv[i + 1];
        if (argument[0] != '-' || argument[1] == 0 || (ends && i + 1 < argc))
            return fail(ERROR_USAGE, "unexpected argument '%.100s'; options are written --name=value",
                        argument);
        if (!ends) TRY(read_argument(set, argv + i, argc - i, takes, &used, asked));
        i += used;
    }
    return OK;
}

static Status answer(OptionSet *set, int asked) {
    Builtins *b = options_values(set, &builtins);
    *b = unasked;
    *(bool *)set->fields[asked] = true;
    if (b->help) options_print_help(set, stdout);
    if (b->usage) options_print_usage(set, stdout);
    if (b->version) printf("%s\n", set->version);
    if (b->manual) options_print_manual(set, stdout);
    if (b->bash) options_print_bash(set, stdout);
    if (b->zsh) options_print_zsh(set, stdout);
    return fflush(stdout) || ferror(stdout) ? fail(ERROR_FILE, "cannot write to standard output") : OK;
}

/* The first pass validates all arguments and looks for builtins, whose output shows the defaults. The
 * second stores the values. */
Status options_parse(OptionSet *set, int argc, char **argv, bool *printed) {
    int asked;
    *printed = false;
    if (argc > 0) set->called = argv[0];
    if (option_find(set, builtin_rows[1].name) < 0) options_add(set, &builtins, NULL);
    TRY(read_arguments(set, argc, argv, false, &asked));
    *printed = asked >= 0;
    return *printed ? answer(set, asked) : read_arguments(set, argc, argv, true, &asked);
}
