/* packing: items of different lengths in rows that hold so much: the longest first, each into the fullest row
 * that it fits in. Rows are in the order of their first items, and so are a row's items. */
#pragma once

#include <stdint.h>

typedef struct {
    int64_t rows;
    int64_t *items;  // all items, row by row
    int64_t *starts; // (rows + 1) of each row in `items`
} Packing;

/* Each length is from 1 to `room`. To be freed. */
Packing pack_rows(const int64_t *lengths, int64_t count, int64_t room);
void packing_free(Packing *packing);
