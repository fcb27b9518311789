/* device_batch: what a model reads at once, in device memory (in host memory: data/batch.h). Empty where the
 * model has no such thing, or nothing to say. */
#pragma once

#include "base/tensor.h"

typedef struct {
    Tensor tokens;   // (B, T) i32, each in [0, vocab): of the stack that the head reads
    Tensor pictures; // (B, H, W, channels) u8: instead of tokens
    Tensor segments; // (B, T) i32; empty: all 0
    Tensor lengths;  // (B) i32: tokens of each row that are attended to; empty: all
    Tensor starts;   // (B, T) i32: of each token's document (attention.h); empty: 0

    /* Of an encoder-decoder. */
    Tensor source;         // (B, S) i32: the encoder runs first
    Tensor source_lengths; // (B) i32, or empty
    Tensor memory;         // (B, S, C): an encoder's output from before, instead of source

    /* What the loss is taken against: Targets, in model/head.h. */
    Tensor targets; // (B, T) i32, or with rows (M)
    Tensor rows;    // (M) i32
    Tensor count;   // (1) fp32: targets that count
} DeviceBatch;
