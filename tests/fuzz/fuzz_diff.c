/* Fuzzes diff with two bundles and a limit, separated by zero bytes: accepted ones must be comparable. */
#include "base/memory.h"
#include "report/diff.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* The text up to the next zero; the rest follows it. */
static const uint8_t *part_at(const uint8_t *at, const uint8_t *end, size_t *length) {
    const uint8_t *zero = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
    *length = (size_t)((zero ? zero : end) - at);
    return zero ? zero + 1 : end;
}

static void compare(const Bundle *before, const Bundle *after, const DiffLimit *limit, int limits) {
    int exceeded;
    const DiffSide sides[2] = {{before, 1}, {after, 1}};
    Status status = diff_bundles(sides, limit, limits, fuzz_nowhere, &exceeded);
    must(!status || status_code(status) == ERROR_USAGE);
    must(exceeded >= 0 && exceeded <= limits * FORM_COUNT);
    status_free(status);
}

static void read_diff(const uint8_t *data, size_t size) {
    const uint8_t *end = data + size, *first, *second;
    size_t lengths[3];
    DiffLimit limit;
    Bundle bundles[2] = {0};
    first = part_at(data, end, &lengths[0]);
    second = part_at(first, end, &lengths[1]);
    part_at(second, end, &lengths[2]);
    char *text = memory_text_slice((const char *)data, lengths[0]);
    Status status = diff_limit_parse(text, &limit);
    int limits = status == OK;
    if (status) must_refuse(status, ERROR_USAGE);
    memory_free(text);
    status = bundle_parse((const char *)first, (int64_t)lengths[1], "before", &bundles[0]);
    if (!status) status = bundle_parse((const char *)second, (int64_t)lengths[2], "after", &bundles[1]);
    if (status)
        must_refuse(status, ERROR_FORMAT);
    else
        compare(&bundles[0], &bundles[1], &limit, limits);
    bundle_free(&bundles[0]);
    bundle_free(&bundles[1]);
}

FUZZ(diff, read_diff, NULL)
