/* device_batch: one batch in device memory (in host memory: data/batch.h). Tensors that the model does not
 * use are empty. */
#pragma once

#include "base/tensor.h"

typedef struct {
    Tensor tokens;   // (B, T) i32, each in [0, vocab): input of the stack that the head reads
    Tensor pictures; // (B, H, W, channels) u8: instead of tokens
    Tensor segments; // (B, T) i32; empty: all 0
    Tensor lengths;  // (B) i32: number of tokens of each row that are attended to; empty: all
    Tensor starts;   // (B, T) i32: first position of each token's document (attention.h); empty: 0

    /* For an encoder-decoder. */
    Tensor source;         // (B, S) i32: the encoder runs first
    Tensor source_lengths; // (B) i32, or empty
    Tensor memory;         // (B, S, C): an encoder output computed before, instead of source

    /* For the loss: Targets, in model/head.h. */
    Tensor targets; // (B, T) i32, or with rows (M)
    Tensor rows;    // (M) i32
    Tensor count;   // (1) fp32: number of targets
} DeviceBatch;
