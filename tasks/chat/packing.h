/* packing: packs items of different lengths into rows of limited size: longest first, each into the fullest
 * row that it fits. Rows are sorted by their first items, and so are the items of a row. */
#pragma once

#include <stdint.h>

typedef struct {
    int64_t rows;
    int64_t *items;  // all items, row by row
    int64_t *starts; // (rows + 1) offset of each row in `items`
} Packing;

/* Each length is from 1 to `room`, the size of a row. The caller frees the result. */
Packing pack_rows(const int64_t *lengths, int64_t count, int64_t room);
void packing_free(Packing *packing);
