#include "model/architectures.h"

#include <stddef.h>

#define FIELD(member)  .field = offsetof(Config, member)
#define NEEDED(member) FIELD(member), .required = true
#define FIXED(json)    .only = json, .written = json

/* If several names have the same formula, the first is written. */
static const ConfigChoice activations[] = {{"gelu", ACTIVATION_GELU},
                                           {"relu", ACTIVATION_RELU},
                                           {"gelu_new", ACTIVATION_GELU_TANH},
                                           {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                                           {"gelu_fast", ACTIVATION_GELU_TANH},
                                           {"gelu_python", ACTIVATION_GELU},
                                           {0}};
static const ConfigChoice silu[] = {{"silu", ACTIVATION_SWIGLU}, {"swish", ACTIVATION_SWIGLU}, {0}};
static const ConfigChoice norm_orders[] = {{"before", NORM_PRE}, {"after", NORM_POST}, {0}};
static const ConfigChoice positions[] = {
    {"learned", POSITIONS_LEARNED}, {"sinusoid", POSITIONS_SINUSOID}, {0}};

/* ---- GPT-2: Radford et al. 2019 ---- */

static const ConfigKey gpt2_keys[] = {
    {"activation_function", FIELD(activation), .choices = activations},
    {"tie_word_embeddings", FIELD(tied_head)},
    {"scale_attn_weights", FIXED("true")},
    {"scale_attn_by_inverse_layer_idx", FIXED("false")},
    {"add_cross_attention", .only = "false"},
    {"is_encoder_decoder", .only = "false"},
    {"vocab_size", NEEDED(vocab)},
    {"n_layer", NEEDED(layers)},
    {"n_head", NEEDED(heads)},
    {"n_embd", NEEDED(width)},
    {"n_positions", NEEDED(context), .alias = "n_ctx"},
    {"n_inner", FIELD(hidden)},
    {"layer_norm_epsilon", FIELD(norm_eps)},
    {"initializer_range", FIELD(init_std)},
    {"attn_pdrop", .written = "0.0"},
    {"embd_pdrop", .written = "0.0"},
    {"resid_pdrop", .written = "0.0"},
    {"bos_token_id", .end_of_text = true},
    {"eos_token_id", .end_of_text = true, .ends = true},
    {0},
};
static const ModelClass gpt2_classes[] = {{.name = "GPT2LMHeadModel"}};
/* Masks that old files repeat. */
static const IgnoredNames gpt2_ignored[] = {
    {.pattern = "*.attn.bias"},
    {.pattern = "*.attn.masked_bias"},
    {0},
};

static const Architecture gpt2 = {
    .type = "gpt2",
    .description = "a decoder-only model",
    .task = TASK_NEXT_TOKEN,
    .mask = MASK_CAUSAL,
    .qkv_as_one = true,
    .shrunk_residuals = true,
    .end_tokens = true,
    .defaults = {.activation = ACTIVATION_GELU_TANH,
                 .norm_order = NORM_PRE,
                 .attention_bias = true,
                 .mlp_bias = true,
                 .tied_head = true,
                 .norm_eps = 1e-5,
                 .init_std = 0.02},
    .keys = gpt2_keys,
    .classes = gpt2_classes,
    .class_count = sizeof gpt2_classes / sizeof *gpt2_classes,
    .names = {.optional = "transformer.",
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
              .ignored = gpt2_ignored},
};

/* ---- BERT: Devlin et al. 2019 ---- */

static const ConfigKey bert_keys[] = {
    {"is_decoder", .only = "false"},
    {"add_cross_attention", .only = "false"},
    {"tie_word_embeddings", FIXED("true")},
    {"position_embedding_type", FIXED("\"absolute\"")},
    {"hidden_act", FIELD(activation), .choices = activations},
    {"vocab_size", NEEDED(vocab)},
    {"num_hidden_layers", NEEDED(layers)},
    {"num_attention_heads", NEEDED(heads)},
    {"hidden_size", NEEDED(width)},
    {"intermediate_size", NEEDED(hidden)},
    {"max_position_embeddings", NEEDED(context)},
    {"type_vocab_size", FIELD(segments)},
    {"layer_norm_eps", FIELD(norm_eps)},
    {"initializer_range", FIELD(init_std)},
    {"attention_probs_dropout_prob", .written = "0.0"},
    {"hidden_dropout_prob", .written = "0.0"},
    {0},
};
static const ModelClass bert_classes[] = {
    {"BertForMaskedLM", .head_transform = true},
    {"BertForPreTraining", .head_transform = true, .pooler = true, .partial = true},
    {"BertModel", .pooler = true}};
/* Position indices, heads for other tasks, and BERT's own heads that the Config lacks. */
static const IgnoredNames bert_ignored[] = {
    {.pattern = "*embeddings.position_ids"},
    {.pattern = "cls.seq_relationship.*", .other = "pairs of sentences"},
    {.pattern = "cls.predictions.decoder.bias"},
    {.pattern = "cls.*", .unless = offsetof(Config, head_transform)},
    {.pattern = "pooler.*", .unless = offsetof(Config, pooler)},
    {.pattern = "classifier.*", .other = "classes"},
    {.pattern = "qa_outputs.*", .other = "answers to questions"},
    {0},
};

static const RenamedPart bert_renamed[] = {
    {"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}, {0}};

static const Architecture bert = {
    .type = "bert",
    .description = "a BERT",
    .task = TASK_MASKED_TOKEN,
    .mask = MASK_FULL,
    .embedding_norm = true,
    .defaults = {.activation = ACTIVATION_GELU,
                 .norm_order = NORM_POST,
                 .attention_bias = true,
                 .mlp_bias = true,
                 .tied_head = true,
                 .head_transform = true,
                 .segments = 2,
                 .norm_eps = 1e-12,
                 .init_std = 0.02},
    .keys = bert_keys,
    .classes = bert_classes,
    .class_count = sizeof bert_classes / sizeof *bert_classes,
    .names = {.optional = "bert.",
              .stack = {.token = "bert.embeddings.word_embeddings.weight",
                        .position = "bert.embeddings.position_embeddings.weight",
                        .segment = "bert.embeddings.token_type_embeddings.weight",
                        .embedding_norm = "bert.embeddings.LayerNorm.",
                        .block = {.prefix = "bert.encoder.layer.%d.",
                                  .norm1 = "attention.output.LayerNorm.",
                                  .qkv = "attention.self.{query,key,value}.",
                                  .projection = "attention.output.dense.",
                                  .norm2 = "output.LayerNorm.",
                                  .expand = "intermediate.dense.",
                                  .contract = "output.dense."}},
              .transform = "cls.predictions.transform.dense.",
              .transform_norm = "cls.predictions.transform.LayerNorm.",
              .head = "cls.predictions.decoder.weight",
              .head_bias = "cls.predictions.bias",
              .pooler = "bert.pooler.dense.",
              .renamed = bert_renamed,
              .ignored = bert_ignored},
};

/* ---- the encoder-decoder: Vaswani et al. 2017 ---- */

/* transformers has no class for this model: the file format is fusebox's own, with the names of
 * torch.nn.Transformer. */
static const ConfigKey pairs_keys[] = {
    {"norm", FIELD(norm_order), .choices = norm_orders},
    {"final_norm", FIELD(final_norm)},
    {"positions", FIELD(positions), .choices = positions},
    {"activation_function", FIELD(activation), .choices = activations},
    {"scale_embedding", FIELD(embedding_scale)},
    {"tie_encoder_decoder_embeddings", FIELD(tied_tables)},
    {"tie_word_embeddings", FIELD(tied_head)},
    {"is_encoder_decoder", .written = "true"},
    {"vocab_size", NEEDED(vocab)},
    {"encoder_layers", NEEDED(encoder_layers)},
    {"decoder_layers", NEEDED(layers)},
    {"attention_heads", NEEDED(heads)},
    {"d_model", NEEDED(width)},
    {"ffn_dim", NEEDED(hidden)},
    {"max_position_embeddings", NEEDED(context)},
    {"layer_norm_eps", FIELD(norm_eps)},
    {"initializer_range", FIELD(init_std)},
    {0},
};

static const Architecture pairs = {
    .type = "fusebox-transformer",
    .description = "an encoder-decoder",
    .task = TASK_SEQUENCE,
    .mask = MASK_CAUSAL,
    .encoder = true,
    .defaults = {.activation = ACTIVATION_RELU,
                 .norm_order = NORM_POST,
                 .attention_bias = true,
                 .mlp_bias = true,
                 .positions = POSITIONS_SINUSOID,
                 .embedding_scale = true,
                 .tied_tables = true,
                 .tied_head = true,
                 .norm_eps = 1e-5},
    .keys = pairs_keys,
    .names = {.optional = "",
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
              .head = "head.weight"},
};

/* ---- Llama: Touvron et al. 2023; and its kin: Qwen 2 and 3, Mistral ---- */

static const ConfigChoice rotary_scalings[] = {
    {"default", ROTARY_PLAIN}, {"linear", ROTARY_LINEAR}, {"llama3", ROTARY_LLAMA3}, {0}};

static const ConfigKey rotary_members[] = {
    {"type", FIELD(rotary.scaling), .choices = rotary_scalings, .old = true},
    {"rope_type", FIELD(rotary.scaling), .choices = rotary_scalings},
    {"rope_theta", FIELD(rotary.theta)},
    {"factor", FIELD(rotary.factor)},
    {"low_freq_factor", FIELD(rotary.low)},
    {"high_freq_factor", FIELD(rotary.high)},
    {"original_max_position_embeddings", FIELD(rotary.context)},
    {"partial_rotary_factor", .only = "1.0"},
    {0},
};

/* Keys of the whole family. Files older than transformers 5 have rope_theta and rope_scaling at the top
 * level. */
#define LLAMA_KEYS                                                                                           \
    {"hidden_act", FIELD(activation), .choices = silu}, {"tie_word_embeddings", FIELD(tied_head)},           \
        {"vocab_size", NEEDED(vocab)}, {"num_hidden_layers", NEEDED(layers)},                                \
        {"num_attention_heads", NEEDED(heads)}, {"hidden_size", NEEDED(width)},                              \
        {"intermediate_size", NEEDED(hidden)}, {"max_position_embeddings", NEEDED(context)},                 \
        {"rms_norm_eps", FIELD(norm_eps)}, {"initializer_range", FIELD(init_std)},                           \
        {"rope_theta", FIELD(rotary.theta), .old = true},                                                    \
        {"rope_parameters", .members = rotary_members, .alias = "rope_scaling"},                             \
        {"partial_rotary_factor", .only = "1.0"}, {"attn_logit_softcapping", .only = "null"},                \
        {"final_logit_softcapping", .only = "null"}, {"num_experts", .only = "null"},                        \
        {"num_local_experts", .only = "null"}, {"quantization_config", .only = "null"},                      \
        {"attention_dropout", .written = "0.0"}, {"bos_token_id", .written = "null"}, {                      \
        "eos_token_id", .end_of_text = true, .ends = true                                                    \
    }

static const ConfigKey llama_keys[] = {
    LLAMA_KEYS,
    {"num_key_value_heads", FIELD(kv_heads), .always = true},
    {"head_dim", FIELD(head_size), .always = true},
    {"attention_bias", FIELD(attention_bias)},
    {"mlp_bias", FIELD(mlp_bias)},
    {0},
};
static const ConfigKey qwen2_keys[] = {
    LLAMA_KEYS,
    {"num_key_value_heads", NEEDED(kv_heads)},
    {"head_dim", FIELD(head_size), .always = true},
    {"use_sliding_window", FIXED("false")},
    {0},
};
static const ConfigKey qwen3_keys[] = {
    LLAMA_KEYS,
    {"num_key_value_heads", NEEDED(kv_heads)},
    {"head_dim", NEEDED(head_size)},
    {"attention_bias", FIELD(attention_bias)},
    {"use_sliding_window", FIXED("false")},
    {0},
};
/* Without sliding_window, transformers uses one of 4096. */
static const ConfigKey mistral_keys[] = {
    LLAMA_KEYS,
    {"num_key_value_heads", NEEDED(kv_heads)},
    {"head_dim", FIELD(head_size), .always = true},
    {"sliding_window", FIXED("null"), .required = true},
    {0},
};

static const ModelClass llama_classes[] = {{.name = "LlamaForCausalLM"}};
static const ModelClass qwen2_classes[] = {{.name = "Qwen2ForCausalLM"}};
static const ModelClass qwen3_classes[] = {{.name = "Qwen3ForCausalLM"}};
static const ModelClass mistral_classes[] = {{.name = "MistralForCausalLM"}};

/* Frequencies that old files repeat. */
static const IgnoredNames llama_ignored[] = {
    {.pattern = "*.rotary_emb.inv_freq"},
    {0},
};

#define LLAMA_DEFAULTS                                                                                       \
    .activation = ACTIVATION_SWIGLU, .norm_kind = NORM_RMS, .norm_order = NORM_PRE,                          \
    .positions = POSITIONS_ROTARY, .rotary = {.theta = 10000}, .norm_eps = 1e-6, .init_std = 0.02
#define LLAMA_NAMES                                                                                          \
    {                                                                                                        \
        .optional = "model.",                                                                                \
        .stack = {.token = "model.embed_tokens.weight",                                                      \
                  .final_norm = "model.norm.",                                                               \
                  .block = {.prefix = "model.layers.%d.",                                                    \
                            .norm1 = "input_layernorm.",                                                     \
                            .qkv = "self_attn.{q_proj,k_proj,v_proj}.",                                      \
                            .query_norm = "self_attn.q_norm.",                                               \
                            .key_norm = "self_attn.k_norm.",                                                 \
                            .projection = "self_attn.o_proj.",                                               \
                            .norm2 = "post_attention_layernorm.",                                            \
                            .expand = "mlp.{gate_proj,up_proj}.",                                            \
                            .contract = "mlp.down_proj."}},                                                  \
        .head = "lm_head.weight", .ignored = llama_ignored                                                   \
    }
/* A row of the family is decoder-only and causal. */
#define LLAMA_ROW(name)                                                                                      \
    .type = #name, .description = "a decoder-only model", .task = TASK_NEXT_TOKEN, .mask = MASK_CAUSAL,      \
    .end_tokens = true, .keys = name##_keys, .classes = name##_classes,                                      \
    .class_count = sizeof name##_classes / sizeof *name##_classes, .names = LLAMA_NAMES

static const Architecture llama = {LLAMA_ROW(llama), .defaults = {LLAMA_DEFAULTS}};
static const Architecture qwen2 = {LLAMA_ROW(qwen2), .projection_plain = true,
                                   .defaults = {LLAMA_DEFAULTS, .attention_bias = true}};
static const Architecture qwen3 = {LLAMA_ROW(qwen3), .defaults = {LLAMA_DEFAULTS, .head_norms = true}};
static const Architecture mistral = {LLAMA_ROW(mistral), .defaults = {LLAMA_DEFAULTS}};

/* ---- ViT: Dosovitskiy et al. 2021 ---- */

static const ConfigKey vit_keys[] = {
    {"hidden_act", FIELD(activation), .choices = activations},
    {"num_hidden_layers", NEEDED(layers)},
    {"num_attention_heads", NEEDED(heads)},
    {"hidden_size", NEEDED(width)},
    {"intermediate_size", NEEDED(hidden)},
    {"num_labels", FIELD(vocab), .old = true},
    {"id2label", FIELD(vocab), .labels = true},
    {"image_size", FIELD(image), .square = true},
    {"patch_size", FIELD(patch), .square = true},
    {"num_channels", FIELD(channels)},
    {"qkv_bias", FIELD(attention_bias)},
    {"class_token", FIELD(class_token)}, // fusebox's own key: transformers always has a class token
    {"pooler_act", FIXED("\"tanh\"")},
    {"layer_norm_eps", FIELD(norm_eps)},
    {"initializer_range", FIELD(init_std)},
    {"attention_probs_dropout_prob", .written = "0.0"},
    {"hidden_dropout_prob", .written = "0.0"},
    {0},
};
static const ModelClass vit_classes[] = {{"ViTForImageClassification", .class_head = true},
                                         {"ViTModel", .pooler = true}};
/* Masked-image training, and heads that the Config lacks. */
static const IgnoredNames vit_ignored[] = {
    {.pattern = "embeddings.mask_token"},
    {.pattern = "pooler.*", .unless = offsetof(Config, pooler)},
    {.pattern = "classifier.*", .unless = offsetof(Config, class_head)},
    {0},
};

/* Names of transformers 5, which may also occur in files. */
static const RenamedPart vit_renamed[] = {{"encoder.layer.", "layers."},
                                          {"attention.attention.query", "attention.q_proj"},
                                          {"attention.attention.key", "attention.k_proj"},
                                          {"attention.attention.value", "attention.v_proj"},
                                          {"attention.output.dense", "attention.o_proj"},
                                          {"intermediate.dense", "mlp.fc1"},
                                          {"output.dense", "mlp.fc2"},
                                          {0}};

static const Architecture vit = {
    .type = "vit",
    .description = "a vision Transformer",
    .task = TASK_CLASS,
    .mask = MASK_FULL,
    .patches = true,
    .projection_biased = true,
    .defaults = {.activation = ACTIVATION_GELU,
                 .norm_order = NORM_PRE,
                 .attention_bias = true,
                 .mlp_bias = true,
                 .class_head = true,
                 .class_token = true,
                 .image = 224,
                 .patch = 16,
                 .channels = 3,
                 .vocab = 2,
                 .norm_eps = 1e-12,
                 .init_std = 0.02,
                 .processor = {.mean = {0.5, 0.5, 0.5}, .deviation = {0.5, 0.5, 0.5}}},
    .keys = vit_keys,
    .classes = vit_classes,
    .class_count = sizeof vit_classes / sizeof *vit_classes,
    .names = {.optional = "vit.",
              .stack = {.patch = "vit.embeddings.patch_embeddings.projection.",
                        .class_token = "vit.embeddings.cls_token",
                        .position = "vit.embeddings.position_embeddings",
                        .final_norm = "vit.layernorm.",
                        .block = {.prefix = "vit.encoder.layer.%d.",
                                  .norm1 = "layernorm_before.",
                                  .qkv = "attention.attention.{query,key,value}.",
                                  .projection = "attention.output.dense.",
                                  .norm2 = "layernorm_after.",
                                  .expand = "intermediate.dense.",
                                  .contract = "output.dense."}},
              .head = "classifier.weight",
              .head_bias = "classifier.bias",
              .pooler = "vit.pooler.dense.",
              .renamed = vit_renamed,
              .ignored = vit_ignored},
};

/* ---- the table ---- */

static const Architecture *const rows[] = {&gpt2, &bert, &pairs, &llama, &qwen2, &qwen3, &mistral, &vit};

const Architecture *architecture_at(int index) {
    return index >= 0 && index < (int)(sizeof rows / sizeof *rows) ? rows[index] : NULL;
}
