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

typedef struct {
    char name[32]; // of the preset it began as, or "custom"
    AttentionMask mask;
    Activation activation;
    int64_t layers;
    int64_t heads, kv_heads;
    int64_t width;   // C: of the residual stream; heads divides it
    int64_t hidden;  // of the feed-forward layer, 4C in GPT-2
    int64_t context; // positions the model knows
    int64_t vocab;   // tokens that exist; the tables hold config_padded_vocab() rows
    double norm_eps;
    double init_std; // of the normal distribution that weights start from
} Config;

/* Looks a preset up: gpt2-nano, gpt2, gpt2-medium, gpt2-large, gpt2-xl. ERROR_USAGE names the nearest. */
CHECKED Status config_preset(const char *name, Config *config);

/* The names of the presets; NULL after the last. */
const char *config_preset_name(int index);

/* Checks that the fields fit together and that every size can be computed with. ERROR_USAGE says which does
 * not. */
CHECKED Status config_validate(const Config *config);

/* vocab rounded up to a multiple of 128: products like whole tiles. Padding rows are never predicted. */
int64_t config_padded_vocab(const Config *config);
int64_t config_head_size(const Config *config);

/* Parameters without the vocabulary's padding. */
int64_t config_parameters(const Config *config);

#ifdef __cplusplus
}
#endif
#endif
