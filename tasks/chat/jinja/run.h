/* run: the state of a rendering, and the tables of builtins. */
#pragma once

#include "base/status.h"
#include "tasks/chat/jinja/node.h"
#include "tasks/chat/jinja/text.h"
#include "tasks/chat/jinja/value.h"

#include <time.h>

/* Variables by name; loops, macros and some blocks have their own scopes. */
typedef struct JinjaScope {
    struct JinjaScope *outer; // NULL: the caller's variables
    JinjaDict variables;
} JinjaScope;

typedef struct JinjaMacro {
    const JinjaNode *node;
    JinjaScope *scope; // the scope in which the macro was defined
} JinjaMacro;

typedef struct JinjaMethod {
    const struct JinjaBuiltin *builtin;
    JinjaValue self;
} JinjaMethod;

/* A `for` loop. It looks one item ahead only if its template needs that. */
typedef struct JinjaLoop {
    const JinjaNode *node;
    JinjaScope *scope; // scope of the condition
    JinjaList list;    // the iterated items
    int64_t next;      // index of the next item in `list`
    int64_t index;     // index of the current item among those that satisfy the condition
    JinjaValue previous, item, following;
    bool peeked; // `following` is the next item, or missing at the end
    bool passed; // the remaining items satisfy the condition
} JinjaLoop;

typedef struct {
    JinjaPool pool;
    const struct tm *now;
    int line;            // line of the expression being evaluated
    JinjaText *out;      // current output: the rendering, or a capture
    JinjaText text;      // the rendering
    JinjaValue captured; // value of NODE_CAPTURED
    int64_t (*spans)[2]; // bytes of the rendering that `generation` blocks have printed
    int64_t spans_count, spans_room;
    bool hidden; // such a block was captured: the position of its text is unknown
} JinjaRun;

/* The arguments of a call. A builtin that names its parameters gets as many values, including missing ones,
 * and no names. */
typedef struct {
    JinjaValue *values;
    const char **names; // NULL for positional ones
    int64_t count;
    int variant; // the builtin's
} JinjaArguments;

/* A builtin: a filter or test, whose first argument is the value before it; a method, whose first argument is
 * the object; or a function. `parameters` are comma-separated names; after one that ends in "?" all are
 * optional; one that begins with "/" is positional only. NULL: the arguments are passed unchanged. */
typedef struct JinjaBuiltin {
    const char *name, *parameters;
    Status (*call)(JinjaRun *run, const JinjaArguments *arguments, JinjaValue *result); // NULL: not supported
    int variant; // selects one of the builtins that share a function
} JinjaBuiltin;

extern const JinjaBuiltin jinja_filters[], jinja_tests[], jinja_functions[]; // each ends with a NULL name
/* The methods of a kind of value, and Python's other attributes of it. */
extern const JinjaBuiltin jinja_string_methods[], jinja_dict_methods[], jinja_list_methods[];
const JinjaBuiltin *jinja_look_up(const JinjaBuiltin *table, const char *name);

/* An error of the template, at the line that is being evaluated. */
CHECKED Status jinja_error(const JinjaRun *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts steps, and fails if too many were made or too much memory was used. */
CHECKED Status jinja_step(JinjaRun *run, int64_t steps);

/* Reasons to end a list of statements early. */
typedef enum { CONTROL_NONE, CONTROL_BREAK, CONTROL_CONTINUE } JinjaControl;
CHECKED Status jinja_execute(JinjaRun *run, JinjaScope *scope, const JinjaNode *list, JinjaControl *control);
CHECKED Status jinja_evaluate(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value);
CHECKED Status jinja_call_macro(JinjaRun *run, const JinjaMacro *macro, const JinjaArguments *arguments,
                                JinjaValue *value);
CHECKED Status jinja_call(JinjaRun *run, const JinjaBuiltin *builtin, const JinjaArguments *arguments,
                          JinjaValue *value);
CHECKED Status jinja_binary(JinjaRun *run, JinjaSign sign, JinjaValue a, JinjaValue b, JinjaValue *value);
CHECKED Status jinja_compared(JinjaRun *run, JinjaSign sign, JinjaValue a, JinjaValue b, bool *truth);

/* value.name, value[key], value[from:to:step]. */
CHECKED Status jinja_attribute(JinjaRun *run, JinjaValue value, const char *name, JinjaValue *result);
CHECKED Status jinja_item(JinjaRun *run, JinjaValue value, JinjaValue key, JinjaValue *result);
CHECKED Status jinja_slice(JinjaRun *run, JinjaValue value, const JinjaValue bounds[3], JinjaValue *result);
CHECKED Status jinja_loop_attribute(JinjaRun *run, JinjaLoop *loop, const char *name, JinjaValue *result);

/* A generator's function, run when it is iterated: call(run, items, arguments, list) appends to `list`. */
typedef struct JinjaPending {
    Status (*call)(JinjaRun *run, JinjaList items, const JinjaArguments *arguments, JinjaValue list);
    JinjaValue source;
    JinjaArguments arguments;
} JinjaPending;
CHECKED Status jinja_resolve(JinjaRun *run, JinjaList *generator);

/* The items of an iteration; a generator can be iterated only once. */
CHECKED Status jinja_iterate(JinjaRun *run, JinjaValue value, JinjaList *items);
CHECKED Status jinja_length(JinjaRun *run, JinjaValue value, int64_t *length);
CHECKED Status jinja_text_of(JinjaRun *run, JinjaValue value, JinjaValue *text); // str()

JinjaValue jinja_items(JinjaRun *run, const JinjaDict *dict); // a view of the pairs
/* jinja_change_case, with an error for letters that it cannot change. */
CHECKED Status jinja_write_case(JinjaRun *run, JinjaText *text, JinjaValue string, JinjaCase to);
