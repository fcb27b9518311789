#include "tasks/chat/packing.h"

#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

/* Lists of items by length, or of rows by remaining space. */
typedef struct {
    int64_t *first, *next; // -1: none
} Lists;

static Lists lists_open(int64_t keys, int64_t items) {
    Lists l = {memory_array((size_t)keys, sizeof *l.first), memory_array((size_t)items, sizeof *l.next)};
    memset(l.first, -1, (size_t)keys * sizeof *l.first);
    return l;
}

static void lists_close(Lists *l) {
    memory_free(l->first);
    memory_free(l->next);
}

static void put(Lists *l, int64_t key, int64_t item) {
    l->next[item] = l->first[key];
    l->first[key] = item;
}

static int64_t take(Lists *l, int64_t key) {
    int64_t item = l->first[key];
    l->first[key] = l->next[item];
    return item;
}

/* Assigns each item to a row, numbered in order of opening; returns the number of rows. */
static int64_t assign(const int64_t *lengths, int64_t count, int64_t room, int64_t *row_of) {
    Lists items = lists_open(room + 1, count), rows = lists_open(room + 1, count);
    int64_t opened = 0;
    for (int64_t i = count - 1; i >= 0; i--) put(&items, lengths[i], i);
    for (int64_t length = room; length > 0; length--)
        while (items.first[length] >= 0) {
            int64_t item = take(&items, length), left = length;
            while (left < room && rows.first[left] < 0) left++;
            bool fits = left < room;
            row_of[item] = fits ? take(&rows, left) : opened++;
            put(&rows, left - length, row_of[item]);
        }
    lists_close(&items);
    lists_close(&rows);
    return opened;
}

Packing pack_rows(const int64_t *lengths, int64_t count, int64_t room) {
    Packing p = {.items = memory_array((size_t)count, sizeof *p.items)};
    OWNED int64_t *row_of = memory_array((size_t)count, sizeof *row_of);
    int64_t opened = assign(lengths, count, room, row_of);
    /* The number of a row, by its first item. */
    OWNED int64_t *number = memory_array((size_t)opened, sizeof *number);
    OWNED int64_t *filled = memory_array((size_t)opened, sizeof *filled);
    p.starts = memory_array((size_t)opened + 1, sizeof *p.starts);
    memset(p.starts, 0, ((size_t)opened + 1) * sizeof *p.starts);
    memset(number, -1, (size_t)opened * sizeof *number);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = row_of[i];
        if (number[row] < 0) number[row] = p.rows++;
        p.starts[number[row] + 1]++;
    }
    for (int64_t row = 0; row < opened; row++) {
        p.starts[row + 1] += p.starts[row];
        filled[row] = p.starts[row];
    }
    for (int64_t i = 0; i < count; i++) p.items[filled[number[row_of[i]]]++] = i;
    return p;
}

void packing_free(Packing *p) {
    memory_free(p->items);
    memory_free(p->starts);
    *p = (Packing){0};
}
