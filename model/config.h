/* config: what a Transformer is, as data. A preset is one designated initializer; an architecture is its
 * fields. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "base/status.h"
#include "kernels/linear/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { MASK_CAUSAL, MASK_FULL } AttentionMask;
typedef enum { NORM_PRE, NORM_POST } NormOrder; // of each branch: Vaswani et al. 2017 have it after
typedef enum { POSITIONS_LEARNED, POSITIONS_SINUSOID } Positions;
typedef enum {
    OBJECTIVE_NEXT_TOKEN,   // GPT-2
    OBJECTIVE_MASKED_TOKEN, // BERT
    OBJECTIVE_SEQUENCE,     // encoder-decoder: the next token of the target, given the source
} Objective;

/* The stack is what the head reads. Where encoder_layers is not 0, each of its blocks attends to the output
 * of a second stack, the encoder, whose own attention is never masked. */

typedef struct {
    char name[32]; // of the preset it began as, or "custom"
    Objective objective;
    AttentionMask mask; // of the stack's self-attention
    Activation activation;
    NormOrder norm_order; // NORM_PRE ends each stack with a norm of its own
    Positions positions;
    bool embedding_norm;    // a norm after the tables' sum
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

/* Looks a preset up: gpt2-nano, gpt2, gpt2-medium, gpt2-large, gpt2-xl; bert-nano, bert-base, bert-large;
 * transformer-nano, transformer-base, transformer-big. ERROR_USAGE names the nearest. */
CHECKED Status config_preset(const char *name, Config *config);

/* The names of the presets; NULL after the last. */
const char *config_preset_name(int index);

/* Checks that the fields fit together and that every size can be computed with. ERROR_USAGE says which does
 * not. */
CHECKED Status config_validate(const Config *config);

/* vocab rounded up to a multiple of 128: products like whole tiles. Padding rows are never predicted. */
int64_t config_padded_vocab(const Config *config);
int64_t config_head_size(const Config *config);

/* What a token's row of its table is multiplied by: sqrt(C) in Vaswani et al. 2017, section 3.4, else 1. */
double config_token_scale(const Config *config);

/* Parameters without the vocabulary's padding. */
int64_t config_parameters(const Config *config);

#ifdef __cplusplus
}
#endif
#endif
