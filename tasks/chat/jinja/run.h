/* run: what a template is rendered with, and the tables of what it may call. */
#pragma once

#include "base/status.h"
#include "tasks/chat/jinja/node.h"
#include "tasks/chat/jinja/value.h"

#include <time.h>

/* Variables by their names; a loop, a macro and some blocks have scopes of their own. */
typedef struct JinjaScope {
    struct JinjaScope *outer; // NULL: what the caller gave
    JinjaDict variables;
} JinjaScope;

typedef struct JinjaMacro {
    const JinjaNode *node;
    JinjaScope *scope; // that it was written in
} JinjaMacro;

typedef struct JinjaMethod {
    const struct JinjaBuiltin *builtin;
    JinjaValue self;
} JinjaMethod;

/* A `for` loop, which looks one item ahead where its template asks for that. */
typedef struct JinjaLoop {
    const JinjaNode *node;
    JinjaScope *scope; // of the condition
    JinjaList list;    // what is gone through
    int64_t next;      // in the list
    int64_t index;     // of the present item among those that pass the condition
    JinjaValue previous, item, following;
    bool peeked; // `following` is the next, or missing where there is none
    bool passed; // what is left in the list passes the condition
} JinjaLoop;

typedef struct {
    JinjaPool pool;
    const struct tm *now;
    int line;            // of what is being evaluated
    JinjaText *out;      // where text goes: the rendering, or what captures it
    JinjaText text;      // the rendering
    JinjaValue captured; // of NODE_CAPTURED
    int64_t (*spans)[2]; // of the rendering's bytes: what `generation` blocks have printed
    int64_t spans_count, spans_room;
    bool hidden; // such a block was in what captures it: where its text went is not known
} JinjaRun;

/* The arguments of a call. A builtin that names its parameters has as many values as those, missing ones
 * included, and no names. */
typedef struct {
    JinjaValue *values;
    const char **names; // NULL for those that were given by position
    int64_t count;
} JinjaArguments;

/* What a template may call: filters and tests, whose first argument is what stands before them, methods,
 * whose first is the object, and functions. `parameters` are names separated by commas; behind one that
 * ends in "?" all may be missing; one that begins with "/" is not given by its name. NULL: the arguments
 * as they are. */
typedef struct JinjaBuiltin {
    const char *name, *parameters;
    Status (*call)(JinjaRun *run, const JinjaArguments *arguments, JinjaValue *result); // NULL: not supported
} JinjaBuiltin;

extern const JinjaBuiltin jinja_filters[], jinja_tests[], jinja_functions[]; // each ends with a NULL name
/* The methods of a kind of value, and other attributes that Python has there. */
extern const JinjaBuiltin jinja_string_methods[], jinja_dict_methods[], jinja_list_methods[];
const JinjaBuiltin *jinja_look_up(const JinjaBuiltin *table, const char *name);

/* An error of the template, on the line that is being evaluated. */
CHECKED Status jinja_error(const JinjaRun *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts steps, and refuses where too many were made, or too much memory was taken. */
CHECKED Status jinja_step(JinjaRun *run, int64_t steps);

/* What ends a list of statements before its end. */
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

/* What a generator does when it is gone through: call(run, items, arguments, list) adds to `list`. */
typedef struct JinjaPending {
    Status (*call)(JinjaRun *run, JinjaList items, const JinjaArguments *arguments, JinjaValue list);
    JinjaValue source;
    JinjaArguments arguments;
} JinjaPending;
CHECKED Status jinja_resolve(JinjaRun *run, JinjaList *generator);

/* What iterating gives; a generator gives it once. */
CHECKED Status jinja_iterate(JinjaRun *run, JinjaValue value, JinjaList *items);
CHECKED Status jinja_length(JinjaRun *run, JinjaValue value, int64_t *length);
CHECKED Status jinja_text_of(JinjaRun *run, JinjaValue value, JinjaValue *text); // str()
