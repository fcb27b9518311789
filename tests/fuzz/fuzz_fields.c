/* Fuzzes JSON objects with a table of fields of every kind: accepted ones must survive writing and
 * reading. */
#include "base/json_fields.h"
#include "base/json_read.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

typedef struct {
    int64_t count;
    bool truth;
} Inner;

typedef struct {
    char *text;
    int word;
    int64_t count, older;
    double measure, number, perhaps;
    Inner inner, *list;
    int64_t list_count;
    char **texts;
    int64_t texts_count;
} Outer;

static const char *word_of(int i) {
    static const char *const names[] = {"one", "two", NULL};
    return names[i];
}

static Status check_item(const json_t *item, const char *where) {
    return json_is_integer(item) ? OK : fail(ERROR_FORMAT, "%s: not a whole number", where);
}

static const Field inner_fields[] = {
    FIELD(COUNT, "count", Inner, count), FIELD(TRUTH, "truth", Inner, truth), {0}};

static const Field fields[] = {FIELD(TEXT, "text", Outer, text),
                               FIELD_WORD_OF("word", Outer, word, word_of),
                               FIELD(COUNT, "count", Outer, count),
                               FIELD_OPTIONAL(COUNT, "older", Outer, older),
                               FIELD(MEASURE, "measure", Outer, measure),
                               FIELD(NUMBER, "number", Outer, number),
                               FIELD(PERHAPS, "perhaps", Outer, perhaps),
                               FIELD_OBJECT_OF("inner", Outer, inner, inner_fields),
                               FIELD_LIST_OF("list", Outer, list, inner_fields),
                               {.key = "texts",
                                .kind = FIELD_TEXTS,
                                .offset = offsetof(Outer, texts),
                                .count = offsetof(Outer, texts_count)},
                               {0}};
static const Field items[] = {{.key = "items", .kind = FIELD_ITEMS, .check = check_item}, {0}};

static Status take(const char *text, int64_t length, Outer *outer) {
    json_t *root;
    *outer = (Outer){0};
    TRY(json_parse(text, length, "input", &root));
    Status status = fields_check(root, fields, "");
    if (!status && json_object_get(root, "items")) status = fields_check(root, items, "");
    if (!status) fields_read(root, fields, outer);
    json_decref(root);
    return status;
}

static void write_and_take(Outer *first) {
    Outer again;
    JsonWriter writer = {0};
    if (first->word < 0) first->word = 0;   // of another version
    if (first->older < 0) first->older = 0; // absent
    fields_write(&writer, fields, first);
    must(!take(writer.text, (int64_t)writer.length, &again));
    must(strcmp(first->text, again.text) == 0 && first->word == again.word && first->count == again.count);
    must(first->measure == again.measure && first->number == again.number);
    must(first->list_count == again.list_count && first->texts_count == again.texts_count);
    for (int64_t i = 0; i < again.texts_count; i++) must(strcmp(first->texts[i], again.texts[i]) == 0);
    fields_free(fields, &again);
    json_writer_free(&writer);
}

static void read_fields(const uint8_t *data, size_t size) {
    static bool described;
    Outer first;
    if (!described) fields_describe(fields, fuzz_nowhere);
    described = true;
    Status status = take((const char *)data, (int64_t)size, &first);
    if (!status) write_and_take(&first);
    if (status) must_refuse(status, ERROR_FORMAT);
    fields_free(fields, &first);
}

FUZZ(fields, read_fields, mutate_json)
