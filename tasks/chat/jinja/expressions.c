/* Parses expressions, from the lowest precedence to the highest. */
#include "tasks/chat/jinja/node.h"
#include "tasks/chat/jinja/run.h"

#include <string.h>

enum { DEPTH_MOST = 100 };

JinjaNode *jinja_node(const JinjaTokens *t, JinjaNodeKind kind) {
    JinjaNode *node = jinja_take(t->pool, sizeof *node);
    node->kind = kind;
    node->line = jinja_token(t, 0)->line;
    return node;
}

static JinjaNode *pair(const JinjaTokens *t, JinjaNodeKind kind, JinjaNode *first, JinjaNode *second) {
    JinjaNode *node = jinja_node(t, kind);
    node->line = first->line;
    node->first = first;
    node->second = second;
    return node;
}

static bool at_kind(const JinjaTokens *t, JinjaTokenKind kind) {
    return jinja_token(t, 0)->kind == kind;
}

/* ---- literals ---- */

static Status parse_list(JinjaTokens *t, JinjaNodeKind kind, JinjaSign close, JinjaNode **node) {
    JinjaNode **last = &(*node = jinja_node(t, kind))->items;
    t->at++;
    while (!jinja_at_sign(t, close)) {
        TRY(jinja_parse_expression(t, true, last));
        last = &(*last)->next;
        if (kind == NODE_DICT) {
            TRY(jinja_expect_sign(t, ':'));
            TRY(jinja_parse_expression(t, true, last));
            last = &(*last)->next;
        }
        if (!jinja_at_sign(t, close)) TRY(jinja_expect_sign(t, ','));
    }
    return jinja_expect_sign(t, close);
}

static bool at_tuple_end(const JinjaTokens *t) {
    return at_kind(t, TOKEN_PRINT_END) || at_kind(t, TOKEN_BLOCK_END) || jinja_at_sign(t, ')') ||
           jinja_at_name(t, "in") || jinja_at_name(t, "recursive");
}

/* `empty`: the tuple may have no items. */
static Status parse_items(JinjaTokens *t, bool conditional, bool empty, JinjaNode **node) {
    JinjaNode *tuple = jinja_node(t, NODE_TUPLE), **last = &tuple->items;
    bool comma = false;
    while (!at_tuple_end(t)) {
        TRY(jinja_parse_expression(t, conditional, last));
        last = &(*last)->next;
        if (!jinja_skip_sign(t, ',')) break;
        comma = true;
    }
    if (!tuple->items && !empty) return jinja_unexpected(t);
    *node = comma || !tuple->items ? tuple : tuple->items;
    return OK;
}

Status jinja_parse_tuple(JinjaTokens *t, bool conditional, JinjaNode **node) {
    return parse_items(t, conditional, false, node);
}

static Status parse_word(JinjaTokens *t, JinjaNode **node) {
    static const struct {
        const char *name;
        JinjaValue value;
    } words[] = {{"true", {.kind = VALUE_BOOL, .truth = true}},
                 {"True", {.kind = VALUE_BOOL, .truth = true}},
                 {"false", {.kind = VALUE_BOOL, .truth = false}},
                 {"False", {.kind = VALUE_BOOL, .truth = false}},
                 {"none", {.kind = VALUE_NONE}},
                 {"None", {.kind = VALUE_NONE}}};
    *node = jinja_node(t, NODE_NAME);
    (*node)->name = jinja_token(t, 0)->name;
    for (int i = 0; i < 6; i++)
        if (jinja_at_name(t, words[i].name)) {
            (*node)->kind = NODE_CONSTANT;
            (*node)->value = words[i].value;
        }
    t->at++;
    return OK;
}

/* Adjacent strings are concatenated. */
static Status parse_literal(JinjaTokens *t, JinjaNode **node) {
    JinjaText text = {.pool = t->pool};
    *node = jinja_node(t, NODE_CONSTANT);
    (*node)->value = jinja_token(t, 0)->value;
    t->at++;
    if ((*node)->value.kind != VALUE_STRING) return OK;
    jinja_write(&text, (*node)->value.bytes, (*node)->value.length);
    for (; at_kind(t, TOKEN_LITERAL) && jinja_token(t, 0)->value.kind == VALUE_STRING; t->at++)
        jinja_write(&text, jinja_token(t, 0)->value.bytes, jinja_token(t, 0)->value.length);
    (*node)->value = jinja_written(&text);
    return OK;
}

Status jinja_parse_primary(JinjaTokens *t, JinjaNode **node) {
    if (at_kind(t, TOKEN_NAME)) return parse_word(t, node);
    if (at_kind(t, TOKEN_LITERAL)) return parse_literal(t, node);
    if (jinja_at_sign(t, '[')) return parse_list(t, NODE_LIST, ']', node);
    if (jinja_at_sign(t, '{')) return parse_list(t, NODE_DICT, '}', node);
    TRY(jinja_expect_sign(t, '('));
    TRY(parse_items(t, true, true, node));
    return jinja_expect_sign(t, ')');
}

/* ---- suffixes of a value ---- */

/* Parses `[...]` after the bracket: an index, or a slice. */
static Status parse_index(JinjaTokens *t, JinjaNode **node) {
    JinjaNode *slice = jinja_node(t, NODE_SLICE), **parts[] = {&slice->first, &slice->second, &slice->third};
    for (int i = 0; i < 3; i++) {
        bool none = jinja_at_sign(t, ':') || jinja_at_sign(t, ']');
        if (!none) TRY(jinja_parse_expression(t, true, parts[i]));
        if (jinja_at_sign(t, ']') && i == 0 && !none) {
            *node = slice->first;
            return OK;
        }
        if (i == 2 || !jinja_skip_sign(t, ':')) break;
        *node = slice;
    }
    return *node == slice ? OK : jinja_unexpected(t);
}

static Status parse_subscript(JinjaTokens *t, JinjaNode **node) {
    JinjaNode *whole = pair(t, NODE_ITEM, *node, NULL);
    if (jinja_skip_sign(t, '[')) {
        TRY(parse_index(t, &whole->second));
        TRY(jinja_expect_sign(t, ']'));
    } else if (t->at++, at_kind(t, TOKEN_LITERAL) && jinja_token(t, 0)->value.kind == VALUE_INT) {
        TRY(parse_literal(t, &whole->second));
    } else {
        whole->kind = NODE_ATTRIBUTE;
        TRY(jinja_expect_name(t, &whole->name));
    }
    *node = whole;
    return OK;
}

static Status parse_arguments(JinjaTokens *t, JinjaNode **last) {
    bool named = false;
    TRY(jinja_expect_sign(t, '('));
    while (!jinja_at_sign(t, ')')) {
        JinjaNode *argument = jinja_node(t, NODE_ARGUMENT);
        if (at_kind(t, TOKEN_NAME) && jinja_token(t, 1)->kind == TOKEN_SIGN &&
            jinja_token(t, 1)->sign == '=') {
            argument->name = jinja_token(t, 0)->name;
            t->at += 2;
        }
        if (named && !argument->name) return jinja_unexpected(t);
        named = argument->name;
        if (jinja_at_sign(t, '*') || jinja_at_sign(t, SIGN2('*', '*')))
            return fail(ERROR_FORMAT, "line %d: arguments in a list are not supported", argument->line);
        TRY(jinja_parse_expression(t, true, &argument->first));
        *last = argument;
        last = &argument->next;
        if (!jinja_at_sign(t, ')')) TRY(jinja_expect_sign(t, ','));
    }
    return jinja_expect_sign(t, ')');
}

static Status parse_call(JinjaTokens *t, JinjaNode **node) {
    *node = pair(t, NODE_CALL, *node, NULL);
    return parse_arguments(t, &(*node)->items);
}

static Status parse_postfix(JinjaTokens *t, JinjaNode **node) {
    for (;;) {
        if (jinja_at_sign(t, '.') || jinja_at_sign(t, '['))
            TRY(parse_subscript(t, node));
        else if (jinja_at_sign(t, '('))
            TRY(parse_call(t, node));
        else
            return OK;
    }
}

/* An unknown filter or test is an error of the whole template, except inside a condition, where it is an
 * error only if it is evaluated. */
static Status find_builtin(JinjaTokens *t, const JinjaBuiltin *table, JinjaNode *node) {
    TRY(jinja_expect_name(t, &node->name));
    if (jinja_at_sign(t, '.')) return jinja_unexpected(t);
    node->builtin = jinja_look_up(table, node->name);
    if (!node->builtin && !t->lenient && !t->unknown) t->unknown = node;
    return OK;
}

Status jinja_parse_filters(JinjaTokens *t, bool first, JinjaNode **node) {
    while (first || jinja_skip_sign(t, '|')) {
        first = false;
        JinjaNode *filter = pair(t, NODE_FILTER, *node, NULL);
        filter->line = jinja_token(t, 0)->line;
        TRY(find_builtin(t, jinja_filters, filter));
        if (jinja_at_sign(t, '(')) TRY(parse_arguments(t, &filter->items));
        *node = filter;
    }
    return OK;
}

static bool at_operand(const JinjaTokens *t) {
    if (at_kind(t, TOKEN_NAME))
        return !jinja_at_name(t, "else") && !jinja_at_name(t, "or") && !jinja_at_name(t, "and");
    return at_kind(t, TOKEN_LITERAL) || jinja_at_sign(t, '[') || jinja_at_sign(t, '{');
}

static Status parse_test(JinjaTokens *t, JinjaNode **node) {
    bool negated = jinja_skip_name(t, "not");
    JinjaNode *test = pair(t, NODE_TEST, *node, NULL);
    TRY(find_builtin(t, jinja_tests, test));
    if (jinja_at_sign(t, '(')) {
        TRY(parse_arguments(t, &test->items));
    } else if (at_operand(t)) {
        if (jinja_at_name(t, "is")) return jinja_unexpected(t);
        test->items = jinja_node(t, NODE_ARGUMENT);
        TRY(jinja_parse_primary(t, &test->items->first));
        TRY(parse_postfix(t, &test->items->first));
    }
    *node = negated ? pair(t, NODE_NOT, test, NULL) : test;
    return OK;
}

static Status parse_tail(JinjaTokens *t, JinjaNode **node) {
    for (;;) {
        if (jinja_at_sign(t, '|'))
            TRY(jinja_parse_filters(t, false, node));
        else if (jinja_skip_name(t, "is"))
            TRY(parse_test(t, node));
        else if (jinja_at_sign(t, '('))
            TRY(parse_call(t, node));
        else
            return OK;
    }
}

/* ---- operators ---- */

static Status parse_unary(JinjaTokens *t, bool filters, JinjaNode **node) {
    JinjaNode *sign = jinja_node(t, jinja_at_sign(t, '-') ? NODE_NEGATIVE : NODE_POSITIVE);
    if (jinja_at_sign(t, '-') || jinja_at_sign(t, '+')) {
        if (t->depth > DEPTH_MOST) return fail(ERROR_FORMAT, "line %d: the template is too deep", sign->line);
        t->at++;
        t->depth++;
        TRY(parse_unary(t, false, &sign->first));
        t->depth--;
        *node = sign;
    } else {
        TRY(jinja_parse_primary(t, node));
    }
    TRY(parse_postfix(t, node));
    return filters ? parse_tail(t, node) : OK;
}

/* Left-associative operators of one level. */
static bool at_one_of(const JinjaTokens *t, const JinjaSign *signs, int count) {
    for (int i = 0; i < count; i++)
        if (jinja_at_sign(t, signs[i])) return true;
    return false;
}

static Status parse_power(JinjaTokens *t, JinjaNode **node) {
    TRY(parse_unary(t, true, node));
    while (jinja_skip_sign(t, SIGN2('*', '*'))) {
        *node = pair(t, NODE_BINARY, *node, NULL);
        (*node)->sign = SIGN2('*', '*');
        TRY(parse_unary(t, true, &(*node)->second));
    }
    return OK;
}

static Status parse_product(JinjaTokens *t, JinjaNode **node) {
    static const JinjaSign signs[] = {'*', '/', SIGN2('/', '/'), '%'};
    TRY(parse_power(t, node));
    while (at_one_of(t, signs, 4)) {
        *node = pair(t, NODE_BINARY, *node, NULL);
        (*node)->sign = jinja_token(t, 0)->sign;
        t->at++;
        TRY(parse_power(t, &(*node)->second));
    }
    return OK;
}

static Status parse_concat(JinjaTokens *t, JinjaNode **node) {
    TRY(parse_product(t, node));
    if (!jinja_at_sign(t, '~')) return OK;
    JinjaNode *concat = jinja_node(t, NODE_CONCAT), *last = *node;
    concat->items = last;
    while (jinja_skip_sign(t, '~')) {
        TRY(parse_product(t, &last->next));
        last = last->next;
    }
    *node = concat;
    return OK;
}

static Status parse_sum(JinjaTokens *t, JinjaNode **node) {
    static const JinjaSign signs[] = {'+', '-'};
    TRY(parse_concat(t, node));
    while (at_one_of(t, signs, 2)) {
        *node = pair(t, NODE_BINARY, *node, NULL);
        (*node)->sign = jinja_token(t, 0)->sign;
        t->at++;
        TRY(parse_concat(t, &(*node)->second));
    }
    return OK;
}

/* The comparison operator, which is skipped; 0: none. */
static JinjaSign skip_comparison(JinjaTokens *t) {
    static const JinjaSign signs[] = {
        SIGN2('=', '='), SIGN2('!', '='), SIGN2('<', '='), SIGN2('>', '='), '<', '>'};
    const JinjaToken *next = jinja_token(t, 1);
    for (int i = 0; i < 6; i++)
        if (jinja_skip_sign(t, signs[i])) return signs[i];
    if (jinja_skip_name(t, "in")) return SIGN_IN;
    if (!jinja_at_name(t, "not") || next->kind != TOKEN_NAME || strcmp(next->name, "in") != 0) return 0;
    t->at += 2;
    return SIGN_NOT_IN;
}

static Status parse_comparison(JinjaTokens *t, JinjaNode **node) {
    JinjaSign sign;
    TRY(parse_sum(t, node));
    JinjaNode *compare = pair(t, NODE_COMPARE, *node, NULL), **last = &compare->items;
    while ((sign = skip_comparison(t))) {
        *last = jinja_node(t, NODE_OPERAND);
        (*last)->sign = sign;
        TRY(parse_sum(t, &(*last)->first));
        last = &(*last)->next;
        *node = compare;
    }
    return OK;
}

static Status parse_not(JinjaTokens *t, JinjaNode **node) {
    JinjaNode *not = jinja_node(t, NODE_NOT);
    if (!jinja_skip_name(t, "not")) return parse_comparison(t, node);
    if (t->depth > DEPTH_MOST) return fail(ERROR_FORMAT, "line %d: the template is too deep", not ->line);
    t->depth++;
    TRY(parse_not(t, &not ->first));
    t->depth--;
    *node = not ;
    return OK;
}

static Status parse_and(JinjaTokens *t, JinjaNode **node) {
    TRY(parse_not(t, node));
    while (jinja_skip_name(t, "and")) {
        *node = pair(t, NODE_AND, *node, NULL);
        TRY(parse_not(t, &(*node)->second));
    }
    return OK;
}

static Status parse_or(JinjaTokens *t, JinjaNode **node) {
    TRY(parse_and(t, node));
    while (jinja_skip_name(t, "or")) {
        *node = pair(t, NODE_OR, *node, NULL);
        TRY(parse_and(t, &(*node)->second));
    }
    return OK;
}

static Status parse_conditional(JinjaTokens *t, JinjaNode **node) {
    JinjaNode *unknown = t->unknown;
    TRY(parse_or(t, node));
    while (jinja_skip_name(t, "if")) {
        JinjaNode *condition = jinja_node(t, NODE_CONDITION);
        condition->second = *node;
        TRY(parse_or(t, &condition->first));
        if (jinja_skip_name(t, "else")) TRY(jinja_parse_expression(t, true, &condition->third));
        *node = condition;
        t->unknown = unknown;
    }
    return OK;
}

Status jinja_parse_expression(JinjaTokens *t, bool conditional, JinjaNode **node) {
    if (t->depth > DEPTH_MOST || t->pool->over)
        return fail(ERROR_FORMAT, "line %d: the template is too deep", jinja_token(t, 0)->line);
    t->depth++;
    Status status = conditional ? parse_conditional(t, node) : parse_or(t, node);
    t->depth--;
    return status;
}
