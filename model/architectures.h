/* architectures: the supported Transformers, as data. A Config is one network: its choices and its sizes. A
 * row of a table describes the common properties of a family of networks; each Config points to its row. To
 * add a family, add a row: other code consults only the row and the Config. */
#pragma once

#include "base/checked.h"
#include "data/end_tokens.h"
#include "data/kept.h"
#include "tasks/pictures/images/processor.h"
#include "tasks/pictures/images/labels.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/patch/patch.h"

#include <math.h>

typedef enum { MASK_CAUSAL, MASK_FULL } AttentionMask;
typedef enum { NORM_PRE, NORM_POST } NormOrder; // norms before each branch, or after it (Vaswani et al. 2017)
typedef enum { POSITIONS_LEARNED, POSITIONS_SINUSOID, POSITIONS_ROTARY } Positions;

/* Scaling of rotary positions for longer contexts; the formulas are in model/parameter_values.c. */
typedef enum { ROTARY_PLAIN, ROTARY_LINEAR, ROTARY_LLAMA3 } RotaryScaling;

/* Rotary positions: Su et al. 2021. */
typedef struct {
    double theta; // pair i of D/2 rotates by theta^(-2i/D) per position
    RotaryScaling scaling;
    double factor; // context extension factor; 0 with ROTARY_PLAIN
    /* ROTARY_LLAMA3: the original context, and thresholds on a pair's rotations within it. Pairs with
     * fewer than `low` rotations are slowed by `factor`, pairs with more than `high` are unchanged. */
    double low, high;
    int64_t context;
} Rotary;

/* The training objective of a model. */
typedef enum {
    TASK_NEXT_TOKEN,
    TASK_MASKED_TOKEN, // Devlin et al. 2019, section 3.1
    TASK_SEQUENCE,     // the target's next token, given the source
    TASK_CLASS,        // the class of a picture: Dosovitskiy et al. 2021
} Task;

typedef struct Architecture Architecture;

/* The stack produces the head's input. If encoder_layers is not 0, each of its blocks also attends to the
 * output of a second stack, the encoder, whose own attention is not masked. New members must be added to
 * config.c's list of fields. */
typedef struct {
    char name[32];                    // the preset that this config equals or comes from, or "custom"
    const Architecture *architecture; // the row of its family
    Activation activation;            // activation of the feed-forward layers
    NormKind norm_kind;
    NormOrder norm_order;
    bool final_norm; // each stack ends with a norm: always with NORM_PRE, and in torch.nn.Transformer
    Positions positions;
    Rotary rotary;        // of POSITIONS_ROTARY
    bool attention_bias;  // biases of queries, keys, values and projection (unless the row says otherwise)
    bool mlp_bias;        // the feed-forward layers have biases
    bool head_norms;      // norms of each head's queries and keys
    bool embedding_scale; // multiply token embeddings by sqrt(width)
    bool tied_tables;     // source and target share a token table
    bool tied_head;       // the head's weight is the token table
    bool head_transform;  // BERT's head: linear, activation, norm before the vocabulary; a bias
    bool pooler;          // BERT's linear layer and tanh on the first token
    bool class_head;      // a linear layer to the classes, and its bias
    bool class_token; // a token before the patches, read by the head; without it the head reads the patches'
                      // mean
    int64_t segments; // kinds of segments; 0: none
    int64_t layers;   // layers of the stack
    int64_t encoder_layers; // 0: no encoder
    int64_t heads, kv_heads;
    int64_t head_size; // D: width / heads, unless set
    int64_t width;     // C: width of the residual stream
    int64_t hidden; // width of the feed-forward layer, 4C in GPT-2; gated layers add a gate of the same width
    int64_t image;  // side of a picture in pixels; 0: the model reads tokens
    int64_t patch;  // side of a patch in pixels
    int64_t channels; // channels of a pixel
    int64_t context;  // number of positions; for pictures: patches plus class token
    int64_t vocab;    // number of tokens or classes; the tables have config_padded_vocab() rows
    double norm_eps;
    double init_std;          // standard deviation of initial weights; 0: Glorot initialization
    EndTokens ends;           // not a field of config.c, because it does not affect the computation
    bool new_head;            // not a field: initialize the head, even if the folder has one
    const char *other_head;   // not a field: purpose of an ignored head in the folder; NULL: none
    const Labels *labels;     // not a field: class names, owned elsewhere; NULL: none
    const Kept *kept;         // not a field: other keys of the folder's files, owned elsewhere; NULL: none
    ImageProcessor processor; // not a field: from preprocessor_config.json
} Config;

enum { VOCAB_PADDING = 128 };

/* vocab rounded up to a multiple of 128, so that products have whole tiles. Padding rows are never
 * predicted. */
static inline int64_t config_padded_vocab(const Config *c) {
    return pieces(c->vocab, VOCAB_PADDING) * VOCAB_PADDING;
}
/* Total width of all heads' queries; of all keys (and of all values). */
static inline int64_t config_query_width(const Config *c) {
    return c->heads * c->head_size;
}
static inline int64_t config_kv_width(const Config *c) {
    return c->kv_heads * c->head_size;
}
/* Patches per picture. */
static inline int64_t config_patches(const Config *c) {
    return c->patch > 0 ? (c->image / c->patch) * (c->image / c->patch) : 0;
}
/* Factor of token embeddings: sqrt(C) in Vaswani et al. 2017, section 3.4, else 1. */
static inline double config_token_scale(const Config *c) {
    return c->embedding_scale ? sqrt((double)c->width) : 1;
}

/* ---- config.json ---- */

/* A value's name in files. The first name of a value is written. */
typedef struct {
    const char *name; // NULL ends a list
    int value;
} ConfigChoice;

/* A key of config.json: a field of the Config, or a constant of the family. */
typedef struct ConfigKey ConfigKey;
struct ConfigKey {
    const char *key;             // NULL ends a list
    size_t field;                // offset in Config; 0: none
    bool required;               // else an absent or null value means the row's default
    const char *alias;           // a second key with the same meaning; a file may have either or both
    const ConfigChoice *choices; // for a field that is an enum
    const ConfigKey *members;    // for an object: its members; others are refused
    const char *only;            // JSON of the only supported value; others are refused
    const char *written;         // JSON to write for a key without a field, unless the folder said otherwise
    bool end_of_text;            // the same with the tokenizer's end-of-text id
    bool ends;                   // instead, the config's end tokens are written, if any
    bool old;                    // from older files: read, but not written
    bool labels; // a size written as an object with a member per class, together with label2id
    bool square; // a size of both sides, which may be given as a list of two
    bool always; // a size that is written even if config_complete would derive it
};

/* A class of transformers that a file can name under "architectures", and its heads. */
typedef struct {
    const char *name;
    bool head_transform, pooler, class_head;
    bool partial; // has heads that fusebox does not keep: read, but never written
} ModelClass;

/* ---- model.safetensors ---- */

/* Tensor names within a block. Names of layers end so that "weight" and "bias" can follow.
 * "{query,key,value}" means that the file stores the layer as several tensors, concatenated in memory; the
 * same holds for gate and up. NULL: the family has no such layer. */
typedef struct {
    const char *prefix; // prefix of a block, with its number
    const char *norm1, *qkv, *query_norm, *key_norm, *projection, *cross_norm, *cross, *cross_projection;
    const char *norm2, *expand, *contract;
} BlockNames;

typedef struct {
    const char *token, *patch, *class_token, *position, *segment, *embedding_norm, *final_norm;
    BlockNames block;
} StackNames;

/* Tensors of a file that may be ignored. */
typedef struct {
    const char *pattern; // shell pattern for names without the optional prefix; NULL ends a list
    size_t unless;       // offset in Config of a flag that forbids ignoring; 0: none
    const char *other;   // another model's head, named in a note to the user; else NULL
} IgnoredNames;

/* A part of a name that other files spell differently. */
typedef struct {
    const char *ours, *theirs; // NULL ends a list
} RenamedPart;

typedef struct {
    const char *optional; // a prefix that files may omit: "transformer.", "bert."
    StackNames stack, encoder;
    const char *transform, *transform_norm, *head, *head_bias, *pooler;
    bool transposed;             // the blocks' matrices are stored as (in, out), as in GPT-2's Conv1D
    const RenamedPart *renamed;  // names of other file generations, or NULL
    const IgnoredNames *ignored; // or NULL; a copy of a tied head is ignored in any case
} ParameterNames;

/* ---- the table ---- */

struct Architecture {
    const char *type;        // "model_type" of config.json
    const char *description; // for messages: "a decoder-only model"
    Task task;               // training task
    AttentionMask mask;      // mask of the stack's self-attention
    bool encoder;            // has a second stack
    bool embedding_norm;     // a norm after the embedding
    bool qkv_as_one; // queries, keys and values are a single layer; otherwise naive forms run them separately
    bool patches;    // the input is a picture, cut into patches
    bool projection_plain;  // attention's projection has no bias, even if queries, keys and values have
    bool projection_biased; // attention's projection has a bias, even if they have none
    bool shrunk_residuals;  // layers that write to the residual stream start smaller, by 1 / sqrt(2 * layers)
    bool end_tokens;        // folders name end-of-text tokens, possibly several
    Config defaults;        // default values of a Config; 0: see config_complete
    const ConfigKey *keys;
    const ModelClass *classes; // the last one is assumed for files that name none; NULL: files never name one
    int class_count;
    ParameterNames names;
};

/* Row `index`; NULL after the last. */
const Architecture *architecture_at(int index);
