#include "model/config_file.h"

#include "base/files.h"
#include "base/json_writer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *key;
    JsonWriter value;
} Member;

typedef struct {
    Member *members;
    int64_t room;
    int count;
} Object;

static void object_free(Object *o) {
    for (int i = 0; i < o->count; i++) {
        memory_free(o->members[i].key);
        json_writer_free(&o->members[i].value);
    }
    memory_free(o->members);
}

/* Adds a member and returns the writer for its value. */
static JsonWriter *add(Object *o, const char *key) {
    o->members = memory_grow(o->members, &o->room, o->count + 1, sizeof *o->members);
    o->members[o->count] = (Member){.key = memory_text(key)};
    return &o->members[o->count++].value;
}

/* An optional size with its default value is written as null. */
static void add_size(Object *o, const ConfigKey *k, const char *key, const Config *c) {
    Config without = *c;
    int64_t *size = (int64_t *)((char *)&without + k->field), value = *size;
    *size = 0;
    config_complete(&without);
    if (!k->required && !k->always && *size == value)
        json_write_json(add(o, key), "null");
    else
        json_write_integer(add(o, key), value);
}

static void add_field(Object *o, const ConfigKey *k, const char *key, const Config *c) {
    const ConfigField *field = config_field(k->field);
    const void *from = (const char *)c + field->offset;
    const ConfigChoice *choice = k->choices;
    switch (field->kind) {
    case FIELD_SIZE: add_size(o, k, key, c); break;
    case FIELD_REAL: // transformers warns of a factor that is an integer
        json_write_real(add(o, key), *(const double *)from);
        break;
    case FIELD_FLAG: json_write_boolean(add(o, key), *(const bool *)from); break;
    case FIELD_CHOICE:
        while (choice->name && choice->value != *(const int *)from) choice++;
        if (choice->name) json_write_text(add(o, key), choice->name);
        break;
    }
}

static void write_member(JsonWriter *w, const Member *member, int indent) {
    json_write_line(w, indent, true);
    json_write_key(w, member->key);
    json_write_json(w, member->value.text);
}

/* Writes the members of an object that differ from their defaults. */
static void add_members(Object *o, const ConfigKey *k, const Config *c) {
    JsonWriter *w = add(o, k->key);
    w->spaced = true;
    json_write_open(w, '{');
    for (const ConfigKey *member = k->members; member->key; member++) {
        CLOSED_BY(object_free) Object one = {0};
        if (member->field && !member->old) add_field(&one, member, member->key, c);
        const char *value = one.count ? one.members[0].value.text : "null";
        if (strcmp(value, "null") != 0 && strcmp(value, "0.0") != 0) write_member(w, &one.members[0], 4);
    }
    json_write_line(w, 2, false);
    json_write_close(w, '}');
}

/* Writes id2label and label2id. */
static void add_labels(Object *o, const Config *c) {
    char text[LABEL_TEXT], key[LABEL_TEXT];
    JsonWriter *names = add(o, "id2label");
    json_write_open(names, '{');
    for (int64_t i = 0; i < c->vocab; i++) {
        snprintf(key, sizeof key, "%" PRId64, i);
        json_write_line(names, 4, true);
        json_member_text(names, key, labels_name(c->labels, i, text));
    }
    json_write_close(names, '}');
    JsonWriter *classes = add(o, "label2id");
    json_write_open(classes, '{');
    for (int64_t i = 0; i < c->vocab; i++) {
        json_write_line(classes, 4, true);
        json_member_integer(classes, labels_name(c->labels, i, text), i);
    }
    json_write_close(classes, '}');
}

/* ---- keys of the folder that fusebox does not use ---- */

/* Whether the key's value follows from the config. */
static bool is_ours(const ConfigKey *k) {
    return k->field || k->members || k->labels || k->only || k->ends;
}

static const json_t *kept_value(const Config *c, const char *key) {
    return c->kept ? json_object_get(c->kept->config, key) : NULL;
}

static bool is_known(const Config *c, const char *key) {
    static const char *const others[] = {"architectures", "model_type", "torch_dtype", "dtype", "label2id"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(key, others[i]) == 0) return true;
    for (const ConfigKey *k = c->architecture->keys; k->key; k++)
        if (strcmp(key, k->key) == 0 || (k->alias && strcmp(key, k->alias) == 0)) return true;
    return false;
}

/* Keys that are not in the family's row. A key that JSON would escape is not a setting of any program. */
static void add_unknown(Object *o, const Config *c) {
    const char *key;
    const json_t *value;
    if (!c->kept || !c->kept->config) return;
    json_object_foreach((json_t *)c->kept->config, key,
                        value) if (!is_known(c, key) && !strpbrk(key, "\"\\\n\t"))
        kept_write(add(o, key), value);
}

static void add_key(Object *o, const ConfigKey *k, const Config *c, int64_t end_of_text) {
    if (k->old) return;
    const json_t *kept = is_ours(k) ? NULL : kept_value(c, k->key);
    if (kept) return kept_write(add(o, k->key), kept);
    if (k->members) add_members(o, k, c);
    if (k->labels) return add_labels(o, c);
    if (k->field) add_field(o, k, k->key, c);
    if (k->field && k->alias) add_field(o, k, k->alias, c);
    if (k->written) json_write_json(add(o, k->key), k->written);
    if (!k->end_of_text) return;
    char ends[END_TOKENS_TEXT];
    if (k->ends && c->ends.count) {
        end_tokens_text(&c->ends, ends);
        json_write_json(add(o, k->key), ends);
    } else if (end_of_text < 0)
        json_write_json(add(o, k->key), "null");
    else
        json_write_integer(add(o, k->key), end_of_text);
}

/* The class with the config's heads; else one without the pooler; else the last. */
static const ModelClass *class_of(const Config *c) {
    const Architecture *a = c->architecture;
    for (int exact = 1; exact >= 0; exact--)
        for (int i = 0; i < a->class_count; i++) {
            const ModelClass *k = &a->classes[i];
            bool pools = k->pooler == c->pooler || (!exact && !k->pooler);
            if (!k->partial && pools && k->head_transform == c->head_transform &&
                k->class_head == c->class_head)
                return k;
        }
    return &a->classes[a->class_count - 1];
}

static void add_class(Object *o, const Config *c) {
    if (c->architecture->class_count == 0) return;
    JsonWriter *w = add(o, "architectures");
    json_write_open(w, '[');
    json_write_line(w, 4, true);
    json_write_text(w, class_of(c)->name);
    json_write_line(w, 2, false);
    json_write_close(w, ']');
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const Member *)a)->key, ((const Member *)b)->key);
}

/* Writes the keys in transformers' order. */
static void write_object(JsonWriter *w, Object *o) {
    qsort(o->members, (size_t)o->count, sizeof *o->members, by_key);
    json_write_open(w, '{');
    for (int i = 0; i < o->count; i++) write_member(w, &o->members[i], 2);
    json_write_line(w, 0, false);
    json_write_close(w, '}');
    json_write_line(w, 0, false);
}

/* ERROR_USAGE unless the file determines the config, except its heads, which the weights show as well. */
static Status check_written(const char *text, const char *path, const Config *c) {
    Config again;
    Status status = config_parse(text, (int64_t)strlen(text), path, &again);
    if (!status) {
        again.head_transform = c->head_transform;
        again.pooler = c->pooler;
        again.class_head = c->class_head;
        if (config_equal(c, &again)) return OK;
        status = fail(ERROR_FORMAT, "%s: it would not describe the model", path);
    }
    Status refused = fail(ERROR_USAGE, "a config.json of the type \"%s\" cannot describe this model: %s",
                          c->architecture->type, status_message(status));
    status_free(status);
    return refused;
}

Status config_write(const char *path, const Config *c, int64_t end_of_text) {
    CLOSED_BY(object_free) Object o = {0};
    CLOSED_BY(json_writer_free) JsonWriter w = {.spaced = true};
    for (const ConfigKey *k = c->architecture->keys; k->key; k++) add_key(&o, k, c, end_of_text);
    add_unknown(&o, c);
    add_class(&o, c);
    json_write_text(add(&o, "model_type"), c->architecture->type);
    json_write_text(add(&o, "torch_dtype"), "float32");
    write_object(&w, &o);
    TRY(check_written(w.text, path, c));
    return json_writer_save(&w, path);
}
