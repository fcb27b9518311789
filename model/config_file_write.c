#include "model/config_file.h"

#include "base/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A flat JSON object, a member to a line, as transformers lays it out. */
typedef struct {
    char text[2048];
    int length;
} Object;

static void add(Object *o, const char *key, const char *value) {
    o->length += snprintf(o->text + o->length, sizeof o->text - (size_t)o->length, "%s  \"%s\": %s",
                          o->length ? ",\n" : "{\n", key, value);
}

static void add_integer(Object *o, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    add(o, key, text);
}

/* null for what is negative */
static void add_id(Object *o, const char *key, int64_t id) {
    if (id < 0)
        add(o, key, "null");
    else
        add_integer(o, key, id);
}

static void add_flag(Object *o, const char *key, bool value) {
    add(o, key, value ? "true" : "false");
}

/* The shortest decimal number that reads back as `value`. */
static void add_real(Object *o, const char *key, double value) {
    char text[32];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    add(o, key, text);
}

static const char *activation_text(Activation activation) {
    switch (activation) {
    case ACTIVATION_GELU_TANH: return "\"gelu_new\"";
    case ACTIVATION_GELU: return "\"gelu\"";
    case ACTIVATION_RELU: return "\"relu\"";
    default: return NULL;
    }
}

static void add_gpt2(Object *o, const Config *c, int64_t end_of_text) {
    add(o, "activation_function", activation_text(c->activation));
    add(o, "architectures", "[\n    \"GPT2LMHeadModel\"\n  ]");
    add(o, "attn_pdrop", "0.0");
    add_id(o, "bos_token_id", end_of_text);
    add(o, "embd_pdrop", "0.0");
    add_id(o, "eos_token_id", end_of_text);
    add_real(o, "initializer_range", c->init_std);
    add_real(o, "layer_norm_epsilon", c->norm_eps);
    add(o, "model_type", "\"gpt2\"");
    add_integer(o, "n_ctx", c->context);
    add_integer(o, "n_embd", c->width);
    add_integer(o, "n_head", c->heads);
    add_id(o, "n_inner", c->hidden == 4 * c->width ? -1 : c->hidden);
    add_integer(o, "n_layer", c->layers);
    add_integer(o, "n_positions", c->context);
    add(o, "resid_pdrop", "0.0");
    add(o, "scale_attn_by_inverse_layer_idx", "false");
    add(o, "scale_attn_weights", "true");
    add(o, "tie_word_embeddings", "true");
}

static void add_bert(Object *o, const Config *c, int64_t end_of_text) {
    (void)end_of_text;
    const char *type = c->head_transform ? c->pooler ? "BertForPreTraining" : "BertForMaskedLM" : "BertModel";
    char list[64];
    snprintf(list, sizeof list, "[\n    \"%s\"\n  ]", type);
    add(o, "architectures", list);
    add(o, "attention_probs_dropout_prob", "0.0");
    add(o, "hidden_act", activation_text(c->activation));
    add(o, "hidden_dropout_prob", "0.0");
    add_integer(o, "hidden_size", c->width);
    add_real(o, "initializer_range", c->init_std);
    add_integer(o, "intermediate_size", c->hidden);
    add_real(o, "layer_norm_eps", c->norm_eps);
    add_integer(o, "max_position_embeddings", c->context);
    add(o, "model_type", "\"bert\"");
    add_integer(o, "num_attention_heads", c->heads);
    add_integer(o, "num_hidden_layers", c->layers);
    add(o, "position_embedding_type", "\"absolute\"");
    add(o, "tie_word_embeddings", "true");
    add_integer(o, "type_vocab_size", c->segments);
}

static void add_pairs(Object *o, const Config *c, int64_t end_of_text) {
    (void)end_of_text;
    add(o, "activation_function", activation_text(c->activation));
    add_integer(o, "attention_heads", c->heads);
    add_integer(o, "d_model", c->width);
    add_integer(o, "decoder_layers", c->layers);
    add_integer(o, "encoder_layers", c->encoder_layers);
    add_integer(o, "ffn_dim", c->hidden);
    add_real(o, "initializer_range", c->init_std);
    add(o, "is_encoder_decoder", "true");
    add_real(o, "layer_norm_eps", c->norm_eps);
    add_integer(o, "max_position_embeddings", c->context);
    add(o, "model_type", "\"" CONFIG_PAIRS_TYPE "\"");
    add(o, "norm", c->norm_order == NORM_PRE ? "\"before\"" : "\"after\"");
    add(o, "positions", c->positions == POSITIONS_LEARNED ? "\"learned\"" : "\"sinusoid\"");
    add_flag(o, "scale_embedding", c->embedding_scale);
    add_flag(o, "tie_encoder_decoder_embeddings", c->tied_tables);
    add_flag(o, "tie_word_embeddings", c->tied_head);
}

/* Whether the file can say what the model is: read_root (config_file.c) gives the same Config back. */
static bool has_form(const Config *c) {
    bool common = c->kv_heads == c->heads && activation_text(c->activation);
    bool gpt2 = c->mask == MASK_CAUSAL && c->activation == ACTIVATION_GELU_TANH &&
                c->norm_order == NORM_PRE && c->positions == POSITIONS_LEARNED && c->tied_head &&
                !c->embedding_norm && !c->embedding_scale && !c->segments && !c->encoder_layers;
    bool bert = c->mask == MASK_FULL && c->norm_order == NORM_POST && c->positions == POSITIONS_LEARNED &&
                c->tied_head && c->embedding_norm && !c->embedding_scale && c->segments && !c->encoder_layers;
    bool pairs = c->mask == MASK_CAUSAL && !c->embedding_norm && !c->segments && c->encoder_layers;
    return common && (c->objective == OBJECTIVE_NEXT_TOKEN     ? gpt2
                      : c->objective == OBJECTIVE_MASKED_TOKEN ? bert
                                                               : pairs);
}

Status config_write(const char *path, const Config *c, int64_t end_of_text) {
    static void (*const writers[])(Object *, const Config *, int64_t) = {add_gpt2, add_bert, add_pairs};
    Object o = {.length = 0};
    if (!has_form(c))
        return fail(ERROR_USAGE, "%s: a model that is not GPT-2, BERT or the encoder-decoder cannot be saved",
                    path);
    writers[c->objective](&o, c, end_of_text);
    add(&o, "torch_dtype", "\"float32\"");
    add_integer(&o, "vocab_size", c->vocab);
    o.length += snprintf(o.text + o.length, sizeof o.text - (size_t)o.length, "\n}\n");
    return file_write(path, o.text, o.length);
}
