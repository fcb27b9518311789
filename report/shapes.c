#include "report/shapes.h"

#include <stdio.h>

void shapes_print(const Shape shapes[], int count, char text[SHAPES_BYTES]) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < count && used < SHAPES_BYTES; i++) {
        used += (size_t)snprintf(text + used, SHAPES_BYTES - used, i ? ", [" : "[[");
        for (int axis = 0; axis < shapes[i].rank && used < SHAPES_BYTES; axis++)
            used += (size_t)snprintf(text + used, SHAPES_BYTES - used, axis ? ", %lld" : "%lld",
                                     (long long)shapes[i].d[axis]);
        if (used < SHAPES_BYTES)
            used += (size_t)snprintf(text + used, SHAPES_BYTES - used, i == count - 1 ? "]]" : "]");
    }
}
