/* architectures: what a Transformer can be, as data. A Config is one network: its choices and its numbers.
 * What a whole family of networks shares stands in a row of a table, which the Config points to. To add a
 * family is to add a row: no other code asks which family a network is of, only what its row and Config
 * say. */
#pragma once

#include "data/end_tokens.h"
#include "tasks/pictures/images/processor.h"
#include "tasks/pictures/images/labels.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/patch/patch.h"

#include <math.h>

typedef enum { MASK_CAUSAL, MASK_FULL } AttentionMask;
typedef enum { NORM_PRE, NORM_POST } NormOrder; // of each branch: Vaswani et al. 2017 have it after
typedef enum { POSITIONS_LEARNED, POSITIONS_SINUSOID, POSITIONS_ROTARY } Positions;

/* How a model reads further than it was first trained to: model/parameter_values.c has the formulas. */
typedef enum { ROTARY_PLAIN, ROTARY_LINEAR, ROTARY_LLAMA3 } RotaryScaling;

/* Rotary positions: Su et al. 2021. */
typedef struct {
    double theta; // pair i of D/2 turns by theta^(-2i/D) a position
    RotaryScaling scaling;
    double factor; // by which the context was stretched; 0 with ROTARY_PLAIN
    /* Of ROTARY_LLAMA3: positions before the context was stretched, and turns within them: a pair with fewer
     * than `low` is slowed by `factor`, one with more than `high` not at all. */
    double low, high;
    int64_t context;
} Rotary;

/* What is trained. */
typedef enum {
    TASK_NEXT_TOKEN,
    TASK_MASKED_TOKEN, // Devlin et al. 2019, section 3.1
    TASK_SEQUENCE,     // the next token of the target, given the source
    TASK_CLASS,        // of a picture: Dosovitskiy et al. 2021
} Task;

typedef struct Architecture Architecture;

/* The stack is what the head reads. Where encoder_layers is not 0, each of its blocks attends to the output
 * of a second stack, the encoder, whose own attention is never masked. A member that is added here goes into
 * config.c's list of fields as well. */
typedef struct {
    char name[32];                    // of the preset that it equals or comes from, or "custom"
    const Architecture *architecture; // the row of its family
    Activation activation;            // of the feed-forward layers
    NormKind norm_kind;
    NormOrder norm_order;
    bool final_norm; // a norm of its own ends each stack: always with NORM_PRE, and in torch.nn.Transformer
    Positions positions;
    Rotary rotary;          // of POSITIONS_ROTARY
    bool attention_bias;    // queries, keys and values have biases, and the projection (but see the row)
    bool mlp_bias;          // the feed-forward layers have biases
    bool head_norms;        // a norm of each head's queries, and one of its keys
    bool embedding_scale;   // the token's row is multiplied by sqrt(width)
    bool tied_tables;       // source and target share a token table
    bool tied_head;         // the head's weight is the token table
    bool head_transform;    // BERT's head: linear, activation, norm before the vocabulary, and a bias
    bool pooler;            // BERT's linear and tanh of the first token
    bool class_head;        // a linear layer to the classes, and its bias
    bool class_token;       // before the patches, and read by the head; without it that reads their mean
    int64_t segments;       // kinds of segments; 0: none
    int64_t layers;         // of the stack
    int64_t encoder_layers; // 0: no encoder
    int64_t heads, kv_heads;
    int64_t head_size; // D: width / heads, unless the family says otherwise
    int64_t width;     // C: of the residual stream
    int64_t hidden;    // of the feed-forward layer, 4C in GPT-2; a gated one has as much again for the gate
    int64_t image;     // pixels of a picture's side; 0: the model reads tokens
    int64_t patch;     // pixels of a patch's side
    int64_t channels;  // of a pixel
    int64_t context;   // positions the model knows; of pictures: a patch each, and the class token
    int64_t vocab;     // tokens that exist, or classes; the tables hold config_padded_vocab() rows
    double norm_eps;
    double init_std; // of the normal distribution that weights start from; 0: Glorot's, by their sizes
    EndTokens ends;  // no field of config.c: it changes nothing that is computed
    bool new_head;   // no field: the head is drawn, whatever a folder has
    const char
        *other_head; // no field: what a head of the folder is for that is passed over; NULL: there is none
    const Labels *labels;     // no field: names of the classes, somebody else's; NULL: they have none
    ImageProcessor processor; // no field either: a folder's preprocessor_config.json has it
} Config;

enum { VOCAB_PADDING = 128 };

/* vocab rounded up to a multiple of 128: products like whole tiles. Padding rows are never predicted. */
static inline int64_t config_padded_vocab(const Config *c) {
    return (c->vocab + VOCAB_PADDING - 1) / VOCAB_PADDING * VOCAB_PADDING;
}
/* Columns of all heads' queries, and of all keys or all values. */
static inline int64_t config_query_width(const Config *c) {
    return c->heads * c->head_size;
}
static inline int64_t config_kv_width(const Config *c) {
    return c->kv_heads * c->head_size;
}
/* Patches of a picture. */
static inline int64_t config_patches(const Config *c) {
    return c->patch > 0 ? (c->image / c->patch) * (c->image / c->patch) : 0;
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
typedef struct ConfigKey ConfigKey;
struct ConfigKey {
    const char *key;             // NULL ends a list
    size_t field;                // offset in Config; 0: none
    bool required;               // otherwise the row's default stands where it is absent or null
    const char *alias;           // a second key that says the same, in files with it or instead of it
    const ConfigChoice *choices; // of a field that is an enum
    const ConfigKey *members;    // of an object; what else it holds is turned away
    const char *only;    // JSON of the only value that is supported; what else a file has is turned away
    const char *written; // JSON that is written where there is no field
    bool end_of_text;    // no field: the tokenizer's id that begins and ends texts is written
    bool ends;           // instead of it the ids that the config says end a text, if any
    bool old;            // of older files: read, but not written
    bool labels;         // of a size: an object with a member for each class; label2id is written beside it
    bool always;         // of a size: written even where config_complete would find it
};

/* A class of transformers that a file can name under "architectures", and the heads that it has. */
typedef struct {
    const char *name;
    bool head_transform, pooler, class_head;
    bool partial; // it has more heads than are kept here: read, but never written
} ModelClass;

/* ---- model.safetensors ---- */

/* Names within a block. What has a weight and a bias ends so that "weight" and "bias" can follow. With
 * "{query,key,value}" the file holds the layer as so many tensors, one below the other in memory; likewise
 * gate and up of a gated layer. NULL: the family has no such thing. */
typedef struct {
    const char *prefix; // of the block, with its number
    const char *norm1, *qkv, *query_norm, *key_norm, *projection, *cross_norm, *cross, *cross_projection;
    const char *norm2, *expand, *contract;
} BlockNames;

typedef struct {
    const char *token, *patch, *class_token, *position, *segment, *embedding_norm, *final_norm;
    BlockNames block;
} StackNames;

/* Tensors of a file that may be passed over. */
typedef struct {
    const char *pattern; // a shell's, for names without the optional prefix; NULL ends a list
    size_t unless;       // offset of a flag in Config that, if set, forbids it; 0: always
    const char *other;   // what it is the head for, if it is another's: people are told; else NULL
} IgnoredNames;

/* A part of names that some files have in the place of ours. */
typedef struct {
    const char *ours, *theirs; // NULL ends a list
} RenamedPart;

typedef struct {
    const char *optional; // a prefix that files may leave out: "transformer.", "bert."
    StackNames stack, encoder;
    const char *transform, *transform_norm, *head, *head_bias, *pooler;
    bool transposed;             // the blocks' matrices are stored (in, out), as GPT-2's Conv1D does
    const RenamedPart *renamed;  // or NULL: what other generations of files have
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
    bool patches;    // the input is a picture, cut into patches, and not tokens
    bool projection_plain;  // attention's projection has no bias, even where queries, keys and values have
    bool projection_biased; // it has one even where they have none
    bool shrunk_residuals;  // what a block adds to the stream starts smaller, by 1 / sqrt(2 * layers)
    bool end_tokens;        // its folders name the tokens that end a text, and may name several
    Config defaults;        // what its networks have unless they say otherwise; 0: see config_complete
    const ConfigKey *keys;
    const ModelClass *classes; // the last is that of a file that names none of them; NULL: files name none
    int class_count;
    ParameterNames names;
};

/* The rows; NULL after the last. */
const Architecture *architecture_at(int index);
