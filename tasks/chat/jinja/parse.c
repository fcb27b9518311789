/* Parses statements. */
#include "tasks/chat/jinja/node.h"
#include "tasks/chat/jinja/run.h"

#include <string.h>

/* ---- tokens ---- */

const JinjaToken *jinja_token(const JinjaTokens *t, int ahead) {
    int64_t at = t->at + ahead;
    return &t->tokens[at < t->count ? at : t->count - 1];
}

bool jinja_at_sign(const JinjaTokens *t, JinjaSign sign) {
    return jinja_token(t, 0)->kind == TOKEN_SIGN && jinja_token(t, 0)->sign == sign;
}

bool jinja_at_name(const JinjaTokens *t, const char *name) {
    return jinja_token(t, 0)->kind == TOKEN_NAME && strcmp(jinja_token(t, 0)->name, name) == 0;
}

bool jinja_skip_sign(JinjaTokens *t, JinjaSign sign) {
    bool here = jinja_at_sign(t, sign);
    t->at += here;
    return here;
}

bool jinja_skip_name(JinjaTokens *t, const char *name) {
    bool here = jinja_at_name(t, name);
    t->at += here;
    return here;
}

Status jinja_unexpected(const JinjaTokens *t) {
    static const char *const kinds[] = {"text", "\"{{\"",    "\"}}\"", "\"{%\"", "\"%}\"",
                                        "",     "a literal", "",       "its end"};
    const JinjaToken *token = jinja_token(t, 0);
    char sign[3] = {(char)token->sign, (char)(token->sign >> 8)};
    const char *what = token->kind == TOKEN_NAME   ? token->name
                       : token->kind == TOKEN_SIGN ? sign
                                                   : kinds[token->kind];
    return fail(ERROR_FORMAT, "line %d: unexpected %.40s", token->line, what);
}

static Status expect(JinjaTokens *t, JinjaTokenKind kind) {
    if (jinja_token(t, 0)->kind != kind) return jinja_unexpected(t);
    t->at++;
    return OK;
}

Status jinja_expect_sign(JinjaTokens *t, JinjaSign sign) {
    return jinja_skip_sign(t, sign) ? OK : jinja_unexpected(t);
}

Status jinja_expect_name(JinjaTokens *t, const char **name) {
    *name = jinja_token(t, 0)->name;
    return expect(t, TOKEN_NAME);
}

/* ---- statements ---- */

static Status parse_list(JinjaTokens *t, const char *const *ends, JinjaNode **list);

/* The rest of a tag, and statements up to a block that begins with one of the names. */
static Status parse_body(JinjaTokens *t, const char *const *ends, JinjaNode **list) {
    jinja_skip_sign(t, ':');
    TRY(expect(t, TOKEN_BLOCK_END));
    return parse_list(t, ends, list);
}

/* The same for a block with its own scope. `loops` is the number of enclosing loops, for break and
 * continue. */
static Status parse_scope(JinjaTokens *t, const char *end, int loops, JinjaNode **list) {
    const char *const ends[] = {end, NULL};
    JinjaTokens around = *t;
    t->loops = loops;
    t->lenient = false;
    TRY(parse_body(t, ends, list));
    t->loops = around.loops;
    t->lenient = around.lenient;
    t->at++;
    return OK;
}

static bool can_assign(const JinjaNode *node) {
    bool can = node->kind == NODE_NAME || node->kind == NODE_MEMBER || node->kind == NODE_TUPLE;
    for (const JinjaNode *item = node->items; can && item; item = item->next) can = can_assign(item);
    return can;
}

static Status parse_one_target(JinjaTokens *t, bool member, JinjaNode **node) {
    TRY(jinja_parse_primary(t, node));
    if (member && (*node)->kind == NODE_NAME && jinja_skip_sign(t, '.')) {
        JinjaNode *whole = jinja_node(t, NODE_MEMBER);
        whole->first = *node;
        TRY(jinja_expect_name(t, &whole->name));
        *node = whole;
    }
    return OK;
}

/* A name, several names, or with `member` a namespace's member. */
static Status parse_target(JinjaTokens *t, bool member, JinjaNode **node) {
    JinjaNode *tuple = jinja_node(t, NODE_TUPLE), **last = &tuple->items;
    TRY(parse_one_target(t, member, last));
    *node = tuple->items;
    while (jinja_skip_sign(t, ',')) {
        *node = tuple;
        last = &(*last)->next;
        if (jinja_at_name(t, "in") || jinja_at_sign(t, '=')) break;
        TRY(parse_one_target(t, member, last));
    }
    return can_assign(*node) ? OK
                             : fail(ERROR_FORMAT, "line %d: nothing can be assigned to this", tuple->line);
}

static bool has_name(const JinjaNode *target, const char *name) {
    bool has = target->kind == NODE_NAME && strcmp(target->name, name) == 0;
    for (const JinjaNode *item = target->items; item; item = item->next) has |= has_name(item, name);
    return has;
}

static Status parse_for(JinjaTokens *t, JinjaNode *node) {
    static const char *const ends[] = {"else", "endfor", NULL};
    node->kind = NODE_FOR;
    TRY(parse_target(t, false, &node->first));
    if (has_name(node->first, "loop") || !jinja_skip_name(t, "in")) return jinja_unexpected(t);
    TRY(jinja_parse_tuple(t, false, &node->second));
    if (jinja_skip_name(t, "if")) TRY(jinja_parse_expression(t, true, &node->third));
    if (jinja_at_name(t, "recursive"))
        return fail(ERROR_FORMAT, "line %d: a recursive loop is not supported", node->line);
    bool lenient = t->lenient;
    t->lenient = false;
    t->loops++;
    TRY(parse_body(t, ends, &node->body));
    t->loops--;
    if (jinja_skip_name(t, "else"))
        TRY(parse_scope(t, "endfor", t->loops, &node->other));
    else
        t->at++;
    t->lenient = lenient;
    return OK;
}

static Status parse_if(JinjaTokens *t, JinjaNode *node) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    bool lenient = t->lenient;
    for (;;) {
        node->kind = NODE_IF;
        t->lenient = true;
        TRY(jinja_parse_tuple(t, false, &node->first));
        TRY(parse_body(t, ends, &node->body));
        if (!jinja_skip_name(t, "elif")) break;
        node = node->other = jinja_node(t, NODE_IF);
    }
    if (jinja_skip_name(t, "else")) TRY(parse_body(t, ends + 2, &node->other));
    t->at++;
    t->lenient = lenient;
    return OK;
}

/* Filters after a block's head, applied to the output of its body. */
static Status parse_block_filters(JinjaTokens *t, bool first, JinjaNode **node) {
    *node = jinja_node(t, NODE_CAPTURED);
    return jinja_parse_filters(t, first, node);
}

static Status parse_set(JinjaTokens *t, JinjaNode *node) {
    TRY(parse_target(t, true, &node->first));
    node->kind = NODE_SET;
    if (jinja_skip_sign(t, '=')) return jinja_parse_tuple(t, true, &node->second);
    node->kind = NODE_SET_BLOCK;
    TRY(parse_block_filters(t, false, &node->second));
    return parse_scope(t, "endset", 0, &node->body);
}

static Status parse_filter(JinjaTokens *t, JinjaNode *node) {
    node->kind = NODE_FILTERED;
    TRY(parse_block_filters(t, true, &node->second));
    return parse_scope(t, "endfilter", 0, &node->body);
}

static Status parse_with(JinjaTokens *t, JinjaNode *node) {
    node->kind = NODE_WITH;
    for (JinjaNode **last = &node->items; jinja_token(t, 0)->kind != TOKEN_BLOCK_END; last = &(*last)->next) {
        if (node->items) TRY(jinja_expect_sign(t, ','));
        *last = jinja_node(t, NODE_SET);
        TRY(parse_target(t, false, &(*last)->first));
        TRY(jinja_expect_sign(t, '='));
        TRY(jinja_parse_expression(t, true, &(*last)->second));
    }
    return parse_scope(t, "endwith", t->loops, &node->body);
}

static Status parse_macro(JinjaTokens *t, JinjaNode *node) {
    bool defaults = false;
    node->kind = NODE_MACRO;
    TRY(jinja_expect_name(t, &node->name));
    TRY(jinja_expect_sign(t, '('));
    for (JinjaNode **last = &node->items; !jinja_at_sign(t, ')'); last = &(*last)->next) {
        if (node->items) TRY(jinja_expect_sign(t, ','));
        *last = jinja_node(t, NODE_NAME);
        TRY(jinja_expect_name(t, &(*last)->name));
        bool given = jinja_skip_sign(t, '=');
        if (defaults && !given) return jinja_unexpected(t);
        if (given) TRY(jinja_parse_expression(t, true, &(*last)->first));
        defaults = given;
    }
    t->at++;
    return parse_scope(t, "endmacro", 0, &node->body);
}

static Status parse_generation(JinjaTokens *t, JinjaNode *node) {
    node->kind = NODE_GENERATION;
    return parse_scope(t, "endgeneration", 0, &node->body);
}

static Status parse_jump(JinjaTokens *t, JinjaNode *node) {
    node->kind = strcmp(jinja_token(t, -1)->name, "break") == 0 ? NODE_BREAK : NODE_CONTINUE;
    return t->loops ? OK : fail(ERROR_FORMAT, "line %d: no loop is here to end", node->line);
}

static Status parse_statement(JinjaTokens *t, JinjaNode **node) {
    static const struct {
        const char *name;
        Status (*parse)(JinjaTokens *t, JinjaNode *node);
    } statements[] = {{"for", parse_for},       {"if", parse_if},      {"set", parse_set},
                      {"macro", parse_macro},   {"break", parse_jump}, {"continue", parse_jump},
                      {"filter", parse_filter}, {"with", parse_with},  {"generation", parse_generation}};
    const char *name;
    *node = jinja_node(t, NODE_BREAK);
    TRY(jinja_expect_name(t, &name));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (strcmp(statements[i].name, name) != 0) continue;
        TRY(statements[i].parse(t, *node));
        return expect(t, TOKEN_BLOCK_END);
    }
    return fail(ERROR_FORMAT, "line %d: {%% %.40s %%} is not supported here", (*node)->line, name);
}

/* Statements up to a block that begins with one of the names, which is not consumed; without names, to the
 * end. */
static Status parse_list(JinjaTokens *t, const char *const *ends, JinjaNode **last) {
    if (t->depth > 100 || t->pool->over)
        return fail(ERROR_FORMAT, "line %d: the template is too deep", jinja_token(t, 0)->line);
    t->depth++;
    for (; jinja_token(t, 0)->kind != TOKEN_TEMPLATE_END; last = &(*last)->next) {
        *last = jinja_node(t, NODE_OUTPUT);
        if (jinja_token(t, 0)->kind == TOKEN_TEXT) {
            (*last)->kind = NODE_TEXT;
            (*last)->value = jinja_token(t, 0)->value;
            t->at++;
        } else if (jinja_token(t, 0)->kind == TOKEN_PRINT) {
            t->at++;
            TRY(jinja_parse_tuple(t, true, &(*last)->first));
            TRY(expect(t, TOKEN_PRINT_END));
        } else {
            TRY(expect(t, TOKEN_BLOCK));
            for (int i = 0; ends && ends[i]; i++)
                if (jinja_at_name(t, ends[i])) {
                    *last = NULL;
                    t->depth--;
                    return OK;
                }
            TRY(parse_statement(t, last));
        }
    }
    t->depth--;
    return ends ? fail(ERROR_FORMAT, "the template ends inside of a block, before {%% %.40s %%}", ends[0])
                : OK;
}

Status jinja_parse(JinjaTokens *t, JinjaNode **list) {
    TRY(parse_list(t, NULL, list));
    if (!t->unknown) return OK;
    return fail(ERROR_FORMAT, "line %d: there is no filter or test \"%.40s\"", t->unknown->line,
                t->unknown->name);
}
