#include "model/config_file.h"

#include "base/files.h"
#include "base/json_writer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBER_TEXT = 400 };

/* A flat JSON object, a member to a line. */
typedef struct {
    char **members;
    int64_t room;
    int count;
} Object;

static void free_members(Object *o) {
    for (int i = 0; i < o->count; i++) memory_free(o->members[i]);
    memory_free(o->members);
    *o = (Object){0};
}

static void add(Object *o, const char *key, const char *value) {
    static const char layout[] = "  \"%s\": %s";
    size_t room = sizeof layout + strlen(key) + strlen(value);
    o->members = memory_grow(o->members, &o->room, o->count + 1, sizeof *o->members);
    snprintf(o->members[o->count++] = memory_allocate(room), room, layout, key, value);
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
        Object one = {0};
        if (member->field && !member->old) add_field(&one, member, member->key, c);
        if (one.count && !path_ends_with(one.members[0], ": null") &&
            !path_ends_with(one.members[0], ": 0.0"))
            length += snprintf(text + length, sizeof text - (size_t)length, "%s\n  %s", length > 1 ? "," : "",
                               one.members[0]);
        free_members(&one);
    }
    snprintf(text + length, sizeof text - (size_t)length, "\n  }");
    add(o, k->key, text);
}

/* Of each class its name, and of each name its class. */
static void add_labels(Object *o, const Config *c) {
    JsonWriter names = {0}, classes = {0};
    char text[LABEL_TEXT], key[LABEL_TEXT];
    json_write_open(&names, '{');
    json_write_open(&classes, '{');
    for (int64_t i = 0; i < c->vocab; i++) {
        snprintf(key, sizeof key, "%" PRId64, i);
        json_write_line(&names, 4, true);
        json_member_text(&names, key, labels_name(c->labels, i, text));
        json_write_line(&classes, 4, true);
        json_member_integer(&classes, labels_name(c->labels, i, text), i);
    }
    json_write_close(&names, '}');
    json_write_close(&classes, '}');
    add(o, "id2label", names.text);
    add(o, "label2id", classes.text);
    json_writer_free(&names);
    json_writer_free(&classes);
}

/* ---- what the folder said that is not ours ---- */

/* Whether what the key says follows from the config. */
static bool is_ours(const ConfigKey *k) {
    return k->field || k->members || k->labels || k->only || k->ends;
}

static const json_t *kept_value(const Config *c, const char *key) {
    return c->kept ? json_object_get(c->kept->config, key) : NULL;
}

static void add_kept(Object *o, const char *key, const json_t *value) {
    JsonWriter w = {0};
    kept_write(&w, value);
    add(o, key, w.text);
    json_writer_free(&w);
}

static bool is_known(const Config *c, const char *key) {
    static const char *const others[] = {"architectures", "model_type", "torch_dtype", "dtype", "label2id"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(key, others[i]) == 0) return true;
    for (const ConfigKey *k = c->architecture->keys; k->key; k++)
        if (strcmp(key, k->key) == 0 || (k->alias && strcmp(key, k->alias) == 0)) return true;
    return false;
}

/* Keys that the family's row does not know. One that JSON would escape is no setting of anybody's. */
static void add_unknown(Object *o, const Config *c) {
    const char *key;
    const json_t *value;
    if (!c->kept || !c->kept->config) return;
    json_object_foreach((json_t *)c->kept->config, key,
                        value) if (!is_known(c, key) && !strpbrk(key, "\"\\\n\t")) add_kept(o, key, value);
}

static void add_key(Object *o, const ConfigKey *k, const Config *c, int64_t end_of_text) {
    if (k->old) return;
    const json_t *kept = is_ours(k) ? NULL : kept_value(c, k->key);
    if (kept) return add_kept(o, k->key, kept);
    if (k->members) add_members(o, k, c);
    if (k->labels) return add_labels(o, c);
    if (k->field) add_field(o, k, k->key, c);
    if (k->field && k->alias) add_field(o, k, k->alias, c);
    if (k->written) add(o, k->key, k->written);
    if (!k->end_of_text) return;
    char ends[END_TOKENS_TEXT];
    if (k->ends && c->ends.count) {
        end_tokens_text(&c->ends, ends);
        add(o, k->key, ends);
    } else if (end_of_text < 0)
        add(o, k->key, "null");
    else
        add_integer(o, k->key, end_of_text);
}

/* The class with the config's heads; else one that does without the pooler, else the last. */
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
    char list[MEMBER_TEXT];
    if (c->architecture->class_count == 0) return;
    snprintf(list, sizeof list, "[\n    \"%s\"\n  ]", class_of(c)->name);
    add(o, "architectures", list);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In the order of the keys, as transformers lays files out; to be freed. */
static char *finish(Object *o) {
    size_t room = sizeof "{\n\n}\n", length = 0;
    qsort(o->members, (size_t)o->count, sizeof *o->members, by_text);
    for (int i = 0; i < o->count; i++) room += strlen(o->members[i]) + 2;
    char *text = memory_allocate(room);
    for (int i = 0; i < o->count; i++)
        length += (size_t)sprintf(text + length, "%s%s", i ? ",\n" : "{\n", o->members[i]);
    sprintf(text + length, "\n}\n");
    free_members(o);
    return text;
}

/* ERROR_USAGE unless the file says all that the config is. Which heads there are the weights say as well. */
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
    Object o = {0};
    for (const ConfigKey *k = c->architecture->keys; k->key; k++) add_key(&o, k, c, end_of_text);
    add_unknown(&o, c);
    add_class(&o, c);
    add_text(&o, "model_type", c->architecture->type);
    add_text(&o, "torch_dtype", "float32");
    OWNED char *text = finish(&o);
    TRY(check_written(text, path, c));
    return file_write(path, text, (int64_t)strlen(text));
}
