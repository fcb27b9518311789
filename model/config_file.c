#include "model/config_file.h"

#include "base/files.h"
#include "base/memory.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
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

/* GPT-2's switches that change what is computed, each at the only value that fusebox knows. */
static Status check_supported(const File *file) {
    static const char *const types[] = {"gpt2", NULL};
    TRY(check_text(file, "model_type", types, "only \"gpt2\" is supported"));
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

static Status read_sizes(const File *file, Config *config) {
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

/* Is it the preset but for the name? */
static bool equals(const Config *a, const Config *b) {
    return a->mask == b->mask && a->activation == b->activation && a->layers == b->layers &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->width == b->width &&
           a->hidden == b->hidden && a->context == b->context && a->vocab == b->vocab &&
           a->norm_eps == b->norm_eps && a->init_std == b->init_std;
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
    if (!json_is_object(file->root)) return fail(ERROR_FORMAT, "%s holds no JSON object", file->name);
    *config = (Config){.name = "custom", .mask = MASK_CAUSAL, .activation = ACTIVATION_GELU_TANH};
    TRY(check_supported(file));
    TRY(read_sizes(file, config));
    TRY(read_real(file, "layer_norm_epsilon", 1e-5, &config->norm_eps));
    TRY(read_real(file, "initializer_range", 0.02, &config->init_std));
    Status status = config_validate(config);
    if (status) {
        Status wrong = fail(ERROR_FORMAT, "%s: %s", file->name, status_message(status));
        status_free(status);
        return wrong;
    }
    return name_config(config);
}

Status config_parse(const char *text, int64_t length, const char *name, Config *config) {
    json_error_t error;
    json_t *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return fail(ERROR_FORMAT, "%s, line %d: %s", name, error.line, error.text);
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

/* ---- writing ---- */

/* The shortest decimal number that reads back as `value`. */
static void write_real(char text[32], double value) {
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

static void write_integer(char text[32], int64_t value, bool null) {
    snprintf(text, 32, "%" PRId64, value);
    if (null) strcpy(text, "null");
}

Status config_write(const char *path, const Config *c, int64_t end_of_text) {
    if (c->mask != MASK_CAUSAL || c->activation != ACTIVATION_GELU_TANH || c->kv_heads != c->heads)
        return fail(ERROR_USAGE, "%s: a model that is not GPT-2 cannot be saved as one", path);
    char inner[32], id[32], eps[32], std[32], text[2048];
    write_integer(inner, c->hidden, c->hidden == 4 * c->width);
    write_integer(id, end_of_text, end_of_text < 0);
    write_real(eps, c->norm_eps);
    write_real(std, c->init_std);
    int length =
        snprintf(text, sizeof text,
                 "{\n"
                 "  \"activation_function\": \"gelu_new\",\n"
                 "  \"architectures\": [\n    \"GPT2LMHeadModel\"\n  ],\n"
                 "  \"attn_pdrop\": 0.0,\n"
                 "  \"bos_token_id\": %s,\n"
                 "  \"embd_pdrop\": 0.0,\n"
                 "  \"eos_token_id\": %s,\n"
                 "  \"initializer_range\": %s,\n"
                 "  \"layer_norm_epsilon\": %s,\n"
                 "  \"model_type\": \"gpt2\",\n"
                 "  \"n_ctx\": %" PRId64 ",\n"
                 "  \"n_embd\": %" PRId64 ",\n"
                 "  \"n_head\": %" PRId64 ",\n"
                 "  \"n_inner\": %s,\n"
                 "  \"n_layer\": %" PRId64 ",\n"
                 "  \"n_positions\": %" PRId64 ",\n"
                 "  \"resid_pdrop\": 0.0,\n"
                 "  \"scale_attn_by_inverse_layer_idx\": false,\n"
                 "  \"scale_attn_weights\": true,\n"
                 "  \"tie_word_embeddings\": true,\n"
                 "  \"torch_dtype\": \"float32\",\n"
                 "  \"vocab_size\": %" PRId64 "\n"
                 "}\n",
                 id, id, std, eps, c->context, c->width, c->heads, inner, c->layers, c->context, c->vocab);
    return file_write(path, text, length);
}
