/* cache: the key-value cache of a stack, layer by layer, and keys and values of the encoder's output. */
#pragma once

#include "base/tensor.h"

typedef struct {
    Tensor k, v;             // (layers, B, capacity, kv_heads*D)
    int64_t length;          // number of cached tokens: the position of the next one
    Tensor length_on_device; // (1) i32 or empty: `length` in device memory (embed.h, attention.h)
    Tensor memory;           // (layers, B, S, 2*kv_heads*D); empty without an encoder
    Tensor memory_lengths;   // (B) i32, or empty
} Cache;

/* One layer's view of k, v or memory: (B, rows, columns). */
static inline Tensor cache_layer(Tensor all, int64_t layer) {
    Shape shape = shape3(all.shape.d[1], all.shape.d[2], all.shape.d[3]);
    return tensor_elements(all, layer * shape_count(shape), shape);
}
