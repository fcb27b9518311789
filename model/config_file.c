#include "model/config_file.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/json_writer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20 /* bytes */, SHOWN = 60 /* bytes of a value in a message */ };
enum { MEMBER_TEXT = 400 };

/* A parsed file and what to call it. */
typedef struct {
    const json_t *root;
    const char *name;
} File;

/* A value that is absent or null stands for its default. */
static const json_t *value_of(const File *file, const char *key) {
    const json_t *value = json_object_get(file->root, key);
    return json_is_null(value) ? NULL : value;
}

/* "x.json: "key" is <value>; <expected>" */
static Status fail_value(const File *file, const char *key, const char *expected) {
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII;
    const json_t *value = value_of(file, key);
    size_t length = value ? json_dumpb(value, NULL, 0, flags) : 0;
    char *text = memory_allocate(length + 1);
    if (value) json_dumpb(value, text, length, flags);
    Status status = fail(ERROR_FORMAT, "%s: \"%s\" is %.*s%s; %s", file->name, key, SHOWN,
                         value ? text : "missing", length > SHOWN ? "..." : "", expected);
    memory_free(text);
    return status;
}

/* ---- a key ---- */

/* What is wrong with a value that is none of the names: only "a", "b" and "c" are supported. */
static Status fail_name(const File *file, const char *key, const char *const names[], int count) {
    char text[300];
    int length = snprintf(text, sizeof text, "only ");
    for (int i = 0; i < count && length < (int)sizeof text; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "\"%s\"%s", names[i],
                           i + 2 < count    ? ", "
                           : i + 2 == count ? " and "
                           : count == 1     ? " is supported"
                                            : " are supported");
    return fail_value(file, key, text);
}

/* The index of a value among names. */
static Status read_name(const File *file, const char *key, const char *const names[], int count, int *index) {
    const char *text = json_string_value(value_of(file, key));
    for (*index = 0; text && *index < count; (*index)++)
        if (strcmp(text, names[*index]) == 0) return OK;
    return fail_name(file, key, names, count);
}

static Status read_choice(const File *file, const char *key, const ConfigChoice *choices, int *value) {
    const char *names[16];
    int count = 0, index;
    for (; choices[count].name; count++) names[count] = choices[count].name;
    TRY(read_name(file, key, names, count, &index));
    *value = choices[index].value;
    return OK;
}

static Status read_field(const File *file, const ConfigKey *k, const char *key, const ConfigField *field,
                         Config *config) {
    const json_t *value = value_of(file, key);
    void *to = (char *)config + field->offset;
    bool both = k->square && json_array_size(value) == 2; // height and width
    if (both && json_equal(json_array_get(value, 0), json_array_get(value, 1)))
        value = json_array_get(value, 0);
    switch (field->kind) {
    case FIELD_SIZE:
        if (!json_is_integer(value) || json_integer_value(value) < 1)
            return fail_value(file, key, "a positive integer is needed");
        *(int64_t *)to = json_integer_value(value);
        return OK;
    case FIELD_REAL:
        if (!json_is_number(value)) return fail_value(file, key, "a number is needed");
        *(double *)to = json_number_value(value);
        return OK;
    case FIELD_FLAG:
        if (!json_is_boolean(value)) return fail_value(file, key, "true or false is needed");
        *(bool *)to = json_is_true(value);
        return OK;
    case FIELD_CHOICE: return read_choice(file, key, k->choices, to);
    }
    return OK;
}

static Status check_only(const File *file, const ConfigKey *k) {
    const json_t *value = k->required ? json_object_get(file->root, k->key) : value_of(file, k->key);
    if (!value && !k->required) return OK;
    char expected[64], text[SHOWN];
    size_t length = value ? json_dumpb(value, text, sizeof text, JSON_ENCODE_ANY | JSON_COMPACT) : 0;
    bool equal = length == strlen(k->only) && memcmp(text, k->only, length) == 0;
    snprintf(expected, sizeof expected, "only %s is supported", k->only);
    return equal ? OK : fail_value(file, k->key, expected);
}

static Status read_objects(const File *file, const ConfigKey *k, Config *config);

static Status count_labels(const File *file, const ConfigKey *k, Config *config) {
    size_t count = json_object_size(value_of(file, k->key));
    if (!count) return fail_value(file, k->key, "an object of at least one class is needed");
    *(int64_t *)((char *)config + k->field) = (int64_t)count;
    return OK;
}

static Status read_key(const File *file, const ConfigKey *k, Config *config) {
    const json_t *value = value_of(file, k->key), *again = k->alias ? value_of(file, k->alias) : NULL;
    if (k->only) return check_only(file, k);
    if (k->members) return read_objects(file, k, config);
    if (k->labels) return value ? count_labels(file, k, config) : OK;
    if (!k->field || (!value && !again && !k->required)) return OK;
    const char *key = again && !value ? k->alias : k->key;
    TRY(read_field(file, k, key, config_field(k->field), config));
    if (!value || !again || json_equal(value, again)) return OK;
    char expected[64];
    snprintf(expected, sizeof expected, "it must equal \"%s\"", k->key);
    return fail_value(file, k->alias, expected);
}

static Status read_keys(const File *file, const ConfigKey *keys, Config *config) {
    for (const ConfigKey *k = keys; k->key; k++) TRY(read_key(file, k, config));
    return OK;
}

/* An object's. One that means nothing to us changes what its other members mean. */
static Status read_members(const File *file, const ConfigKey *k, const char *key, Config *config) {
    File object = {value_of(file, key), file->name};
    const char *name;
    json_t *value;
    if (!json_is_object(object.root)) return fail_value(file, key, "an object is needed");
    TRY(read_keys(&object, k->members, config));
    json_object_foreach((json_t *)object.root, name, value) {
        const ConfigKey *member = k->members;
        while (member->key && strcmp(member->key, name) != 0) member++;
        if (!member->key && !json_is_null(value)) return fail_value(&object, name, "it is not supported");
    }
    return OK;
}

/* An object's under either key. Two objects may be spelled differently, but must mean the same. */
static Status read_objects(const File *file, const ConfigKey *k, Config *config) {
    Config again = *config;
    bool first = value_of(file, k->key), second = k->alias && value_of(file, k->alias);
    if (first) TRY(read_members(file, k, k->key, config));
    if (second) TRY(read_members(file, k, k->alias, first ? &again : config));
    if (!first || !second || config_equal(config, &again)) return OK;
    char expected[64];
    snprintf(expected, sizeof expected, "it must mean the same as \"%s\"", k->key);
    return fail_value(file, k->alias, expected);
}

/* ---- the file ---- */

/* Which heads the file's model has, by the class that transformers saved. */
static Status read_class(const File *file, Config *config) {
    const Architecture *a = config->architecture;
    const json_t *names = value_of(file, "architectures"), *name;
    size_t i;
    if (a->class_count == 0) return OK;
    if (names && !json_is_array(names)) return fail_value(file, "architectures", "a list is needed");
    const ModelClass *found = &a->classes[a->class_count - 1];
    json_array_foreach(names, i, name) for (int k = 0; json_is_string(name) && k < a->class_count;
                                            k++) if (strcmp(json_string_value(name), a->classes[k].name) == 0)
        found = &a->classes[k];
    config->head_transform = found->head_transform;
    config->pooler = found->pooler;
    config->class_head = found->class_head;
    return OK;
}

static Status read_architecture(const File *file, const Architecture **architecture) {
    const char *types[16];
    int count = 0, index;
    for (; architecture_at(count); count++) types[count] = architecture_at(count)->type;
    TRY(read_name(file, "model_type", types, count, &index));
    *architecture = architecture_at(index);
    return OK;
}

/* Names it after the preset that it equals. */
static Status name_config(Config *config) {
    snprintf(config->name, sizeof config->name, "custom");
    for (int i = 0; config_preset_name(i); i++) {
        Config preset;
        TRY(config_preset(config_preset_name(i), &preset));
        if (config_equal(config, &preset)) memcpy(config->name, preset.name, sizeof config->name);
    }
    return OK;
}

static Status read_root(const File *file, Config *config) {
    const Architecture *architecture;
    if (!json_is_object(file->root)) return fail(ERROR_FORMAT, "%s holds no JSON object", file->name);
    TRY(read_architecture(file, &architecture));
    *config = architecture->defaults;
    config->architecture = architecture;
    TRY(read_keys(file, architecture->keys, config));
    TRY(read_class(file, config));
    config_complete(config);
    Status status = config_validate(config);
    if (status) {
        Status wrong = fail(ERROR_FORMAT, "%s: %s", file->name, status_message(status));
        status_free(status);
        return wrong;
    }
    return name_config(config);
}

Status config_parse(const char *text, int64_t length, const char *name, Config *config) {
    json_t *root;
    TRY(json_parse(text, length, name, &root));
    File file = {root, name};
    Status status = read_root(&file, config);
    json_decref(root);
    return status;
}

Status config_read(const char *path, Config *config) {
    OWNED char *text = NULL;
    int64_t length;
    TRY(file_read(path, FILE_LIMIT, &text, &length));
    return config_parse(text, length, path, config);
}

/* ---- writing ---- */

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
