/* architectures: what a Transformer can be, as data. A Config is one network: its choices and its numbers.
 * What a whole family of networks shares stands in a row of a table, which the Config points to. To add a
 * family is to add a row: no other code asks which family a network is of, only what its row and Config say. */
#ifndef MODEL_ARCHITECTURES_H
#define MODEL_ARCHITECTURES_H

#include "kernels/linear/linear.h"

#include <math.h>

typedef enum { MASK_CAUSAL, MASK_FULL } AttentionMask;
typedef enum { NORM_PRE, NORM_POST } NormOrder; // of each branch: Vaswani et al. 2017 have it after
typedef enum { POSITIONS_LEARNED, POSITIONS_SINUSOID } Positions;

/* What is trained. */
typedef enum {
    TASK_NEXT_TOKEN,
    TASK_MASKED_TOKEN, // Devlin et al. 2019, section 3.1
    TASK_SEQUENCE,     // the next token of the target, given the source
} Task;

typedef struct Architecture Architecture;

/* The stack is what the head reads. Where encoder_layers is not 0, each of its blocks attends to the output
 * of a second stack, the encoder, whose own attention is never masked. A member that is added here goes into
 * config.c's list of fields as well. */
typedef struct {
    char name[32];                    // of the preset that it equals, or "custom"
    const Architecture *architecture; // the row of its family
    Activation activation;
    NormOrder norm_order; // NORM_PRE ends each stack with a norm of its own
    Positions positions;
    bool embedding_scale;   // the token's row is multiplied by sqrt(width)
    bool tied_tables;       // source and target share a token table
    bool tied_head;         // the head's weight is the token table
    bool head_transform;    // BERT's head: linear, activation, norm before the vocabulary, and a bias
    bool pooler;            // BERT's linear and tanh of the first token
    int64_t segments;       // kinds of segments; 0: none
    int64_t layers;         // of the stack
    int64_t encoder_layers; // 0: no encoder
    int64_t heads, kv_heads;
    int64_t width;   // C: of the residual stream; heads divides it
    int64_t hidden;  // of the feed-forward layer, 4C in GPT-2
    int64_t context; // positions the model knows
    int64_t vocab;   // tokens that exist; the tables hold config_padded_vocab() rows
    double norm_eps;
    double init_std; // of the normal distribution that weights start from; 0: Glorot's, by their sizes
} Config;

enum { VOCAB_PADDING = 128 };

/* vocab rounded up to a multiple of 128: products like whole tiles. Padding rows are never predicted. */
static inline int64_t config_padded_vocab(const Config *c) {
    return (c->vocab + VOCAB_PADDING - 1) / VOCAB_PADDING * VOCAB_PADDING;
}
static inline int64_t config_head_size(const Config *c) {
    return c->width / c->heads;
}
/* What a token's row of its table is multiplied by: sqrt(C) in Vaswani et al. 2017, section 3.4, else 1. */
static inline double config_token_scale(const Config *c) {
    return c->embedding_scale ? sqrt((double)c->width) : 1;
}

/* ---- config.json ---- */

/* A value's name in files. Of names for one value the first is written. */
typedef struct {
    const char *name; // NULL ends a list
    int value;
} ConfigChoice;

/* A key of config.json: a field of the Config, or something that is the same in the whole family. */
typedef struct {
    const char *key;             // NULL ends a list
    size_t field;                // offset in Config; 0: none
    bool required;               // otherwise the row's default stands where it is absent or null
    const char *alias;           // a second key that says the same, in files with it or instead of it
    const ConfigChoice *choices; // of a field that is an enum
    const char *only;    // JSON of the only value that is supported; what else a file has is turned away
    const char *written; // JSON that is written where there is no field
    bool end_of_text;    // no field: the id that begins and ends texts is written
} ConfigKey;

/* A class of transformers that a file can name under "architectures", and the heads that it has. */
typedef struct {
    const char *name;
    bool head_transform, pooler;
} ModelClass;

/* ---- model.safetensors ---- */

/* Names within a block. What has a weight and a bias ends so that "weight" and "bias" can follow. With
 * "{query,key,value}" the file holds the layer as so many tensors, one below the other in memory. NULL: the
 * family has no such thing. */
typedef struct {
    const char *prefix; // of the block, with its number
    const char *norm1, *qkv, *projection, *cross_norm, *cross, *cross_projection, *norm2, *expand, *contract;
} BlockNames;

typedef struct {
    const char *token, *position, *segment, *embedding_norm, *final_norm;
    BlockNames block;
} StackNames;

/* Tensors of a file that may be passed over. */
typedef struct {
    const char *pattern; // a shell's, for names without the optional prefix; NULL ends a list
    size_t unless;       // offset of a flag in Config that, if set, forbids it; 0: always
} IgnoredNames;

typedef struct {
    const char *optional; // a prefix that files may leave out: "transformer.", "bert."
    StackNames stack, encoder;
    const char *transform, *transform_norm, *head, *head_bias, *pooler;
    bool transposed;             // the blocks' matrices are stored (in, out), as GPT-2's Conv1D does
    const IgnoredNames *ignored; // or NULL; a copy of a tied head is passed over anyway
} ParameterNames;

/* ---- the table ---- */

struct Architecture {
    const char *type;        // "model_type" of config.json
    const char *description; // for messages: "a decoder-only model"
    Task task;               // what it is trained on
    AttentionMask mask;      // of the stack's self-attention
    bool encoder;            // there is a second stack
    bool embedding_norm;     // a norm after the tables' sum
    bool qkv_as_one; // queries, keys and values are one layer, not three: naive forms run each by itself
    bool shrunk_residuals; // what a block adds to the stream starts smaller, by 1 / sqrt(2 * layers)
    bool decodes;          // the operation for one token of one sequence (kernels/decode/decode.h) serves it
    Config defaults;       // what its networks have unless they say otherwise; 0: see config_complete
    const ConfigKey *keys;
    const ModelClass *classes; // the last is that of a file that names none of them; NULL: files name none
    int class_count;
    ParameterNames names;
};

/* The rows; NULL after the last. */
const Architecture *architecture_at(int index);

/* Sizes of a network that has a name. */
typedef struct {
    const char *name;
    const Architecture *architecture;
    int64_t layers, heads, width, context, vocab;
} Preset;

/* The presets; NULL after the last. */
const Preset *preset_at(int index);
#endif
