#include "data/decompose.h"

#include "base/memory.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

enum { DECOMPOSED_MOST = 18 /* code points of one character */, CLASSES = 256 };

static int combining_class(int32_t point) {
    return (int)utf8proc_get_property(point)->combining_class;
}

/* Sorts marks[0, count) by class, stably; `copy` is scratch of the same size. */
static void sort_marks(int32_t *marks, int64_t count, int32_t *copy) {
    int64_t first[CLASSES + 1] = {0};
    memcpy(copy, marks, (size_t)count * sizeof *copy);
    for (int64_t i = 0; i < count; i++) first[combining_class(copy[i]) + 1]++;
    for (int class = 0; class < CLASSES; class ++) first[class + 1] += first[class];
    for (int64_t i = 0; i < count; i++) marks[first[combining_class(copy[i])]++] = copy[i];
}

/* The end of the run of marks from `from` on; `sorted`: the run is in order. */
static int64_t run_end(const int32_t *points, int64_t from, int64_t count, bool *sorted) {
    int before = 0;
    *sorted = true;
    for (; from < count; from++) {
        int class = combining_class(points[from]);
        if (class == 0) break;
        if (class < before) *sorted = false;
        before = class;
    }
    return from;
}

int64_t unicode_decompose(const uint8_t *text, int64_t length, int32_t **points, int64_t *room) {
    int64_t count = 0, bytes;
    int bound = 0;
    for (int64_t at = 0; at < length; at += bytes) {
        int32_t point;
        bytes = utf8proc_iterate(text + at, length - at, &point);
        assert(bytes > 0); // the text is valid UTF-8
        *points = memory_grow(*points, room, count + DECOMPOSED_MOST, sizeof **points);
        count += utf8proc_decompose_char(point, *points + count, DECOMPOSED_MOST, UTF8PROC_DECOMPOSE, &bound);
    }
    for (int64_t from = 0, end; from < count; from = end + 1) {
        bool sorted;
        end = run_end(*points, from, count, &sorted);
        if (sorted) continue;
        *points = memory_grow(*points, room, count + end - from, sizeof **points);
        sort_marks(*points + from, end - from, *points + count);
    }
    return count;
}
