/* inference: a model that only runs forward, and its memory. */
#pragma once

#include "run/generate.h"
#include "run/replay.h"
#include "run/runner.h"

typedef enum {
    INFERENCE_LOGITS,   // logits of every position
    INFERENCE_HIDDEN,   // hidden states only, as a BERT is used for
    INFERENCE_LOSS,     // losses against targets
    INFERENCE_GENERATE, // a generator
} InferenceUse;

typedef struct {
    Ctx ctx;
    Transformer model;
    Generator generator;
    InferenceUse use;
    Dtype logits_dtype;     // of INFERENCE_LOGITS: that of the computation, or F32
    int64_t batch, seq;     // the largest that will be run; not of INFERENCE_GENERATE
    Tensor tokens, targets; // (batch, seq) i32, device memory
    Tensor pictures;        // (batch, height, width, channels) u8, instead of tokens; then seq is 1
    int64_t input_bytes;    // of the largest input
    bool mapped;            // of pictures: model.map gets what the class token attends to
    Tensor logits;          // (batch, seq, padded vocab) of the last inference_logits
    Work work;              // of the last pass
    Replay replay;          // the pass as a graph
} Inference;

/* `cached` is for generation: use the KV cache. Then set use, batch, seq, ... and inference_start. Close it
 * also after an error. The model must stay where it is. */
CHECKED Status inference_open(Inference *inference, const Session *session, bool cached);
void inference_close(Inference *inference);

/* Memory for what is set, with `compare` in naive form, too; and weights. */
CHECKED Status inference_start(Inference *inference, const Session *session, bool compare, int64_t seed);

/* A forward pass over host tokens (batch, seq), no larger than planned: logits stay on the device, and hidden
 * states and the map until the next pass. An encoder-decoder reads the tokens as source and target alike.
 * Does not wait. Of pictures, the input is u8 (batch, height, width, channels), and seq is 1. NULL: the last
 * input again. */
CHECKED Status inference_logits(Inference *inference, const void *input, int64_t batch, int64_t seq);

/* Sum of the losses of one batch; targets of -1 do not count. Waits. */
CHECKED Status inference_loss(Inference *inference, const int32_t *tokens, const int32_t *targets,
                              int64_t batch, int64_t seq, double *sum);
