#include "kernels/ctx.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

static const char *const operation_names[OP_COUNT] = {
#define OPERATION(name, NAME, CATEGORY) [OP_##NAME] = #name,
#include "kernels/ops.def"
#undef OPERATION
};

static const char operation_list[] =
#define OPERATION(name, NAME, CATEGORY) " " #name
#include "kernels/ops.def"
#undef OPERATION
    ;

const char *operation_name(Operation operation) {
    return operation_names[operation];
}

Category operation_category(Operation operation) {
    static const Category categories[OP_COUNT] = {
#define OPERATION(name, NAME, CATEGORY) [OP_##NAME] = CATEGORY_##CATEGORY,
#include "kernels/ops.def"
#undef OPERATION
    };
    return categories[operation];
}

static Status fuse_named(const char *name, size_t length, uint32_t *bit) {
    for (int i = 0; i < OP_COUNT; i++)
        if (strlen(operation_names[i]) == length && strncmp(operation_names[i], name, length) == 0) {
            *bit = 1u << i;
            return OK;
        }
    static const struct {
        const char *name;
        uint32_t bit;
    } others[] = {{"fp8", FUSE_FP8}, {"invariant", FUSE_INVARIANT}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i].name) == length && strncmp(others[i].name, name, length) == 0) {
            *bit = others[i].bit;
            return OK;
        }
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)(length < 63 ? length : 63), name);
    const Hint hint = nearest_hint(text, "'", "'", operation_names, OP_COUNT);
    return fail(ERROR_USAGE, "--fused: no operation is named '%s'%s There are%s, fp8 and invariant", text,
                *hint.text ? hint.text : ".", operation_list);
}

Status fuses_parse(const char *text, uint32_t *fuses) {
    _Static_assert(OP_COUNT < 31, "a fuse is a bit");
    const uint32_t all = (1u << OP_COUNT) - 1;
    uint32_t result = *text == '-' ? all : 0; // "-attention" is "1,-attention"
    for (const char *word = text;;) {
        size_t length = strcspn(word, ",");
        uint32_t bit = 0;
        if (length == 1 && (*word == '0' || *word == '1')) {
            if (word != text)
                return fail(ERROR_USAGE,
                            "--fused=%s: 0 or 1 can only come first; write for example 1,-attention", text);
            result = *word == '1' ? all : 0;
        } else if (length > 1 && *word == '-') {
            TRY(fuse_named(word + 1, length - 1, &bit));
            result &= ~bit;
        } else {
            TRY(fuse_named(word, length, &bit));
            result |= bit;
        }
        word += length;
        if (!*word) break;
        word++;
    }
    *fuses = result;
    return OK;
}
