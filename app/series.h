/* series: numbers, as many as come. */
#pragma once

#include "base/memory.h"

typedef struct {
    double *values; // (count), the owner's to memory_free
    int64_t count, room;
} Series;

static inline void series_add(Series *series, double value) {
    series->values = memory_grow(series->values, &series->room, series->count + 1, sizeof *series->values);
    series->values[series->count++] = value;
}
