#include "tests/support/fixture.h"

#include "tests/support/rig.h"

#include <stdio.h>
#include <string.h>

double *doubles_of(const Safetensors *file, const char *name) {
    const SafetensorsEntry *entry = safetensors_find(file, name);
    assert_non_null(entry);
    double *values = zeros(entry->count);
    if (entry->type == SAFE_F64)
        memcpy(values, entry->data, (size_t)entry->bytes);
    else
        for (int64_t i = 0; i < entry->count; i++) {
            float value;
            expect_ok(safetensors_read(entry, i, 1, &value));
            values[i] = (double)value;
        }
    return values;
}

double *flat_of(const Safetensors *file, const char *prefix, const Parameters *p) {
    double *flat = zeros(p->size);
    for (int i = 0; i < p->count; i++) {
        const ParameterInfo *info = &p->info[i];
        int64_t columns = info->count / info->shape.d[0];
        for (int part = 0; part < info->parts; part++) {
            char name[100], full[120];
            parameter_part_name(info, part, name);
            snprintf(full, sizeof full, "%s%s", prefix, name);
            const double *values = doubles_of(file, full);
            const ParameterRows at = parameter_part_rows(info, part);
            double *to = flat + info->offset + at.first * columns;
            for (int64_t row = 0; row < at.count; row++)
                for (int64_t column = 0; column < columns; column++)
                    to[row * columns + column] =
                        values[info->transposed ? column * at.count + row : row * columns + column];
        }
    }
    return flat;
}
