#include "model/config_file.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20 /* bytes */, SHOWN = 60 /* bytes of a value in a message */ };

/* A parsed file and its name in messages. */
typedef struct {
    const json_t *root;
    const char *name;
} File;

/* The value of a key, or NULL if it is null or absent. */
static const json_t *value_of(const File *file, const char *key) {
    const json_t *value = json_object_get(file->root, key);
    return json_is_null(value) ? NULL : value;
}

/* "x.json: "key" is <value>; <expected>" */
static Status fail_value(const File *file, const char *key, const char *expected) {
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII;
    const json_t *value = value_of(file, key);
    size_t length = value ? json_dumpb(value, NULL, 0, flags) : 0;
    OWNED char *text = memory_allocate(length + 1);
    if (value) json_dumpb(value, text, length, flags);
    return fail(ERROR_FORMAT, "%s: \"%s\" is %.*s%s; %s", file->name, key, SHOWN, value ? text : "missing",
                length > SHOWN ? "..." : "", expected);
}

/* ---- a key ---- */

/* The error for a value that is not one of the names: only "a", "b" and "c" are supported. */
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

/* Stores the index of the value in the list of names. */
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

/* Members of an object. An unknown member is refused, because it may change the meaning of the others. */
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

/* Reads an object that may have either of two keys. If both are present they may be spelled differently, but
 * must mean the same. */
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

/* Determines the heads of the file's model from the class that transformers saved. */
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

/* Names the config after the preset that it equals. */
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
    json_auto_t *root = NULL;
    TRY(json_parse(text, length, name, &root));
    return read_root(&(File){root, name}, config);
}

Status config_read(const char *path, Config *config) {
    OWNED char *text = NULL;
    int64_t length;
    TRY(file_read(path, FILE_LIMIT, &text, &length));
    return config_parse(text, length, path, config);
}
