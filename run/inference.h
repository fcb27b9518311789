/* inference: a model that only runs forward, and its memory. */
#pragma once

#include "run/generate.h"
#include "run/replay.h"
#include "run/runner.h"

typedef enum {
    INFERENCE_LOGITS,   // logits of every position
    INFERENCE_HIDDEN,   // only hidden states, as for a BERT's embeddings
    INFERENCE_LOSS,     // losses against targets
    INFERENCE_GENERATE, // a generator
} InferenceUse;

typedef struct {
    Ctx ctx;
    Transformer model;
    Generator generator;
    InferenceUse use;
    Dtype logits_dtype;       // for INFERENCE_LOGITS: the dtype of the computation, or F32
    int64_t batch, seq;       // sizes of the largest pass; not for INFERENCE_GENERATE
    Tensor tokens, targets;   // (batch, seq) i32, device memory
    Tensor pictures;          // (batch, height, width, channels) u8, instead of tokens; then seq is 1
    int64_t input_bytes;      // bytes of the largest input
    bool mapped;              // for pictures: model.map receives the class token's attention
    Tensor logits;            // (batch, seq, padded vocab) result of the last inference_logits
    size_t bytes[FORM_COUNT]; // bytes of memory by form; naive: 0 unless inference_start compares
    Work work;                // work of the last pass
    Replay replay;            // the pass as a graph
} Inference;

/* `cached` is for generation with a KV cache. After opening, set use, batch, seq, ... and call
 * inference_start. Close the inference also after an error. The model must not move. */
CHECKED Status inference_open(Inference *inference, const Session *session, bool cached);
void inference_close(Inference *inference);

/* Allocates memory for the settings, with `compare` also for the naive form, and loads the weights. */
CHECKED Status inference_start(Inference *inference, const Session *session, bool compare, int64_t seed);

/* A forward pass over host tokens (batch, seq), no larger than planned. Logits stay on the device; hidden
 * states and the map are valid until the next pass. An encoder-decoder reads the tokens as both source and
 * target. Does not wait. For pictures the input is u8 (batch, height, width, channels), and seq is 1. NULL:
 * the previous input again. */
CHECKED Status inference_logits(Inference *inference, const void *input, int64_t batch, int64_t seq);

/* The sum of the losses of one batch; targets of -1 are ignored. Waits. */
CHECKED Status inference_loss(Inference *inference, const int32_t *tokens, const int32_t *targets,
                              int64_t batch, int64_t seq, double *sum);
