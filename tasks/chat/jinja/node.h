/* node: the syntax tree of a template. */
#pragma once

#include "base/status.h"
#include "tasks/chat/jinja/value.h"

typedef enum {
    /* statements, with the members that they use */
    NODE_TEXT,       // value
    NODE_OUTPUT,     // first: the printed expression
    NODE_FOR,        // first: target, second: iterable, third: condition or NULL; body, other: else
    NODE_IF,         // first: condition; body, other: else, which may be another NODE_IF
    NODE_SET,        // first: target, second: value
    NODE_SET_BLOCK,  // first: target, second: filters around NODE_CAPTURED or NULL; body
    NODE_FILTERED,   // second: filters around NODE_CAPTURED; body
    NODE_WITH,       // items: NODE_SET; body
    NODE_MACRO,      // name, items: NODE_NAME, each with its default as `first`; body
    NODE_GENERATION, // body
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONSTANT,  // value
    NODE_CAPTURED,  // the output of the enclosing statement's body
    NODE_NAME,      // name
    NODE_LIST,      // items
    NODE_TUPLE,     // items
    NODE_DICT,      // items: key, value, key, value, ...
    NODE_ATTRIBUTE, // first, name
    NODE_ITEM,      // first, second: index or NODE_SLICE
    NODE_SLICE,     // first, second, third, each or NULL
    NODE_CALL,      // first, items: arguments; named ones have a `name`
    NODE_ARGUMENT,  // first, name or NULL
    NODE_FILTER,    // first, builtin, items: arguments
    NODE_TEST,      // first, builtin, items: arguments
    NODE_NOT,       // first
    NODE_NEGATIVE,  // first
    NODE_POSITIVE,  // first
    NODE_AND,       // first, second
    NODE_OR,        // first, second
    NODE_BINARY,    // first, sign, second
    NODE_CONCAT,    // items
    NODE_COMPARE,   // first, items: NODE_OPERAND
    NODE_OPERAND,   // sign, first
    NODE_CONDITION, // first: condition, second, third: else or NULL
    NODE_MEMBER,    // first: a NODE_NAME, name: as the target of `set`
    NODE_KINDS
} JinjaNodeKind;

/* An operator, by its one or two characters. `in` and `not in` are words. */
typedef int JinjaSign;
#define SIGN1(a)    ((JinjaSign)(a))
#define SIGN2(a, b) ((JinjaSign)(a) | (JinjaSign)(b) << 8)
enum { SIGN_IN = SIGN2('i', 'n'), SIGN_NOT_IN = SIGN2('n', 'i') };

typedef struct JinjaNode {
    JinjaNodeKind kind;
    int line;
    JinjaSign sign;
    const char *name;
    const struct JinjaBuiltin *builtin;
    JinjaValue value;
    struct JinjaNode *first, *second, *third;
    struct JinjaNode *items, *body, *other; // lists
    struct JinjaNode *next;                 // in the list that contains the node
} JinjaNode;

/* ---- tokens ---- */

typedef enum {
    TOKEN_TEXT,         // value
    TOKEN_PRINT,        // "{{"
    TOKEN_PRINT_END,    // "}}"
    TOKEN_BLOCK,        // "{%"
    TOKEN_BLOCK_END,    // "%}"
    TOKEN_NAME,         // name
    TOKEN_LITERAL,      // value: a string or a number
    TOKEN_SIGN,         // sign
    TOKEN_TEMPLATE_END, // the last one
} JinjaTokenKind;

typedef struct {
    JinjaTokenKind kind;
    int line;
    JinjaSign sign;
    const char *name;
    JinjaValue value;
} JinjaToken;

typedef struct {
    JinjaPool *pool;
    JinjaToken *tokens;
    int64_t count, room, at; // at: the parser's position
    int depth;               // nesting depth of the parser
    int loops;               // enclosing loops: break and continue are allowed
    bool lenient;            // inside an `if`, where an unknown filter is an error only if evaluated
    JinjaNode *unknown;      // the first unknown filter or test elsewhere
} JinjaTokens;

/* Splits the source into tokens. Blocks and comments absorb the newline after them and the spaces before
 * them, like transformers' trim_blocks and lstrip_blocks. */
CHECKED Status jinja_tokenize(const char *source, int64_t length, JinjaTokens *tokens);

/* ---- parsing ---- */

CHECKED Status jinja_parse(JinjaTokens *tokens, JinjaNode **list); // tokens->at must be 0

/* Shared with the parser's other file, expressions.c. */
const JinjaToken *jinja_token(const JinjaTokens *t, int ahead);
bool jinja_at_sign(const JinjaTokens *t, JinjaSign sign);
bool jinja_at_name(const JinjaTokens *t, const char *name);
bool jinja_skip_sign(JinjaTokens *t, JinjaSign sign);
bool jinja_skip_name(JinjaTokens *t, const char *name);
CHECKED Status jinja_expect_sign(JinjaTokens *t, JinjaSign sign);
CHECKED Status jinja_expect_name(JinjaTokens *t, const char **name); // any name
CHECKED Status jinja_unexpected(const JinjaTokens *t);
JinjaNode *jinja_node(const JinjaTokens *t, JinjaNodeKind kind); // the node gets the line of the next token
CHECKED Status jinja_parse_expression(JinjaTokens *t, bool conditional, JinjaNode **node);
/* An expression, or a tuple of several. */
CHECKED Status jinja_parse_tuple(JinjaTokens *t, bool conditional, JinjaNode **node);
CHECKED Status jinja_parse_primary(JinjaTokens *t, JinjaNode **node);
CHECKED Status jinja_parse_filters(JinjaTokens *t, bool first, JinjaNode **node);
