/* option_rows: short names for the rows of an option table. A file that uses them says first where a member of
 * its struct of values lies: #define AT(member) .field = offsetof(Struct, member) */
#ifndef APP_OPTION_ROWS_H
#define APP_OPTION_ROWS_H

#include "base/options.h"

#define TEXT(name, what, member) OPTION_TEXT, name, .argument = what, AT(member)
#define COUNT(name, from, to, member)                                                                        \
    OPTION_INTEGER, name, .argument = "N", .least = from, .most = to, AT(member)
#define NUMBER(name, from, to, member)                                                                       \
    OPTION_NUMBER, name, .argument = "X", .low = from, .high = to, AT(member)
#define LIST(name, from, to, member)                                                                         \
    OPTION_LIST, name, .argument = "LIST", .least = from, .most = to, AT(member)
#define FLAG(name, member) OPTION_FLAG, name, AT(member)
#define HEADING(text)                                                                                        \
    { OPTION_HEADING, .doc = text }

#endif
