/* json: converts values to JSON, as Python's json.dumps() does, and from jansson's. */
#pragma once

#include "tasks/chat/jinja/value.h"

#include <jansson.h>

typedef struct {
    int indent; // -1: all on one line
    const char *item, *key;
    bool ascii; // other characters are escaped
} JinjaJson;

/* Returns false for values that JSON cannot represent: an undefined value, a macro, ... */
bool jinja_write_json(JinjaText *text, JinjaValue value, const JinjaJson *form, int depth);

/* Strings are still owned by the object. */
JinjaValue jinja_from_json(JinjaPool *pool, const json_t *json);
