/* session: the things that ./train and ./infer open first: device, precision, model description,
 * tokenizer. */
#pragma once

#include "data/tokenizer.h"
#include "run/compute_options.h"
#include "model/config.h"
#include "model/parameters.h"

typedef struct {
    Device *device;
    Dtype dtype;
    bool tf32;
    bool bf16_fast; // bf16 is faster than fp32: on a GPU, and on a CPU with fast bf16 instructions
    uint32_t fuses;
    bool graphs;
    bool shows_progress; // show a bar on the terminal while weights are loaded
    Dtype packed;        // dtype of weights in inference: I8 or I4 by groups; F32: as dtype says
                         // (model/parameters.h)
    Dtype stored;        // the same of the folder's weights
    Config config;
    char *folder;         // the model's folder; NULL for a preset
    char *name;           // the folder's name, safe for a terminal
    Labels labels;        // the names of a model's classes
    Kept kept;            // unused keys of the folder's configuration, which are saved again
    Tokenizer *tokenizer; // NULL if none is known: only shards can be read, and no text can be written
} Session;

typedef enum { EMBEDDINGS_SHARED, EMBEDDINGS_SEPARATE } Embeddings;

/* Sizes that replace the model's; 0 keeps the model's. Only for presets. encoder_layers, pre_norm and
 * embeddings are only for an encoder-decoder, where `layers` without encoder_layers sets both stacks. */
typedef struct {
    int64_t layers, heads, width, context, vocab;
    int64_t encoder_layers;
    bool pre_norm;
    Embeddings embeddings;
    bool mean_pooling; // a vision Transformer without a class token: its head reads the patches' mean
    /* Also for a model from a folder. */
    int64_t image; // vision Transformers: side of a picture in pixels; positions are interpolated
    bool new_head; // vision Transformers and BERT: replace the folder's head, or add one, with initial
                   // weights
} ConfigSizes;

/* Opens the device, then reads the model's description (a preset's name, a folder, or a run's folder, whose
 * latest checkpoint is used) and the tokenizer: the named one, else the folder's own, else bytes for a model
 * of at most 256 tokens. A preset without --vocab gets the vocabulary of a named tokenizer. ERROR_USAGE for a
 * tokenizer with more tokens than the model. */
CHECKED Status session_open(Session *session, const char *model, const ConfigSizes *sizes,
                            const char *tokenizer, const ComputeOptions *compute);
void session_close(Session *session);

/* ERROR_USAGE if `model` is a preset that, with these sizes, differs from the session's model. */
CHECKED Status session_expect(const Session *session, const char *model, const ConfigSizes *sizes);

/* Changes the size of pictures, in pixels, of a vision Transformer that has not been loaded yet: positions
 * are interpolated. ERROR_USAGE for another model, or a side that is not a multiple of the patch. */
CHECKED Status session_scale(Session *session, int64_t side);

/* Loads the weights of the model's folder; for a preset initializes new ones from `seed`. */
CHECKED Status session_load(const Session *session, Ctx *ctx, Parameters *parameters, uint64_t seed);

/* The model's folder name, safe for a terminal, or the preset's name. */
const char *session_model_name(const Session *session);

/* "fp32", "tf32", "bf16", "fp64" */
const char *session_dtype_name(const Session *session);
