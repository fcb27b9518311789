/* Executes statements. */
#include "base/memory.h"
#include "tasks/chat/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

Status jinja_error(const JinjaRun *run, const char *format, ...) {
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fail(ERROR_FORMAT, "line %d: %s", run->line, message);
}

Status jinja_step(JinjaRun *run, int64_t steps) {
    if (jinja_spend(&run->pool, steps)) return OK;
    return jinja_error(run, "the template takes too many steps, too much memory or too deep a recursion");
}

const JinjaBuiltin *jinja_look_up(const JinjaBuiltin *table, const char *name) {
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

static void set(JinjaRun *run, JinjaScope *scope, const char *name, JinjaValue value) {
    jinja_put(&run->pool, &scope->variables, jinja_word(name), value);
}

static JinjaScope *open_scope(JinjaRun *run, JinjaScope *outer) {
    JinjaScope *scope = jinja_take(&run->pool, sizeof *scope);
    scope->outer = outer;
    return scope;
}

/* ---- assignments ---- */

static Status assign_member(JinjaRun *run, JinjaScope *scope, const JinjaNode *target, JinjaValue value) {
    JinjaValue whole;
    TRY(jinja_evaluate(run, scope, target->first, &whole));
    run->line = target->line;
    if (whole.kind != VALUE_NAMESPACE || target->name[0] == '_')
        return jinja_error(run, "%.40s can only be set on a namespace", target->name);
    jinja_put(&run->pool, whole.dict, jinja_word(target->name), value);
    return OK;
}

static Status assign(JinjaRun *run, JinjaScope *scope, const JinjaNode *target, JinjaValue value) {
    JinjaList items;
    int64_t count = 0;
    if (target->kind == NODE_MEMBER) return assign_member(run, scope, target, value);
    if (target->kind == NODE_NAME) {
        set(run, scope, target->name, value);
        return OK;
    }
    TRY(jinja_iterate(run, value, &items));
    for (const JinjaNode *item = target->items; item; item = item->next) count++;
    if (count != items.count)
        return jinja_error(run, "%lld values for %lld names", (long long)items.count, (long long)count);
    count = 0;
    for (const JinjaNode *item = target->items; item; item = item->next)
        TRY(assign(run, scope, item, items.items[count++]));
    return OK;
}

static Status execute_set(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaControl *control) {
    JinjaValue value;
    (void)control;
    TRY(jinja_evaluate(run, scope, node->second, &value));
    run->line = node->line;
    return assign(run, scope, node->first, value);
}

/* ---- output ---- */

static Status write(JinjaRun *run, JinjaValue value) {
    JinjaValue text;
    TRY(jinja_text_of(run, value, &text));
    jinja_write(run->out, text.bytes, text.length);
    return jinja_step(run, text.length >> 8);
}

static Status execute_output(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaControl *control) {
    JinjaValue value = node->value;
    (void)control;
    if (node->kind == NODE_OUTPUT) TRY(jinja_evaluate(run, scope, node->first, &value));
    return write(run, value);
}

/* Captures the output of the body, in a separate scope. */
static Status capture(JinjaRun *run, JinjaScope *scope, const JinjaNode *body, JinjaValue *value) {
    JinjaText text = {.pool = &run->pool}, *out = run->out;
    JinjaControl control = CONTROL_NONE;
    run->out = &text;
    Status status = jinja_execute(run, open_scope(run, scope), body, &control);
    run->out = out;
    *value = jinja_written(&text);
    return status;
}

static Status execute_capture(JinjaRun *run, JinjaScope *scope, const JinjaNode *node,
                              JinjaControl *control) {
    JinjaValue value;
    (void)control;
    TRY(capture(run, scope, node->body, &run->captured));
    TRY(jinja_evaluate(run, scope, node->second, &value));
    return node->kind == NODE_FILTERED ? write(run, value) : assign(run, scope, node->first, value);
}

/* Marks the output as the assistant's. transformers knows its position in the rendering only if it is not
 * captured. */
static Status execute_generation(JinjaRun *run, JinjaScope *scope, const JinjaNode *node,
                                 JinjaControl *control) {
    JinjaValue text;
    (void)control;
    TRY(capture(run, scope, node->body, &text));
    int64_t begin = run->text.count;
    jinja_write(run->out, text.bytes, text.length);
    run->hidden |= run->out != &run->text;
    if (run->hidden) return OK;
    run->spans = memory_grow(run->spans, &run->spans_room, run->spans_count + 1, sizeof *run->spans);
    run->spans[run->spans_count][0] = begin;
    run->spans[run->spans_count++][1] = run->text.count;
    return jinja_step(run, 1);
}

/* ---- conditions and loops ---- */

static Status execute_if(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaControl *control) {
    JinjaValue condition;
    for (;;) {
        TRY(jinja_evaluate(run, scope, node->first, &condition));
        if (jinja_true(condition)) return jinja_execute(run, scope, node->body, control);
        bool alone = node->other && node->other->kind == NODE_IF && !node->other->next; // elif
        if (!alone) return jinja_execute(run, scope, node->other, control);
        node = node->other;
    }
}

static Status execute_with(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaControl *control) {
    JinjaScope *inner = open_scope(run, scope);
    for (const JinjaNode *next = node->items; next; next = next->next) {
        JinjaValue value;
        TRY(jinja_evaluate(run, scope, next->second, &value));
        TRY(assign(run, inner, next->first, value));
    }
    return jinja_execute(run, inner, node->body, control);
}

/* The next item that satisfies the loop's condition, or a missing value. */
static Status find_next(JinjaRun *run, JinjaLoop *loop, JinjaValue *item) {
    const JinjaNode *condition = loop->passed ? NULL : loop->node->third;
    JinjaValue passes;
    while (loop->next < loop->list.count) {
        *item = loop->list.items[loop->next++];
        if (!condition) return OK;
        TRY(assign(run, loop->scope, loop->node->first, *item));
        TRY(jinja_evaluate(run, loop->scope, condition, &passes));
        if (jinja_true(passes)) return OK;
    }
    *item = (JinjaValue){0};
    return OK;
}

static Status peek(JinjaRun *run, JinjaLoop *loop) {
    if (!loop->peeked) TRY(find_next(run, loop, &loop->following));
    loop->peeked = true;
    return OK;
}

/* Counts all items that satisfy the condition, evaluated now for all of them. */
static Status loop_length(JinjaRun *run, JinjaLoop *loop, int64_t *length) {
    JinjaValue rest = jinja_list(&run->pool, VALUE_LIST), item;
    int64_t waiting = loop->peeked && loop->following.kind != VALUE_MISSING;
    while (!loop->passed) {
        TRY(find_next(run, loop, &item));
        if (item.kind == VALUE_MISSING) break;
        jinja_add(&run->pool, rest, item);
        TRY(jinja_step(run, 1));
    }
    if (!loop->passed) loop->list = *rest.list, loop->next = 0;
    loop->passed = true;
    *length = loop->index + 1 + waiting + loop->list.count - loop->next;
    return OK;
}

Status jinja_loop_attribute(JinjaRun *run, JinjaLoop *loop, const char *name, JinjaValue *result) {
    int64_t length = 0;
    bool counts = strcmp(name, "length") == 0 || strncmp(name, "revindex", 8) == 0;
    if (strcmp(name, "last") == 0 || strcmp(name, "nextitem") == 0) TRY(peek(run, loop));
    if (counts) TRY(loop_length(run, loop, &length));
    const struct {
        const char *name;
        JinjaValue value;
    } attributes[] = {
        {"index", jinja_int(loop->index + 1)},
        {"index0", jinja_int(loop->index)},
        {"first", jinja_bool(loop->index == 0)},
        {"last", jinja_bool(loop->following.kind == VALUE_MISSING)},
        {"length", jinja_int(length)},
        {"revindex", jinja_int(length - loop->index)},
        {"revindex0", jinja_int(length - loop->index - 1)},
        {"previtem", loop->previous},
        {"nextitem", loop->following.kind == VALUE_MISSING ? jinja_undefined("nextitem") : loop->following},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (strcmp(attributes[i].name, name) == 0) {
            *result = attributes[i].value;
            return OK;
        }
    return jinja_error(run, "loop.%.40s is not supported", name);
}

/* Runs the loop over its items; *went is set if there was at least one. */
static Status go_through(JinjaRun *run, JinjaScope *scope, JinjaLoop *loop, bool *went) {
    JinjaScope *inner = open_scope(run, scope);
    JinjaControl control = CONTROL_NONE;
    for (; control != CONTROL_BREAK; *went = true) {
        TRY(peek(run, loop));
        if (loop->following.kind == VALUE_MISSING) return OK;
        loop->peeked = false;
        loop->previous = *went ? loop->item : jinja_undefined("previtem");
        loop->item = loop->following;
        loop->index += *went;
        inner->variables.count = 0;
        set(run, inner, "loop", (JinjaValue){.kind = VALUE_LOOP, .loop = loop});
        TRY(assign(run, inner, loop->node->first, loop->item));
        TRY(jinja_execute(run, inner, loop->node->body, &control));
    }
    return OK;
}

static Status execute_for(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaControl *control) {
    JinjaLoop *loop = jinja_take(&run->pool, sizeof *loop);
    JinjaValue items;
    bool went = false;
    *loop = (JinjaLoop){.node = node, .scope = open_scope(run, scope)};
    TRY(jinja_evaluate(run, scope, node->second, &items));
    run->line = node->line;
    TRY(jinja_iterate(run, items, &loop->list));
    TRY(go_through(run, scope, loop, &went));
    if (items.kind == VALUE_GENERATOR) items.list->broken = loop->next < loop->list.count;
    return went ? OK : jinja_execute(run, open_scope(run, scope), node->other, control);
}

static Status execute_jump(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaControl *control) {
    (void)run, (void)scope;
    *control = node->kind == NODE_BREAK ? CONTROL_BREAK : CONTROL_CONTINUE;
    return OK;
}

/* ---- macros ---- */

static Status execute_macro(JinjaRun *run, JinjaScope *scope, const JinjaNode *node, JinjaControl *control) {
    JinjaMacro *macro = jinja_take(&run->pool, sizeof *macro);
    (void)control;
    *macro = (JinjaMacro){node, scope};
    set(run, scope, node->name, (JinjaValue){.kind = VALUE_MACRO, .macro = macro});
    return OK;
}

/* The argument with this position and name; missing if there is none. */
static JinjaValue argument(const JinjaArguments *given, const char *name, int64_t place, int64_t *taken) {
    for (int64_t i = 0; i < given->count; i++)
        if (given->names[i] ? strcmp(given->names[i], name) == 0 : i == place) {
            ++*taken;
            return given->values[i];
        }
    return (JinjaValue){0};
}

Status jinja_call_macro(JinjaRun *run, const JinjaMacro *macro, const JinjaArguments *given,
                        JinjaValue *value) {
    JinjaScope *scope = open_scope(run, macro->scope);
    int64_t place = 0, taken = 0;
    for (const JinjaNode *next = macro->node->items; next; next = next->next, place++) {
        JinjaValue passed = argument(given, next->name, place, &taken);
        bool missing = passed.kind == VALUE_MISSING;
        if (missing) passed = jinja_undefined(next->name);
        if (missing && next->first) TRY(jinja_evaluate(run, scope, next->first, &passed));
        set(run, scope, next->name, passed);
    }
    if (taken != given->count)
        return jinja_error(run, "%s has an argument that it does not take", macro->node->name);
    return capture(run, scope, macro->node->body, value);
}

/* ---- a list of statements ---- */

Status jinja_execute(JinjaRun *run, JinjaScope *scope, const JinjaNode *list, JinjaControl *control) {
    static Status (*const kinds[NODE_KINDS])(JinjaRun *, JinjaScope *, const JinjaNode *, JinjaControl *) = {
        [NODE_TEXT] = execute_output,      [NODE_OUTPUT] = execute_output,
        [NODE_FOR] = execute_for,          [NODE_IF] = execute_if,
        [NODE_SET] = execute_set,          [NODE_SET_BLOCK] = execute_capture,
        [NODE_FILTERED] = execute_capture, [NODE_WITH] = execute_with,
        [NODE_MACRO] = execute_macro,      [NODE_GENERATION] = execute_generation,
        [NODE_BREAK] = execute_jump,       [NODE_CONTINUE] = execute_jump,
    };
    *control = CONTROL_NONE;
    for (; list && *control == CONTROL_NONE; list = list->next) {
        run->line = list->line;
        if (!jinja_enter(&run->pool)) return jinja_step(run, 0);
        Status status = kinds[list->kind](run, scope, list, control);
        jinja_leave(&run->pool);
        if (status) return status;
    }
    return OK;
}
