#include "model/config_file.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"

#include <string.h>

enum { FILE_LIMIT = 16 << 20 /* bytes */, SHOWN = 60 /* bytes of a value in a message */ };

/* A parsed file and what to call it. */
typedef struct {
    const json_t *root;
    const char *name;
} File;

/* A value that is absent or null stands for its default. */
static const json_t *value_of(const File *file, const char *key) {
    const json_t *value = json_object_get(file->root, key);
    return json_is_null(value) ? NULL : value;
}

/* "x.json: "key" is <value>; <expected>" */
static Status fail_value(const File *file, const char *key, const char *expected) {
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII;
    const json_t *value = value_of(file, key);
    size_t length = value ? json_dumpb(value, NULL, 0, flags) : 0;
    char *text = memory_allocate(length + 1);
    if (text && value) json_dumpb(value, text, length, flags);
    Status status = fail(ERROR_FORMAT, "%s: \"%s\" is %.*s%s; %s", file->name, key, SHOWN,
                         value && text ? text : "missing", length > SHOWN ? "..." : "", expected);
    memory_free(text);
    return status;
}

/* ---- reading ---- */

static Status read_length(const File *file, const char *key, int64_t *length) {
    const json_t *value = value_of(file, key);
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return fail_value(file, key, "a positive integer is needed");
    *length = json_integer_value(value);
    return OK;
}

static Status read_real(const File *file, const char *key, double otherwise, double *real) {
    const json_t *value = value_of(file, key);
    if (value && !json_is_number(value)) return fail_value(file, key, "a number is needed");
    *real = value ? json_number_value(value) : otherwise;
    return OK;
}

static Status check_text(const File *file, const char *key, const char *const allowed[],
                         const char *expected) {
    const char *text = json_string_value(value_of(file, key));
    for (int i = 0; text && allowed[i]; i++)
        if (strcmp(text, allowed[i]) == 0) return OK;
    return fail_value(file, key, expected);
}

static Status check_flag(const File *file, const char *key, bool expected) {
    const json_t *value = value_of(file, key);
    if (!value || (json_is_boolean(value) && json_is_true(value) == expected)) return OK;
    return fail_value(file, key, expected ? "only true is supported" : "only false is supported");
}

static Status read_flag(const File *file, const char *key, bool otherwise, bool *flag) {
    const json_t *value = value_of(file, key);
    if (value && !json_is_boolean(value)) return fail_value(file, key, "true or false is needed");
    *flag = value ? json_is_true(value) : otherwise;
    return OK;
}

/* A name among those of `names`, whose value is its place there. */
static Status read_choice(const File *file, const char *key, const char *const names[], const char *otherwise,
                          const char *expected, int *choice) {
    const char *text = value_of(file, key) ? json_string_value(value_of(file, key)) : otherwise;
    for (*choice = 0; text && names[*choice]; (*choice)++)
        if (strcmp(text, names[*choice]) == 0) return OK;
    return fail_value(file, key, expected);
}

static Status read_activation(const File *file, const char *key, const char *otherwise,
                              Activation *activation) {
    /* The last three are names of one formula, GELU by tanh. */
    static const char *const names[] = {"gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", NULL};
    int choice;
    TRY(read_choice(file, key, names, otherwise, "\"gelu\", \"relu\" and \"gelu_new\" are supported",
                    &choice));
    *activation = choice == 0 ? ACTIVATION_GELU : choice == 1 ? ACTIVATION_RELU : ACTIVATION_GELU_TANH;
    return OK;
}

/* ---- GPT-2 ---- */

/* GPT-2's switches that change what is computed, each at the only value that fusebox knows. */
static Status check_supported(const File *file) {
    /* Three names of the same formula, GELU by tanh. */
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", NULL};
    if (value_of(file, "activation_function"))
        TRY(check_text(file, "activation_function", activations,
                       "\"gelu_new\" and \"gelu_pytorch_tanh\" are supported"));
    TRY(check_flag(file, "tie_word_embeddings", true));
    TRY(check_flag(file, "scale_attn_weights", true));
    TRY(check_flag(file, "scale_attn_by_inverse_layer_idx", false));
    TRY(check_flag(file, "add_cross_attention", false));
    return check_flag(file, "is_encoder_decoder", false);
}

/* The number of positions goes by two names, of which files have either or both. */
static Status read_context(const File *file, int64_t *context) {
    if (!value_of(file, "n_positions") && value_of(file, "n_ctx")) return read_length(file, "n_ctx", context);
    TRY(read_length(file, "n_positions", context));
    if (!value_of(file, "n_ctx")) return OK;
    int64_t again;
    TRY(read_length(file, "n_ctx", &again));
    return again == *context ? OK : fail_value(file, "n_ctx", "it must equal \"n_positions\"");
}

static Status read_gpt2_sizes(const File *file, Config *config) {
    TRY(read_length(file, "vocab_size", &config->vocab));
    TRY(read_length(file, "n_layer", &config->layers));
    TRY(read_length(file, "n_head", &config->heads));
    TRY(read_length(file, "n_embd", &config->width));
    TRY(read_context(file, &config->context));
    config->kv_heads = config->heads;
    if (value_of(file, "n_inner")) return read_length(file, "n_inner", &config->hidden);
    config->hidden = config->width <= INT64_MAX / 4 ? 4 * config->width : config->width;
    return OK;
}

static Status read_gpt2(const File *file, Config *config) {
    TRY(check_supported(file));
    config->tied_head = true;
    config->activation = ACTIVATION_GELU_TANH;
    TRY(read_gpt2_sizes(file, config));
    return read_real(file, "layer_norm_epsilon", 1e-5, &config->norm_eps);
}

/* ---- BERT ---- */

/* Which heads the file's model has, by the class that transformers saved. */
static Status read_heads(const File *file, Config *config) {
    const json_t *classes = value_of(file, "architectures"), *name;
    size_t i;
    config->pooler = true;
    if (classes && !json_is_array(classes)) return fail_value(file, "architectures", "a list is needed");
    json_array_foreach(classes, i, name) {
        const char *text = json_is_string(name) ? json_string_value(name) : "";
        if (strcmp(text, "BertForMaskedLM") == 0) config->pooler = false;
        if (strcmp(text, "BertForMaskedLM") == 0 || strcmp(text, "BertForPreTraining") == 0)
            config->head_transform = true;
    }
    return OK;
}

static Status read_bert(const File *file, Config *config) {
    static const char *const absolute[] = {"absolute", NULL};
    config->mask = MASK_FULL;
    config->norm_order = NORM_POST;
    config->embedding_norm = config->tied_head = true;
    TRY(check_flag(file, "is_decoder", false));
    TRY(check_flag(file, "add_cross_attention", false));
    TRY(check_flag(file, "tie_word_embeddings", true));
    if (value_of(file, "position_embedding_type"))
        TRY(check_text(file, "position_embedding_type", absolute, "only \"absolute\" is supported"));
    TRY(read_activation(file, "hidden_act", "gelu", &config->activation));
    TRY(read_heads(file, config));
    TRY(read_length(file, "vocab_size", &config->vocab));
    TRY(read_length(file, "num_hidden_layers", &config->layers));
    TRY(read_length(file, "num_attention_heads", &config->heads));
    TRY(read_length(file, "hidden_size", &config->width));
    TRY(read_length(file, "intermediate_size", &config->hidden));
    TRY(read_length(file, "max_position_embeddings", &config->context));
    config->segments = 2;
    if (value_of(file, "type_vocab_size")) TRY(read_length(file, "type_vocab_size", &config->segments));
    config->kv_heads = config->heads;
    return read_real(file, "layer_norm_eps", 1e-12, &config->norm_eps);
}

/* ---- the encoder-decoder ---- */

static Status read_pairs(const File *file, Config *config) {
    static const char *const places[] = {"before", "after", NULL}, *const kinds[] = {"learned", "sinusoid",
                                                                                     NULL};
    int place, kind;
    TRY(read_choice(file, "norm", places, "after", "\"before\" or \"after\" is needed", &place));
    TRY(read_choice(file, "positions", kinds, "sinusoid", "\"learned\" or \"sinusoid\" is needed", &kind));
    config->norm_order = place == 0 ? NORM_PRE : NORM_POST;
    config->positions = kind == 0 ? POSITIONS_LEARNED : POSITIONS_SINUSOID;
    TRY(read_activation(file, "activation_function", "relu", &config->activation));
    TRY(read_flag(file, "scale_embedding", true, &config->embedding_scale));
    TRY(read_flag(file, "tie_encoder_decoder_embeddings", true, &config->tied_tables));
    TRY(read_flag(file, "tie_word_embeddings", true, &config->tied_head));
    TRY(read_length(file, "vocab_size", &config->vocab));
    TRY(read_length(file, "encoder_layers", &config->encoder_layers));
    TRY(read_length(file, "decoder_layers", &config->layers));
    TRY(read_length(file, "attention_heads", &config->heads));
    TRY(read_length(file, "d_model", &config->width));
    TRY(read_length(file, "ffn_dim", &config->hidden));
    TRY(read_length(file, "max_position_embeddings", &config->context));
    config->kv_heads = config->heads;
    return read_real(file, "layer_norm_eps", 1e-5, &config->norm_eps);
}

/* ---- all ---- */

/* Is it the preset but for the name? */
static bool equals(const Config *a, const Config *b) {
    return a->objective == b->objective && a->mask == b->mask && a->activation == b->activation &&
           a->norm_order == b->norm_order && a->positions == b->positions &&
           a->embedding_norm == b->embedding_norm && a->embedding_scale == b->embedding_scale &&
           a->tied_tables == b->tied_tables && a->tied_head == b->tied_head &&
           a->head_transform == b->head_transform && a->pooler == b->pooler && a->segments == b->segments &&
           a->layers == b->layers && a->encoder_layers == b->encoder_layers && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->width == b->width && a->hidden == b->hidden &&
           a->context == b->context && a->vocab == b->vocab && a->norm_eps == b->norm_eps &&
           a->init_std == b->init_std;
}

static Status name_config(Config *config) {
    for (int i = 0; config_preset_name(i); i++) {
        Config preset;
        TRY(config_preset(config_preset_name(i), &preset));
        if (equals(config, &preset)) *config = preset;
    }
    return OK;
}

static Status read_root(const File *file, Config *config) {
    /* In the order of Objective. */
    static const char *const types[] = {"gpt2", "bert", CONFIG_PAIRS_TYPE, NULL};
    static Status (*const readers[])(const File *, Config *) = {read_gpt2, read_bert, read_pairs};
    int objective;
    if (!json_is_object(file->root)) return fail(ERROR_FORMAT, "%s holds no JSON object", file->name);
    TRY(read_choice(file, "model_type", types, NULL,
                    "only \"gpt2\", \"bert\" and \"" CONFIG_PAIRS_TYPE "\" are supported", &objective));
    *config = (Config){.name = "custom", .objective = (Objective)objective};
    TRY(readers[objective](file, config));
    TRY(read_real(file, "initializer_range", objective == OBJECTIVE_SEQUENCE ? 0 : 0.02, &config->init_std));
    Status status = config_validate(config);
    if (status) {
        Status wrong = fail(ERROR_FORMAT, "%s: %s", file->name, status_message(status));
        status_free(status);
        return wrong;
    }
    return name_config(config);
}

Status config_parse(const char *text, int64_t length, const char *name, Config *config) {
    json_t *root;
    TRY(json_parse(text, length, name, &root));
    File file = {root, name};
    Status status = read_root(&file, config);
    json_decref(root);
    return status;
}

Status config_read(const char *path, Config *config) {
    char *text;
    int64_t length;
    TRY(file_read(path, FILE_LIMIT, &text, &length));
    Status status = config_parse(text, length, path, config);
    memory_free(text);
    return status;
}
