/* tensors: safetensors files with handwritten headers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* One tensor of a header. */
#define TENSOR(name, type, shape, from, to)                                                                  \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"

/* A file of a header followed by `data_size` bytes 0, 1, 2, .... The caller frees it. */
uint8_t *tensors_file(const char *header, size_t header_size, int64_t data_size, int64_t *size);
