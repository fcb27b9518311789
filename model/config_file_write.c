#include "model/config_file.h"

#include "base/files.h"
#include "base/json_writer.h"
#include "model/end_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 40, MEMBER_TEXT = 400 };

/* A flat JSON object, a member to a line. */
typedef struct {
    char members[MEMBERS][MEMBER_TEXT];
    int count;
    char text[MEMBERS * MEMBER_TEXT];
    int length;
} Object;

static void add(Object *o, const char *key, const char *value) {
    snprintf(o->members[o->count++], MEMBER_TEXT, "  \"%s\": %s", key, value);
}

static void add_integer(Object *o, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    add(o, key, text);
}

static void add_text(Object *o, const char *key, const char *value) {
    char text[MEMBER_TEXT];
    snprintf(text, sizeof text, "\"%s\"", value);
    add(o, key, text);
}

static void add_real(Object *o, const char *key, double value) {
    char text[NUMBER_TEXT + 2];
    number_text(value, text);
    if (!strpbrk(text, ".e")) strcat(text, ".0"); // transformers warns of a factor that is an integer
    add(o, key, text);
}

/* A size that need not be given, and is what it would be then, is null. */
static void add_size(Object *o, const ConfigKey *k, const char *key, const Config *c) {
    Config without = *c;
    int64_t *size = (int64_t *)((char *)&without + k->field), value = *size;
    *size = 0;
    config_complete(&without);
    if (!k->required && !k->always && *size == value)
        add(o, key, "null");
    else
        add_integer(o, key, value);
}

static void add_field(Object *o, const ConfigKey *k, const char *key, const Config *c) {
    const ConfigField *field = config_field(k->field);
    const void *from = (const char *)c + field->offset;
    const ConfigChoice *choice = k->choices;
    switch (field->kind) {
    case FIELD_SIZE: add_size(o, k, key, c); break;
    case FIELD_REAL: add_real(o, key, *(const double *)from); break;
    case FIELD_FLAG: add(o, key, *(const bool *)from ? "true" : "false"); break;
    case FIELD_CHOICE:
        while (choice->name && choice->value != *(const int *)from) choice++;
        if (choice->name) add_text(o, key, choice->name);
        break;
    }
}

/* Of an object's members those that say something. */
static void add_members(Object *o, const ConfigKey *k, const Config *c) {
    char text[MEMBER_TEXT] = "{";
    int length = 1;
    for (const ConfigKey *member = k->members; member->key; member++) {
        Object one = {.count = 0};
        if (member->field && !member->old) add_field(&one, member, member->key, c);
        if (one.count && !path_ends_with(one.members[0], ": null") &&
            !path_ends_with(one.members[0], ": 0.0"))
            length += snprintf(text + length, sizeof text - (size_t)length, "%s\n  %s", length > 1 ? "," : "",
                               one.members[0]);
    }
    snprintf(text + length, sizeof text - (size_t)length, "\n  }");
    add(o, k->key, text);
}

static void add_key(Object *o, const ConfigKey *k, const Config *c, int64_t end_of_text) {
    if (k->old) return;
    if (k->members) add_members(o, k, c);
    if (k->field) add_field(o, k, k->key, c);
    if (k->field && k->alias) add_field(o, k, k->alias, c);
    if (k->written) add(o, k->key, k->written);
    if (!k->end_of_text) return;
    char ends[END_TOKENS_TEXT];
    if (c->ends.count) {
        end_tokens_text(&c->ends, ends);
        add(o, k->key, ends);
    } else if (end_of_text < 0)
        add(o, k->key, "null");
    else
        add_integer(o, k->key, end_of_text);
}

/* The class with the config's heads, else the last. */
static void add_class(Object *o, const Config *c) {
    const Architecture *a = c->architecture;
    char list[MEMBER_TEXT];
    int i = 0;
    if (a->class_count == 0) return;
    while (i + 1 < a->class_count &&
           (a->classes[i].head_transform != c->head_transform || a->classes[i].pooler != c->pooler))
        i++;
    snprintf(list, sizeof list, "[\n    \"%s\"\n  ]", a->classes[i].name);
    add(o, "architectures", list);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

/* In the order of the keys, as transformers lays files out. */
static void finish(Object *o) {
    qsort(o->members, (size_t)o->count, sizeof *o->members, by_text);
    for (int i = 0; i < o->count; i++)
        o->length += snprintf(o->text + o->length, sizeof o->text - (size_t)o->length, "%s%s",
                              i ? ",\n" : "{\n", o->members[i]);
    o->length += snprintf(o->text + o->length, sizeof o->text - (size_t)o->length, "\n}\n");
}

/* Does the file say all that the config is? Which heads there are the weights say as well. */
static bool says_all(const Object *o, const char *path, const Config *c) {
    Config again;
    Status status = config_parse(o->text, o->length, path, &again);
    if (status) {
        status_free(status);
        return false;
    }
    again.head_transform = c->head_transform;
    again.pooler = c->pooler;
    return config_equal(c, &again);
}

Status config_write(const char *path, const Config *c, int64_t end_of_text) {
    Object o = {.count = 0};
    for (const ConfigKey *k = c->architecture->keys; k->key; k++) add_key(&o, k, c, end_of_text);
    add_class(&o, c);
    add_text(&o, "model_type", c->architecture->type);
    add_text(&o, "torch_dtype", "float32");
    finish(&o);
    if (!says_all(&o, path, c))
        return fail(ERROR_USAGE,
                    "%s: a config.json of the type \"%s\" cannot describe this model, so it cannot be saved",
                    path, c->architecture->type);
    return file_write(path, o.text, o.length);
}
