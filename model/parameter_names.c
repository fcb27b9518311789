#include "model/parameter_names.h"

#include "base/files.h"

#include <string.h>

static const ParameterNames gpt2 = {
    .optional = "transformer.",
    .stack = {.token = "transformer.wte.weight",
              .position = "transformer.wpe.weight",
              .final_norm = "transformer.ln_f.",
              .block = {.prefix = "transformer.h.%d.",
                        .norm1 = "ln_1.",
                        .qkv = "attn.c_attn.",
                        .projection = "attn.c_proj.",
                        .norm2 = "ln_2.",
                        .expand = "mlp.c_fc.",
                        .contract = "mlp.c_proj."}},
    .head = "lm_head.weight",
    .transposed = true,
};

static const ParameterNames bert = {
    .optional = "bert.",
    .stack = {.token = "bert.embeddings.word_embeddings.weight",
              .position = "bert.embeddings.position_embeddings.weight",
              .segment = "bert.embeddings.token_type_embeddings.weight",
              .embedding_norm = "bert.embeddings.LayerNorm.",
              .final_norm = "bert.encoder.LayerNorm.",
              .block = {.prefix = "bert.encoder.layer.%d.",
                        .norm1 = "attention.output.LayerNorm.",
                        .qkv = "attention.self.*.",
                        .projection = "attention.output.dense.",
                        .norm2 = "output.LayerNorm.",
                        .expand = "intermediate.dense.",
                        .contract = "output.dense."}},
    .transform = "cls.predictions.transform.dense.",
    .transform_norm = "cls.predictions.transform.LayerNorm.",
    .head = "cls.predictions.decoder.weight",
    .head_bias = "cls.predictions.bias",
    .pooler = "bert.pooler.dense.",
};

static const ParameterNames pairs = {
    .optional = "",
    .stack = {.token = "target_embedding.weight",
              .position = "target_position.weight",
              .final_norm = "decoder.norm.",
              .block = {.prefix = "decoder.layers.%d.",
                        .norm1 = "norm1.",
                        .qkv = "self_attn.in_proj_",
                        .projection = "self_attn.out_proj.",
                        .cross_norm = "norm2.",
                        .cross = "multihead_attn.in_proj_",
                        .cross_projection = "multihead_attn.out_proj.",
                        .norm2 = "norm3.",
                        .expand = "linear1.",
                        .contract = "linear2."}},
    .encoder = {.token = "source_embedding.weight",
                .position = "source_position.weight",
                .final_norm = "encoder.norm.",
                .block = {.prefix = "encoder.layers.%d.",
                          .norm1 = "norm1.",
                          .qkv = "self_attn.in_proj_",
                          .projection = "self_attn.out_proj.",
                          .norm2 = "norm2.",
                          .expand = "linear1.",
                          .contract = "linear2."}},
    .head = "head.weight",
};

const ParameterNames *parameter_names(Objective objective) {
    switch (objective) {
    case OBJECTIVE_MASKED_TOKEN: return &bert;
    case OBJECTIVE_SEQUENCE: return &pairs;
    default: return &gpt2;
    }
}

static bool begins_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

bool parameter_name_ignored(const Config *c, const char *name) {
    if (c->tied_head && strcmp(name, parameter_names(c->objective)->head) == 0) return true;
    if (c->objective == OBJECTIVE_NEXT_TOKEN)
        return path_ends_with(name, ".attn.bias") || path_ends_with(name, ".attn.masked_bias");
    if (c->objective != OBJECTIVE_MASKED_TOKEN) return false;
    /* Which of the heads are wanted stands in the Config; the sentence pairs' head never is. */
    return path_ends_with(name, "embeddings.position_ids") || begins_with(name, "cls.seq_relationship.") ||
           strcmp(name, "cls.predictions.decoder.bias") == 0 ||
           (!c->head_transform && begins_with(name, "cls.")) ||
           (!c->pooler && (begins_with(name, "bert.pooler.") || begins_with(name, "pooler.")));
}
