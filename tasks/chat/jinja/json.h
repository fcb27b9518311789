/* json: values as JSON, as Python's json.dumps() writes them, and from jansson's. */
#pragma once

#include "tasks/chat/jinja/value.h"

#include <jansson.h>

typedef struct {
    int indent; // -1: all on one line
    const char *item, *key;
    bool ascii; // what lies beyond is escaped
} JinjaJson;

/* False for what JSON cannot say: an undefined value, a macro, ... */
bool jinja_write_json(JinjaText *text, JinjaValue value, const JinjaJson *form, int depth);

/* Strings stay the object's. */
JinjaValue jinja_from_json(JinjaPool *pool, const json_t *json);
