/* session: what ./train and ./infer both begin with: a device, a precision, a model's description, its
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
    bool bf16_fast; // it is faster than fp32: on a GPU, and on a CPU whose instructions multiply it faster
    uint32_t fuses;
    bool graphs;
    Dtype packed; // of weights in inference: I8 or I4 by groups; F32: as dtype says (model/parameters.h)
    Config config;
    char *folder;         // that the model comes from; NULL for a preset
    char *name;           // of the folder, as a terminal may show it
    Labels labels;        // the names of a model's classes
    Kept kept;            // what else the folder says
    Tokenizer *tokenizer; // NULL where none is known: only shards can be read, and nothing can be written out
} Session;

typedef enum { EMBEDDINGS_SHARED, EMBEDDINGS_SEPARATE } Embeddings;

/* What replaces the model's; 0 keeps it. Only for presets; encoder_layers, pre_norm and embeddings only for
 * an encoder-decoder, where `layers` without encoder_layers is for both stacks. */
typedef struct {
    int64_t layers, heads, width, context, vocab;
    int64_t encoder_layers;
    bool pre_norm;
    Embeddings embeddings;
    bool mean_pooling; // the head of a vision Transformer reads the patches' mean: there is no class token
    /* Also of a folder's model. */
    int64_t image; // of a vision Transformer, pixels of a picture's side: positions are made to fit
    bool new_head; // of that or a BERT: the folder's head gives way to one that is drawn, or it gets one
} ConfigSizes;

/* Opens the device, then reads the model's description (a preset's name, a folder, or a run's folder, of
 * which the latest checkpoint is taken) and the tokenizer: the named one, else the folder's own, else bytes
 * for a model of at most 256 tokens. A preset whose --vocab is not given gets the vocabulary of a named
 * tokenizer. ERROR_USAGE for a tokenizer with more tokens than the model. */
CHECKED Status session_open(Session *session, const char *model, const ConfigSizes *sizes,
                            const char *tokenizer, const ComputeOptions *compute);
void session_close(Session *session);

/* ERROR_USAGE where `model` is a preset that with these sizes is another than the session's model. */
CHECKED Status session_expect(const Session *session, const char *model, const ConfigSizes *sizes);

/* Gives a vision Transformer that has not been loaded yet pictures of another side, in pixels: positions are
 * made to fit. ERROR_USAGE for another model, or a side that is not made of patches. */
CHECKED Status session_scale(Session *session, int64_t side);

/* The weights of the model's folder; of a preset new ones, drawn by `seed`. */
CHECKED Status session_load(const Session *session, Ctx *ctx, Parameters *parameters, uint64_t seed);

/* The folder that it came from, as a terminal may show it, or the preset's name. */
const char *session_model_name(const Session *session);

/* "fp32", "tf32", "bf16", "fp64" */
const char *session_dtype_name(const Session *session);
