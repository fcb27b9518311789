#include "base/options_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 16, CHOICE_NAME = 32, LIST_MOST = 1 << 20 };

static void *field_of(const OptionSet *set, int index) {
    return set->fields[index];
}

/* ---- numbers ---- */

static Status expect_integer(const Option *option) {
    if (option->most == INT64_MAX)
        return fail(ERROR_USAGE, "expected a whole number of at least %" PRId64 "%s%s", option->least,
                    option->word ? ", or " : "", option->word ? option->word : "");
    return fail(ERROR_USAGE, "expected a whole number from %" PRId64 " to %" PRId64, option->least,
                option->most);
}

/* Digits with or without a sign, ended by `end`. strtoll alone would accept leading blanks. */
static Status parse_integer(const Option *option, const char *text, size_t length, int64_t *value) {
    if (option->word && strcmp(text, option->word) == 0) {
        *value = option->least - 1;
        return OK;
    }
    size_t sign = length && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    if (length == sign || strspn(text + sign, "0123456789") < length - sign) return expect_integer(option);
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (errno || number < option->least || number > option->most) return expect_integer(option);
    *value = number;
    return OK;
}

static Status parse_number(const Option *option, const char *text, double *value) {
    char *end = NULL;
    double number = NAN;
    /* No blanks, no hexadecimal, no names such as inf. The programs stay in the "C" locale. */
    if (*text && strspn(text, "0123456789+-.eE") == strlen(text)) number = strtod(text, &end);
    bool inside = option->above ? number > option->low : number >= option->low;
    inside = inside && (option->below ? number < option->high : number <= option->high);
    if (end && end != text && !*end && isfinite(number) && inside) {
        *value = number + 0.0; // -0 is 0
        return OK;
    }
    const char *from = option->above ? "above" : "of at least";
    if (option->high == HUGE_VAL) return fail(ERROR_USAGE, "expected a number %s %g", from, option->low);
    if (!option->above && !option->below)
        return fail(ERROR_USAGE, "expected a number from %g to %g", option->low, option->high);
    return fail(ERROR_USAGE, "expected a number %s %g and %s %g", from, option->low,
                option->below ? "below" : "at most", option->high);
}

static Status parse_flag(const char *text, bool *value) {
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return fail(ERROR_USAGE, "expected 0 or 1, or no value, which means 1");
    *value = *text == '1';
    return OK;
}

static Status parse_list(const Option *option, const char *text, OptionList *list) {
    int64_t count = 1;
    for (const char *at = text; *at; at++) count += *at == ',';
    if (count > LIST_MOST) return fail(ERROR_USAGE, "expected at most %d numbers", LIST_MOST);
    int64_t *values = memory_array((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        size_t length = strcspn(text, ",");
        Status status = parse_integer(option, text, length, &values[i]);
        if (status) {
            memory_free(values);
            return fail_at(status, "number %" PRId64 " of the list", i + 1);
        }
        text += length + 1;
    }
    *list = (OptionList){values, count};
    return OK;
}

/* ---- choices ---- */

/* Splits "a|b|c". Tables are part of the program, so the bounds are assertions. */
static int split_choices(const char *choices, char names[CHOICES][CHOICE_NAME]) {
    int count = 0;
    for (const char *at = choices; count < CHOICES;) {
        size_t length = strcspn(at, "|");
        snprintf(names[count++], CHOICE_NAME, "%.*s", (int)length, at);
        if (!at[length]) break;
        at += length + 1;
    }
    return count;
}

static Status parse_choice(const Option *option, const char *text, int *value) {
    char names[CHOICES][CHOICE_NAME];
    const char *pointers[CHOICES];
    int count = split_choices(option->choices, names);
    for (int i = 0; i < count; i++) {
        pointers[i] = names[i];
        if (strcmp(text, names[i]) == 0) {
            *value = i;
            return OK;
        }
    }
    return fail(ERROR_USAGE, "expected %s%s", option->choices,
                nearest_hint(text, "'", "'", pointers, count).text);
}

/* ---- any kind ---- */

static void replace_owned(OptionSet *set, int index, void *memory) {
    memory_free(set->owned[index]);
    set->owned[index] = memory;
}

static char *joined(const char *first, const char *second) {
    size_t length = strlen(first), room = length + strlen(second) + 2;
    char *text = memory_allocate(room);
    snprintf(text, room, "%s%c%s", first, OPTION_SEPARATOR, second);
    return text;
}

Status option_store(OptionSet *set, int index, const char *text) {
    const Option *option = &set->table[index];
    void *field = field_of(set, index);
    switch (option->kind) {
    case OPTION_FLAG: return parse_flag(text, field);
    case OPTION_INTEGER: return parse_integer(option, text, strlen(text), field);
    case OPTION_NUMBER: return parse_number(option, text, field);
    case OPTION_CHOICE: return parse_choice(option, text, field);
    case OPTION_TEXT: {
        const char *before = *(const char **)field;
        bool more = option->several && set->owned[index] && *before;
        char *copy = more ? joined(before, text) : memory_text(text);
        *(const char **)field = copy;
        replace_owned(set, index, copy);
        return OK;
    }
    case OPTION_LIST: {
        OptionList list;
        TRY(parse_list(option, text, &list));
        *(OptionList *)field = list;
        replace_owned(set, index, list.values);
        return OK;
    }
    case OPTION_HEADING: break;
    }
    return fail(ERROR_INTERNAL, "a heading was given a value");
}

static void list_text(const OptionList *list, char *text, size_t room) {
    size_t used = 0;
    *text = 0;
    for (int64_t i = 0; i < list->count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId64, i ? "," : "", list->values[i]);
}

void option_text(const OptionSet *set, int index, char *text, size_t room) {
    const Option *option = &set->table[index];
    const void *field = field_of(set, index);
    *text = 0;
    switch (option->kind) {
    case OPTION_FLAG: snprintf(text, room, "%d", *(const bool *)field); break;
    case OPTION_INTEGER: snprintf(text, room, "%" PRId64, *(const int64_t *)field); break;
    case OPTION_TEXT: snprintf(text, room, "%s", *(const char *const *)field); break;
    case OPTION_LIST: list_text(field, text, room); break;
    case OPTION_NUMBER: {
        char digits[NUMBER_TEXT];
        number_text(*(const double *)field, digits);
        snprintf(text, room, "%s", digits);
        break;
    }
    case OPTION_CHOICE: {
        char names[CHOICES][CHOICE_NAME];
        int count = split_choices(option->choices, names), value = *(const int *)field;
        if (value >= 0 && value < count) snprintf(text, room, "%s", names[value]);
        break;
    }
    case OPTION_HEADING: break;
    }
}

void option_write_json(const OptionSet *set, int index, JsonWriter *writer) {
    const void *field = field_of(set, index);
    char name[CHOICE_NAME];
    switch (set->table[index].kind) {
    case OPTION_FLAG: json_write_boolean(writer, *(const bool *)field); break;
    case OPTION_INTEGER: json_write_integer(writer, *(const int64_t *)field); break;
    case OPTION_NUMBER: json_write_number(writer, *(const double *)field); break;
    case OPTION_TEXT: json_write_text(writer, *(const char *const *)field); break;
    case OPTION_CHOICE:
        option_text(set, index, name, sizeof name);
        json_write_text(writer, name);
        break;
    case OPTION_LIST: {
        const OptionList *list = field;
        json_write_open(writer, '[');
        for (int64_t i = 0; i < list->count; i++) json_write_integer(writer, list->values[i]);
        json_write_close(writer, ']');
        break;
    }
    case OPTION_HEADING: break;
    }
}
