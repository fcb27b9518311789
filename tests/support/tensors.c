#include "tests/support/tensors.h"

#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

uint8_t *tensors_file(const char *header, size_t header_size, int64_t data_size, int64_t *size) {
    *size = 8 + (int64_t)header_size + data_size;
    uint8_t *file = malloc((size_t)*size);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)(header_size >> 8 * i);
    memcpy(file + 8, header, header_size);
    for (int64_t i = 0; i < data_size; i++) file[8 + (int64_t)header_size + i] = (uint8_t)i;
    return file;
}
