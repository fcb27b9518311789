/* parameter_names: what the weights of each architecture are called in files: GPT-2 and BERT as in
 * transformers, the encoder-decoder as in torch.nn.Transformer. */
#ifndef MODEL_PARAMETER_NAMES_H
#define MODEL_PARAMETER_NAMES_H

#include "model/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names within a block. What has a weight and a bias ends so that "weight" and "bias" can follow. A '*'
 * stands for "query", "key" and "value": the file holds the three one by one. NULL: the model has no such
 * thing. */
typedef struct {
    const char *prefix; // of the block, with its number
    const char *norm1, *qkv, *projection, *cross_norm, *cross, *cross_projection, *norm2, *expand, *contract;
} BlockNames;

typedef struct {
    const char *token, *position, *segment, *embedding_norm, *final_norm;
    BlockNames block;
} StackNames;

typedef struct {
    const char *optional; // a prefix that files may leave out: "transformer.", "bert."
    StackNames stack, encoder;
    const char *transform, *transform_norm, *head, *head_bias, *pooler;
    bool transposed; // the blocks' matrices are stored (in, out), as GPT-2's Conv1D does
} ParameterNames;

const ParameterNames *parameter_names(Objective objective);

/* Whether a tensor of a file may be passed over: masks and numbers that old files repeat, a copy of the tied
 * head, a head that is not used here. */
bool parameter_name_ignored(const Config *config, const char *name);

#ifdef __cplusplus
}
#endif
#endif
