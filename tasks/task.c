#include "tasks/task.h"

#include "base/files.h"
#include "base/version.h"
#include "run/manual.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const TaskRow *const rows[] = {
#define TASK(name) &task_##name,
#include "tasks/tasks.def"
#undef TASK
};
enum { TASKS = sizeof rows / sizeof *rows, MEMBERS = 16, LIST = 256 };

/* Loops over the commands of all tasks. */
#define EACH_COMMAND(row, command)                                                                           \
    for (const TaskRow *const *row = rows; row < rows + TASKS; row++)                                        \
        for (const Command *command = (*row)->commands; command && command->selector; command++)

static bool same(const char *one, const char *other) {
    return strcmp(one, other) == 0;
}

/* Whether `name` is in the blank-separated list `names`. */
static bool listed(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
    return false;
}

/* ---- lists as text ---- */

typedef struct {
    const char *members[MEMBERS];
    int count;
} List;

/* Adds a member unless it is in the list. */
static void add(List *list, const char *member) {
    for (int i = 0; i < list->count; i++)
        if (same(list->members[i], member)) return;
    if (list->count < MEMBERS) list->members[list->count++] = member;
}

/* "a", "a or b", "a, b or c", each preceded by `mark`. */
static const char *as_list(const List *list, const char *mark, char text[LIST]) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < list->count && used < LIST; i++)
        used += (size_t)snprintf(text + used, LIST - used, "%s%s%s",
                                 i == 0                 ? ""
                                 : i + 1 == list->count ? " or "
                                                        : ", ",
                                 mark, list->members[i]);
    return text;
}

/* ---- train ---- */

Status task_read_train(int argc, char **argv, TrainOptions *options, OptionSet *set, bool *done) {
    const OptionTable **others = set->others;
    options_open(set, "train", FUSEBOX_VERSION, "Trains a Transformer on text or pictures.");
    set->manual = train_manual;
    set->absent = train_absent;
    set->other = "infer";
    *others++ = &infer_options_first;
    *others++ = &infer_options_last;
    options_add(set, &train_options_table, options);
    for (int i = 0; i < TASKS; i++) {
        if (rows[i]->train) options_add(set, rows[i]->train, NULL);
        if (rows[i]->infer) *others++ = rows[i]->infer;
    }
    TRY(train_options_read(argc, argv, options, set, done));
    for (int i = 0; i < TASKS && !*done; i++)
        if (rows[i]->check) TRY(rows[i]->check(set));
    return OK;
}

static bool looks_at(const TaskRow *row, const char *name) {
    for (int i = 0; row->train && i < row->train->count; i++)
        if (row->train->rows[i].name && same(row->train->rows[i].name, name)) return true;
    return row->reads && listed(row->reads, name);
}

/* Whether another task of the same models, which accepts any data, reads the option, too. */
static bool covered(const TaskRow *row, const char *name) {
    bool found = false;
    for (int i = 0; i < TASKS && row->data; i++)
        found |= rows[i]->trains == row->trains && !rows[i]->data && looks_at(rows[i], name);
    return found;
}

/* Turning off something that this task does not have is not an error. */
static Status check_option(const TaskRow *row, const OptionSet *set, const char *name) {
    List readers = {0};
    char text[LIST];
    if (looks_at(row, name)) return OK;
    for (int i = 0; i < TASKS; i++)
        if (looks_at(rows[i], name) && !covered(rows[i], name))
            add(&readers, rows[i]->data ? rows[i]->data : rows[i]->models);
    if (!readers.count) return OK;
    return option_needs(set, name, options_zero(set, name), as_list(&readers, "", text));
}

Status task_find(const Config *config, const TrainOptions *options, const OptionSet *set,
                 const TaskRow **row) {
    *row = NULL;
    for (int i = 0; i < TASKS; i++)
        if (rows[i]->trains == config->architecture->task &&
            (rows[i]->takes ? rows[i]->takes(options) : !*row))
            *row = rows[i];
    assert(*row);
    for (int i = 0; i < set->count; i++)
        if (set->table[i].name) TRY(check_option(*row, set, set->table[i].name));
    return OK;
}

/* ---- infer ---- */

const char *task_selector(const OptionSet *set) {
    EACH_COMMAND(row, command) {
        if (options_on(set, command->selector)) return command->selector;
    }
    return NULL;
}

/* Whether the command of `selector`, for some model, reads the option. */
static bool reads(const char *selector, const Command *otherwise, const char *name) {
    if (!selector) return listed(otherwise->reads, name);
    EACH_COMMAND(row, command) {
        if (same(command->selector, selector) && listed(command->reads, name)) return true;
    }
    return false;
}

static Status check_selectors(const OptionSet *set, const char *selector) {
    EACH_COMMAND(row, command) {
        const Option *option = options_find(set, command->selector);
        if (!selector && option->kind == OPTION_TEXT && options_given(set, command->selector))
            return fail(ERROR_USAGE, "--%s is empty", command->selector);
        EACH_COMMAND(other_row, other) {
            if (!same(command->selector, other->selector))
                TRY(options_exclude(set, command->selector, other->selector));
        }
    }
    return OK;
}

/* An option of another command would be silently ignored, so it is refused. */
static Status check_read(const OptionSet *set, const char *selector, const Command *otherwise,
                         const char *name) {
    List selectors = {0};
    char text[LIST], alone[LIST];
    if (reads(selector, otherwise, name)) return OK;
    if (listed(otherwise->reads, name)) return options_exclude(set, name, selector);
    EACH_COMMAND(row, command) {
        if (listed(command->reads, name)) add(&selectors, command->selector);
    }
    if (!selectors.count) return OK;
    const Option *option = options_find(set, selectors.members[0]);
    if (selectors.count == 1 && option->argument) {
        snprintf(alone, sizeof alone, "%s=%s", option->name, option->argument);
        selectors.members[0] = alone;
    }
    return option_needs(set, name, false, as_list(&selectors, "--", text));
}

static Status check_commands(const InferOptions *o, const OptionSet *set, const Command *otherwise) {
    const char *selector = task_selector(set);
    TRY(check_selectors(set, selector));
    for (int i = 0; i < set->count; i++)
        if (set->table[i].name) TRY(check_read(set, selector, otherwise, set->table[i].name));
    TRY(infer_options_check(o, set));
    EACH_COMMAND(row, command) {
        if (selector && same(command->selector, selector) && command->check) TRY(command->check(o, set));
    }
    return OK;
}

Status task_read_infer(int argc, char **argv, const Command *otherwise, InferOptions *o, OptionSet *set,
                       bool *done) {
    options_open(set, "infer", FUSEBOX_VERSION,
                 "Runs a Transformer: profiles it, generates text, evaluates it.");
    const OptionTable **others = set->others;
    set->manual = infer_manual;
    set->absent = infer_absent;
    set->other = "train";
    *others++ = &train_options_table;
    options_add(set, &infer_options_first, o);
    for (int i = 0; i < TASKS; i++) {
        if (rows[i]->infer) options_add(set, rows[i]->infer, NULL);
        if (rows[i]->train) *others++ = rows[i]->train;
    }
    options_add(set, &infer_options_last, o);
    TRY(infer_options_read(argc, argv, o, set, done));
    if (*done) return OK;
    TRY(check_commands(o, set, otherwise));
    *done = o->print_config;
    return o->print_config ? options_print(set) : OK;
}

/* Refuses options that this model does not use, although the same command for another model does. */
static Status check_models(const OptionSet *set, const Command *command) {
    for (int i = 0; i < set->count; i++) {
        List models = {0};
        char text[LIST];
        const char *name = set->table[i].name;
        if (!name || listed(command->reads, name)) continue;
        EACH_COMMAND(row, other) {
            if (same(other->selector, command->selector) && listed(other->reads, name))
                add(&models, (*row)->models);
        }
        if (models.count) TRY(option_needs(set, name, false, as_list(&models, "", text)));
    }
    return OK;
}

Status task_find_command(const Config *config, const InferOptions *o, const OptionSet *set,
                         const Command *otherwise, const Command **command) {
    const char *selector = task_selector(set);
    List models = {0}, others = {0};
    char needed[LIST], possible[LIST];
    *command = otherwise;
    if (!selector) return OK;
    EACH_COMMAND(row, one) {
        bool its = (*row)->trains == config->architecture->task;
        *command = one;
        if (its && same(one->selector, selector)) return check_models(set, one);
        if (same(one->selector, selector)) add(&models, (*row)->models);
        if (its) add(&others, one->selector);
    }
    return fail(ERROR_USAGE, "--%s needs %s, but %s is %s: see %s", selector, as_list(&models, "", needed),
                o->model, config->architecture->description, as_list(&others, "--", possible));
}
