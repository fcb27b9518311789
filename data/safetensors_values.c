/* Elements of a safetensors entry as fp32. */
#include "base/bfloat16.h"
#include "data/safetensors.h"

#include <math.h>
#include <string.h>

/* IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. */
static float half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude;
    if (exponent == 31)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf((float)fraction, -24);
    else
        magnitude = ldexpf((float)(fraction + 1024), exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

static void read_halves(const uint8_t *from, int64_t count, float (*value)(uint16_t), float *values) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        values[i] = value(bits);
    }
}

static void read_doubles(const uint8_t *from, int64_t count, float *values) {
    for (int64_t i = 0; i < count; i++) {
        double wide;
        memcpy(&wide, from + 8 * i, sizeof wide);
        values[i] = (float)wide;
    }
}

Status safetensors_read(const SafetensorsEntry *entry, int64_t first, int64_t count, float *values) {
    if (count == 0) return OK;
    const uint8_t *from = entry->data + first * safetensors_type_size(entry->type);
    if (entry->type == SAFE_F32)
        memcpy(values, from, (size_t)count * sizeof *values);
    else if (entry->type == SAFE_F64)
        read_doubles(from, count, values);
    else if (entry->type == SAFE_F16)
        read_halves(from, count, half_value, values);
    else if (entry->type == SAFE_BF16)
        read_halves(from, count, bfloat16_to_float, values);
    else
        return fail(ERROR_FORMAT, "tensor '%.80s' holds %s; F32, F64, BF16 or F16 is needed", entry->name,
                    safetensors_type_name(entry->type));
    return OK;
}
