/* Evaluates expressions. */
#include "tasks/chat/jinja/run.h"

#include <math.h>
#include <string.h>

static Status evaluate_items(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue item;
    *value = jinja_list(&run->pool, node->kind == NODE_TUPLE ? VALUE_TUPLE : VALUE_LIST);
    for (const JinjaNode *next = node->items; next; next = next->next) {
        TRY(jinja_evaluate(run, scope, next, &item));
        jinja_add(&run->pool, *value, item);
    }
    return OK;
}

static Status evaluate_dict(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue key, item;
    *value = jinja_dict(&run->pool, VALUE_DICT);
    for (const JinjaNode *next = node->items; next; next = next->next->next) {
        TRY(jinja_evaluate(run, scope, next, &key));
        TRY(jinja_evaluate(run, scope, next->next, &item));
        if (!jinja_hashable(key))
            return jinja_error(run, "a %s as a key is not supported", jinja_kind_name(key.kind));
        jinja_put(&run->pool, value->dict, key, item);
    }
    return OK;
}

static Status evaluate_constant(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    (void)scope;
    *value = node->kind == NODE_CAPTURED ? run->captured : node->value;
    return OK;
}

static Status evaluate_name(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    static const char *const own[] = {"self", "super", "varargs", "kwargs", "caller"};
    const JinjaValue name = jinja_word(node->name), *found = NULL;
    for (; scope && !found; scope = scope->outer) found = jinja_find(&run->pool, &scope->variables, name);
    const JinjaBuiltin *function = found ? NULL : jinja_look_up(jinja_functions, node->name);
    *value = found      ? *found
             : function ? (JinjaValue){.kind = VALUE_FUNCTION, .function = function}
                        : jinja_undefined(node->name);
    for (int i = 0; !found && i < 5; i++)
        if (strcmp(node->name, own[i]) == 0) return jinja_error(run, "%s is not supported", own[i]);
    return OK;
}

/* ---- parts of a value ---- */

static Status evaluate_attribute(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue whole;
    TRY(jinja_evaluate(run, scope, node->first, &whole));
    run->line = node->line;
    return jinja_attribute(run, whole, node->name, value);
}

static Status evaluate_item(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue whole, key, bounds[3] = {jinja_none, jinja_none, jinja_none};
    TRY(jinja_evaluate(run, scope, node->first, &whole));
    if (node->second->kind != NODE_SLICE) {
        TRY(jinja_evaluate(run, scope, node->second, &key));
        run->line = node->line;
        return jinja_item(run, whole, key, value);
    }
    const JinjaNode *parts[] = {node->second->first, node->second->second, node->second->third};
    for (int i = 0; i < 3; i++)
        if (parts[i]) TRY(jinja_evaluate(run, scope, parts[i], &bounds[i]));
    run->line = node->line;
    return jinja_slice(run, whole, bounds, value);
}

/* ---- calls ---- */

/* The list already contains `first` arguments. */
static Status evaluate_arguments(JinjaRun *run, JinjaScope *scope, const JinjaNode *list, JinjaValue first,
                                 JinjaArguments *arguments) {
    int64_t count = first.kind != VALUE_MISSING;
    for (const JinjaNode *next = list; next; next = next->next) count++;
    arguments->values = jinja_take(&run->pool, (size_t)count * sizeof *arguments->values);
    arguments->names = jinja_take(&run->pool, (size_t)count * sizeof *arguments->names);
    arguments->count = 0;
    if (first.kind != VALUE_MISSING) arguments->values[arguments->count++] = first;
    for (const JinjaNode *next = list; next; next = next->next) {
        arguments->names[arguments->count] = next->name;
        TRY(jinja_evaluate(run, scope, next->first, &arguments->values[arguments->count++]));
    }
    return OK;
}

static Status evaluate_builtin(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaArguments arguments;
    JinjaValue subject;
    if (!node->builtin) return jinja_error(run, "there is no filter or test \"%.40s\"", node->name);
    TRY(jinja_evaluate(run, scope, node->first, &subject));
    TRY(evaluate_arguments(run, scope, node->items, subject, &arguments));
    run->line = node->line;
    return jinja_call(run, node->builtin, &arguments, value);
}

static Status evaluate_call(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaArguments arguments;
    JinjaValue callee, self = {0};
    TRY(jinja_evaluate(run, scope, node->first, &callee));
    if (callee.kind == VALUE_METHOD) self = callee.method->self;
    TRY(evaluate_arguments(run, scope, node->items, self, &arguments));
    run->line = node->line;
    if (callee.kind == VALUE_MACRO) return jinja_call_macro(run, callee.macro, &arguments, value);
    if (callee.kind == VALUE_METHOD) return jinja_call(run, callee.method->builtin, &arguments, value);
    if (callee.kind == VALUE_FUNCTION) return jinja_call(run, callee.function, &arguments, value);
    if (callee.kind == VALUE_UNDEFINED)
        return jinja_error(run, "%.40s is undefined, and cannot be called", callee.bytes);
    return jinja_error(run, "a %s cannot be called", jinja_kind_name(callee.kind));
}

/* The value of parameter `name` at position `place`; missing if it was not given. */
static JinjaValue take_argument(const JinjaArguments *given, const char *name, size_t length, int64_t place,
                                int64_t *taken) {
    bool by_name = *name != '/';
    for (int64_t i = 0; i < given->count; i++) {
        const char *called = given->names[i];
        bool matches =
            called ? by_name && strlen(called) == length && memcmp(called, name, length) == 0 : i == place;
        if (!matches) continue;
        ++*taken;
        return given->values[i];
    }
    return (JinjaValue){0};
}

enum { PARAMETERS_MOST = 8 };

Status jinja_call(JinjaRun *run, const JinjaBuiltin *builtin, const JinjaArguments *given,
                  JinjaValue *value) {
    JinjaValue values[PARAMETERS_MOST];
    JinjaArguments bound = {.values = values, .variant = builtin->variant};
    int64_t taken = 0;
    if (!builtin->call) return jinja_error(run, "%s is not supported", builtin->name);
    if (given->count && given->values[0].kind == VALUE_STRING)
        TRY(jinja_step(run, given->values[0].length >> 8));
    TRY(jinja_step(run, 1));
    if (!builtin->parameters) {
        bound = *given;
        bound.variant = builtin->variant;
        return builtin->call(run, &bound, value);
    }
    for (const char *at = builtin->parameters; *at; at += *at == ',') {
        size_t length = strcspn(at, ",?");
        bool optional = at[length] == '?';
        values[bound.count] = take_argument(given, at, length, bound.count, &taken);
        if (values[bound.count].kind == VALUE_MISSING && !optional)
            return jinja_error(run, "%s lacks its argument %.*s", builtin->name, (int)length, at);
        bound.count++;
        at += length + optional;
    }
    if (taken != given->count)
        return jinja_error(run, "%s has an argument that it does not take", builtin->name);
    return builtin->call(run, &bound, value);
}

/* ---- operators ---- */

static Status evaluate_unary(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue operand;
    int64_t whole;
    double real;
    TRY(jinja_evaluate(run, scope, node->first, &operand));
    run->line = node->line;
    if (node->kind == NODE_NOT)
        *value = jinja_bool(!jinja_true(operand));
    else if (jinja_whole(operand, &whole) && whole > INT64_MIN)
        *value = jinja_int(node->kind == NODE_NEGATIVE ? -whole : whole);
    else if (operand.kind == VALUE_FLOAT && jinja_number(operand, &real))
        *value = jinja_float(node->kind == NODE_NEGATIVE ? -real : real);
    else
        return jinja_error(run, "a %s has no sign", jinja_kind_name(operand.kind));
    return OK;
}

static Status evaluate_choice(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue condition;
    TRY(jinja_evaluate(run, scope, node->first, &condition));
    bool truth = jinja_true(condition), both = node->kind == NODE_AND;
    *value = condition;
    if (node->kind != NODE_CONDITION)
        return truth == both ? jinja_evaluate(run, scope, node->second, value) : OK;
    const JinjaNode *chosen = truth ? node->second : node->third;
    *value = jinja_undefined("a condition without else");
    return chosen ? jinja_evaluate(run, scope, chosen, value) : OK;
}

static Status evaluate_binary(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue a, b;
    TRY(jinja_evaluate(run, scope, node->first, &a));
    TRY(jinja_evaluate(run, scope, node->second, &b));
    run->line = node->line;
    return jinja_binary(run, node->sign, a, b, value);
}

static Status evaluate_concat(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaText text = {.pool = &run->pool};
    for (const JinjaNode *next = node->items; next; next = next->next) {
        JinjaValue part;
        TRY(jinja_evaluate(run, scope, next, &part));
        TRY(jinja_text_of(run, part, &part));
        jinja_write(&text, part.bytes, part.length);
    }
    *value = jinja_written(&text);
    return OK;
}

static Status evaluate_compare(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    JinjaValue left, right;
    bool truth = true;
    TRY(jinja_evaluate(run, scope, node->first, &left));
    for (const JinjaNode *next = node->items; truth && next; next = next->next, left = right) {
        TRY(jinja_evaluate(run, scope, next->first, &right));
        run->line = next->line;
        TRY(jinja_compared(run, next->sign, left, right, &truth));
    }
    *value = jinja_bool(truth);
    return OK;
}

Status jinja_evaluate(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaValue *value) {
    static Status (*const kinds[NODE_KINDS])(JinjaRun *, JinjaScope *, const JinjaNode *, JinjaValue *) = {
        [NODE_CONSTANT] = evaluate_constant,   [NODE_CAPTURED] = evaluate_constant,
        [NODE_NAME] = evaluate_name,           [NODE_LIST] = evaluate_items,
        [NODE_TUPLE] = evaluate_items,         [NODE_DICT] = evaluate_dict,
        [NODE_ATTRIBUTE] = evaluate_attribute, [NODE_ITEM] = evaluate_item,
        [NODE_CALL] = evaluate_call,           [NODE_FILTER] = evaluate_builtin,
        [NODE_TEST] = evaluate_builtin,        [NODE_NOT] = evaluate_unary,
        [NODE_NEGATIVE] = evaluate_unary,      [NODE_POSITIVE] = evaluate_unary,
        [NODE_AND] = evaluate_choice,          [NODE_OR] = evaluate_choice,
        [NODE_BINARY] = evaluate_binary,       [NODE_CONCAT] = evaluate_concat,
        [NODE_COMPARE] = evaluate_compare,     [NODE_CONDITION] = evaluate_choice,
    };
    run->line = node->line;
    TRY(jinja_step(run, 1));
    if (!jinja_enter(&run->pool)) return jinja_step(run, 0);
    Status status = kinds[node->kind](run, scope, node, value);
    jinja_leave(&run->pool);
    return status;
}
