/* model/config, model/config_file: presets, consistency, and reading and writing config.json. */
#include "base/files.h"
#include "base/memory.h"
#include "model/config_file.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GPT-2's smallest valid config.json. */
#define SIZES                                                                                                \
    "\"model_type\":\"gpt2\",\"vocab_size\":97,\"n_layer\":2,\"n_head\":3,\"n_embd\":24,\"n_positions\":16"

static Config preset(const char *name) {
    Config config;
    expect_ok(config_preset(name, &config));
    return config;
}

static Status parse(const char *text, Config *config) {
    return config_parse(text, (int64_t)strlen(text), "config.json", config);
}

static void expect_malformed(const char *text, const char *part) {
    Config config;
    Status status = parse(text, &config);
    assert_non_null(status);
    assert_non_null(strstr(status_message(status), "config.json"));
    expect_error(status, ERROR_FORMAT, part);
}

/* Parameters of the models as released (Radford et al. 2019, table 2, and the released files). */
static void presets_have_their_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } sizes[] = {{"gpt2", 124439808},
                 {"gpt2-medium", 354823168},
                 {"gpt2-large", 774030080},
                 {"gpt2-xl", 1557611200},
                 {"smollm2-135m", 134515008},
                 {"smollm2-360m", 361821120},
                 {"tinyllama-1.1b", 1100048384},
                 {"llama-3.2-1b", 1235814400},
                 {"qwen2.5-0.5b", 494032768},
                 {"qwen2.5-1.5b", 1543714304},
                 {"qwen2.5-7b", 7615616512},
                 {"llama-3.1-8b", 8030261248},
                 {"qwen3-0.6b", 596049920}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Config config = preset(sizes[i].name);
        assert_int_equal(config_parameters(&config), sizes[i].parameters);
        if (i >= 4) continue;
        assert_int_equal(config_padded_vocab(&config), 50304);
        assert_int_equal(config.head_size, 64);
    }
    for (int i = 0; config_preset_name(i); i++) {
        Config config = preset(config_preset_name(i));
        expect_ok(config_validate(&config));
    }
    Config config;
    expect_error(config_preset("gpt2-smal", &config), ERROR_USAGE, "gpt2");
}

static void sizes_must_fit_together(void **state) {
    (void)state;
    Config config = preset("gpt2");
    config.heads = config.kv_heads = 7;
    expect_error(config_validate(&config), ERROR_USAGE, "width 768");
    config = preset("gpt2");
    config.kv_heads = 5;
    expect_error(config_validate(&config), ERROR_USAGE, "key/value heads 5");
    config = preset("gpt2");
    config.layers = 0;
    expect_error(config_validate(&config), ERROR_USAGE, "layers");
    config = preset("gpt2");
    config.vocab = INT64_MAX;
    expect_error(config_validate(&config), ERROR_USAGE, "vocab");
    config = preset("gpt2");
    config.norm_eps = 0;
    expect_error(config_validate(&config), ERROR_USAGE, "epsilon");
    config = preset("gpt2");
    config.layers = 10000;
    config.width = 1 << 20;
    config.heads = config.kv_heads = 1 << 10;
    config.head_size = 1 << 10;
    expect_error(config_validate(&config), ERROR_USAGE, "2^40");
}

static void what_is_written_is_read(void **state) {
    const char *path = inside(*state, "config.json");
    for (int i = 0; config_preset_name(i); i++) {
        Config config = preset(config_preset_name(i)), again;
        expect_ok(config_write(path, &config, 50256));
        expect_ok(config_read(path, &again));
        assert_memory_equal(&config, &again, sizeof config);
    }
    Config config = preset("gpt2"), again;
    config.hidden = 1234;
    config.norm_eps = 0.1 + 0.2;
    config.init_std = 1.0 / 3;
    expect_ok(config_write(path, &config, -1));
    expect_ok(config_read(path, &again));
    assert_string_equal(again.name, "custom");
    assert_int_equal(again.hidden, 1234);
    assert_true(again.norm_eps == 0.1 + 0.2 && again.init_std == 1.0 / 3);
    config.kv_heads = 6;
    expect_error(config_write(path, &config, -1), ERROR_USAGE, "cannot describe");
    config = preset("bert-base");
    config.norm_order = NORM_PRE;
    expect_error(config_write(path, &config, -1), ERROR_USAGE, "cannot describe");
    config = preset("transformer-base");
    config.norm_order = NORM_PRE;
    config.final_norm = true;
    config.positions = POSITIONS_LEARNED;
    config.tied_tables = false;
    config.activation = ACTIVATION_GELU_TANH;
    config.encoder_layers = 3;
    expect_ok(config_write(path, &config, -1));
    expect_ok(config_read(path, &again));
    assert_true(config_equal(&config, &again));
    assert_string_equal(again.name, "custom");
    config = preset(
        "bert-base"); // with a pooler: one of BertForPreTraining's heads is not kept, so that class is not
                      // named
    config.pooler = true;
    char *text;
    int64_t length;
    expect_ok(config_write(path, &config, -1));
    expect_ok(file_read(path, 1 << 16, &text, &length));
    assert_non_null(strstr(text, "\"BertForMaskedLM\""));
    memory_free(text);
    config = preset("bert-base"); // with neither head: the weights say so, not the file
    config.head_transform = false;
    expect_ok(config_write(path, &config, -1));
    expect_ok(config_read(path, &again));
    assert_true(again.pooler && !again.head_transform);
}

static void numbers_are_written_short(void **state) {
    const char *path = inside(*state, "config.json");
    Config config = preset("gpt2");
    expect_ok(config_write(path, &config, -1));
    char *text;
    int64_t length;
    expect_ok(file_read(path, 1 << 20, &text, &length));
    assert_non_null(strstr(text, "\"layer_norm_epsilon\": 1e-05,"));
    assert_non_null(strstr(text, "\"initializer_range\": 0.02,"));
    assert_non_null(strstr(text, "\"bos_token_id\": null,"));
    assert_non_null(strstr(text, "\"n_inner\": null,"));
    memory_free(text);
}

static void transformers_files_are_read(void **state) {
    (void)state;
    Config config;
    expect_ok(config_read("tests/fixtures/gpt2/model/config.json", &config));
    assert_int_equal(config.layers, 2);
    assert_int_equal(config.heads, 3);
    assert_int_equal(config.kv_heads, 3);
    assert_int_equal(config.width, 24);
    assert_int_equal(config.hidden, 96);
    assert_int_equal(config.context, 24);
    assert_int_equal(config.vocab, 97);
    assert_true(config.norm_eps == 1e-5 && config.init_std == 0.02);
    assert_int_equal(config.activation, ACTIVATION_GELU_TANH);
}

static void defaults_are_gpt2s(void **state) {
    (void)state;
    Config config;
    expect_ok(parse("{" SIZES ",\"n_inner\":null,\"activation_function\":null}", &config));
    assert_int_equal(config.hidden, 96);
    assert_true(config.norm_eps == 1e-5);
    expect_ok(parse("{" SIZES ",\"n_inner\":50,\"n_ctx\":16,\"activation_function\":\"gelu_pytorch_tanh\"}",
                    &config));
    assert_int_equal(config.hidden, 50);
    expect_ok(parse(
        "{\"model_type\":\"gpt2\",\"vocab_size\":9,\"n_layer\":1,\"n_head\":1,\"n_embd\":2,\"n_ctx\":8}",
        &config));
    assert_int_equal(config.context, 8);
    static const char *const names[] = {"gelu", "gelu_python", "relu", "gelu_fast"};
    static const Activation activations[] = {ACTIVATION_GELU, ACTIVATION_GELU, ACTIVATION_RELU,
                                             ACTIVATION_GELU_TANH};
    for (int i = 0; i < 4; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "{" SIZES ",\"activation_function\":\"%s\",\"tie_word_embeddings\":false}", names[i]);
        expect_ok(parse(text, &config));
        assert_true(config.activation == activations[i] && !config.tied_head);
    }
}

static void other_models_are_turned_away(void **state) {
    (void)state;
    expect_malformed("{\"model_type\":\"mixtral\"}", "\"model_type\" is \"mixtral\"; only \"gpt2\"");
    expect_malformed("{}", "\"model_type\" is missing");
    expect_malformed("{" SIZES ",\"activation_function\":\"silu\"}", "\"silu\"; only \"gelu\"");
    expect_malformed("{" SIZES ",\"tie_word_embeddings\":0}", "tie_word_embeddings");
    expect_malformed("{" SIZES ",\"scale_attn_weights\":false}", "only true");
    expect_malformed("{" SIZES ",\"scale_attn_by_inverse_layer_idx\":true}", "only false");
    expect_malformed("{" SIZES ",\"add_cross_attention\":1}", "only false");
}

#define BERT_SIZES                                                                                           \
    "\"model_type\":\"bert\",\"vocab_size\":97,\"num_hidden_layers\":2,\"num_attention_heads\":3,"           \
    "\"hidden_size\":24,\"intermediate_size\":50,\"max_position_embeddings\":16"
#define PAIRS_SIZES                                                                                          \
    "\"model_type\":\"fusebox-transformer\",\"vocab_size\":97,\"encoder_layers\":2,\"decoder_layers\":1,"    \
    "\"attention_heads\":3,\"d_model\":24,\"ffn_dim\":50,\"max_position_embeddings\":16"

static void berts_files_are_read(void **state) {
    (void)state;
    Config config;
    expect_ok(parse("{" BERT_SIZES "}", &config));
    assert_true(config.architecture->task == TASK_MASKED_TOKEN && config.architecture->mask == MASK_FULL);
    assert_true(config.norm_order == NORM_POST && config.activation == ACTIVATION_GELU);
    assert_true(config.pooler && !config.head_transform && config.segments == 2 && config.norm_eps == 1e-12);
    expect_ok(parse("{" BERT_SIZES ",\"architectures\":[\"BertForPreTraining\"],\"hidden_act\":\"relu\"}",
                    &config));
    assert_true(config.pooler && config.head_transform && config.activation == ACTIVATION_RELU);
    expect_ok(
        parse("{" BERT_SIZES ",\"architectures\":[\"BertForMaskedLM\"],\"type_vocab_size\":1}", &config));
    assert_true(!config.pooler && config.head_transform && config.segments == 1);
    expect_malformed("{" BERT_SIZES ",\"architectures\":\"BertModel\"}", "a list is needed");
    expect_malformed("{" BERT_SIZES ",\"is_decoder\":true}", "only false");
    expect_malformed("{" BERT_SIZES ",\"hidden_act\":\"silu\"}", "\"gelu\", \"relu\"");
    expect_malformed("{" BERT_SIZES ",\"position_embedding_type\":\"relative_key\"}", "only \"absolute\"");
    expect_malformed("{" BERT_SIZES ",\"type_vocab_size\":0}", "a positive integer");
    expect_malformed("{" BERT_SIZES ",\"layer_norm_eps\":true}", "a number");
}

static void encoder_decoders_files_are_read(void **state) {
    (void)state;
    Config config;
    expect_ok(parse("{" PAIRS_SIZES "}", &config));
    assert_true(config.architecture->task == TASK_SEQUENCE && config.architecture->mask == MASK_CAUSAL);
    assert_true(config.layers == 1 && config.encoder_layers == 2 && config.init_std == 0);
    assert_true(config.positions == POSITIONS_SINUSOID && config.norm_order == NORM_POST);
    assert_true(config.tied_head && config.tied_tables && config.embedding_scale);
    expect_ok(parse("{" PAIRS_SIZES
                    ",\"norm\":\"before\",\"positions\":\"learned\",\"scale_embedding\":false}",
                    &config));
    assert_true(config.positions == POSITIONS_LEARNED && config.norm_order == NORM_PRE);
    assert_true(!config.embedding_scale);
    expect_malformed("{" PAIRS_SIZES ",\"norm\":\"between\"}", "only \"before\" and \"after\" are supported");
    expect_malformed("{" PAIRS_SIZES ",\"tie_word_embeddings\":1}", "true or false");
    expect_malformed("{\"model_type\":\"fusebox-transformer\",\"vocab_size\":97}",
                     "\"encoder_layers\" is missing");
}

#define LLAMA_SIZES                                                                                          \
    "\"vocab_size\":97,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"         \
    "\"hidden_size\":24,\"intermediate_size\":50,\"max_position_embeddings\":16"
#define LLAMA   "{\"model_type\":\"llama\"," LLAMA_SIZES
#define QWEN3   "{\"model_type\":\"qwen3\"," LLAMA_SIZES
#define MISTRAL "{\"model_type\":\"mistral\"," LLAMA_SIZES

static void llamas_files_are_read(void **state) {
    (void)state;
    Config config;
    expect_ok(parse(LLAMA "}", &config));
    assert_true(config.norm_kind == NORM_RMS && config.activation == ACTIVATION_SWIGLU && !config.tied_head);
    assert_true(config.kv_heads == 2 && config.head_size == 6 && !config.attention_bias && !config.mlp_bias);
    assert_true(config.rotary.theta == 10000 && config.rotary.scaling == ROTARY_PLAIN);
    expect_ok(parse(LLAMA ",\"head_dim\":10,\"attention_bias\":true,\"tie_word_embeddings\":true}", &config));
    assert_true(config.head_size == 10 && config.attention_bias && config.tied_head);
    expect_ok(parse("{\"model_type\":\"qwen2\"," LLAMA_SIZES "}", &config));
    assert_true(config.attention_bias && config.architecture->projection_plain && !config.head_norms);
    expect_ok(parse(QWEN3 ",\"head_dim\":8}", &config));
    assert_true(!config.attention_bias && config.head_norms && config.head_size == 8);
    expect_ok(parse(MISTRAL ",\"sliding_window\":null}", &config));
}

/* Before transformers 5 and since. */
static void rotary_positions_are_read(void **state) {
    (void)state;
    Config before, since;
    expect_ok(parse(
        LLAMA
        ",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4,\"mrope_section\":null}}",
        &before));
    expect_ok(parse(
        LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,\"rope_theta\":5e5}}", &since));
    assert_true(before.rotary.theta == 5e5 && before.rotary.scaling == ROTARY_LINEAR &&
                before.rotary.factor == 4);
    assert_true(config_equal(&before, &since));
    expect_ok(parse(LLAMA ",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                          "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                          "\"original_max_position_embeddings\":8}}",
                    &before));
    assert_true(before.rotary.scaling == ROTARY_LLAMA3 && before.rotary.low == 1 && before.rotary.high == 4);
    assert_true(before.rotary.context == 8);
    expect_ok(parse(LLAMA ",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},"
                          "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":5e5}}",
                    &before));
    assert_true(config_equal(&before, &since));
}

static void other_llamas_are_turned_away(void **state) {
    (void)state;
    expect_malformed(LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}",
                     "\"rope_type\" is \"yarn\"; only \"default\", \"linear\" and \"llama3\"");
    expect_malformed(LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}}",
                     "\"type\" is \"dynamic\"");
    expect_malformed(LLAMA ",\"rope_parameters\":{\"mrope_section\":[1]}}", "\"mrope_section\" is [1]");
    expect_malformed(LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", "partial_rotary_factor");
    expect_malformed(
        LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5},"
              "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
        "\"rope_scaling\" is {\"type\":\"linear\",\"factor\":4}; it must mean the same as \"rope_par");
    expect_malformed(LLAMA ",\"rope_parameters\":3}", "\"rope_parameters\" is 3; an object is needed");
    expect_malformed(LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\"}}", "factor 0");
    expect_malformed(LLAMA ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8}}",
                     "low_freq_factor");
    expect_malformed(LLAMA ",\"rope_theta\":0}", "rope_theta");
    expect_malformed(LLAMA ",\"head_dim\":7}", "even size");
    expect_malformed("{\"model_type\":\"llama\",\"vocab_size\":97,\"num_hidden_layers\":10000,"
                     "\"num_attention_heads\":65536,\"hidden_size\":1048576,\"intermediate_size\":50,"
                     "\"max_position_embeddings\":16,\"head_dim\":1048576}",
                     "wider than 2^22");
    expect_malformed(LLAMA ",\"hidden_act\":\"gelu\"}", "\"hidden_act\" is \"gelu\"");
    expect_malformed(LLAMA ",\"num_local_experts\":8}", "\"num_local_experts\" is 8; only null");
    expect_malformed(LLAMA ",\"attn_logit_softcapping\":50.0}", "attn_logit_softcapping");
    expect_malformed(LLAMA ",\"quantization_config\":{}}", "quantization_config");
    expect_malformed(QWEN3 ",\"head_dim\":8,\"use_sliding_window\":true}", "use_sliding_window");
    expect_malformed(MISTRAL ",\"sliding_window\":4096}", "\"sliding_window\" is 4096; only null");
    expect_malformed(MISTRAL "}", "\"sliding_window\" is missing; only null");
}

static void malformed_files_are_named(void **state) {
    expect_malformed("", "line");
    expect_malformed("[]", "no JSON object");
    expect_malformed("{" SIZES ",\"n_embd\":24}", "duplicate");
    expect_malformed("{" SIZES ",\"layer_norm_epsilon\":NaN}", "line 1");
    expect_malformed("{" SIZES ",\"layer_norm_epsilon\":1e999}", "line 1");
    expect_malformed("{" SIZES ",\"layer_norm_epsilon\":\"1e-5\"}", "a number is needed");
    expect_malformed("{" SIZES ",\"layer_norm_epsilon\":-1}", "epsilon");
    expect_malformed("{" SIZES ",\"n_inner\":9223372036854775807}", "feed-forward");
    expect_malformed("{" SIZES ",\"n_ctx\":17}", "\"n_ctx\" is 17; it must equal \"n_positions\"");
    expect_malformed("{\"model_type\":\"gpt2\"}", "\"vocab_size\" is missing; a positive integer");
    expect_malformed("{\"model_type\":\"gpt2\",\"vocab_size\":9.5}", "\"vocab_size\" is 9.5");
    expect_malformed("{\"model_type\":\"gpt2\",\"vocab_size\":-1}", "\"vocab_size\" is -1");
    expect_malformed("{\"model_type\":\"gpt2\",\"vocab_size\":99999999999999999999}", "line 1");
    expect_malformed("{\"model_type\":\"gpt2\",\"vocab_size\":97,\"n_layer\":2,\"n_head\":5,\"n_embd\":24,"
                     "\"n_positions\":16}",
                     "width 24 is not a multiple of heads 5");
    expect_malformed("{\"model_type\":\"gpt2\",\"vocab_size\":97,\"n_layer\":2,\"n_head\":1,"
                     "\"n_embd\":9223372036854775807,\"n_positions\":16}",
                     "width");
    expect_malformed(
        "{\"model_type\":\"vit\",\"num_hidden_layers\":1,\"num_attention_heads\":1,\"hidden_size\":8,"
        "\"intermediate_size\":8,\"image_size\":9223372036854775807,\"patch_size\":4,\"num_channels\":1}",
        "the picture's side");
    Config config;
    expect_error(config_read(inside(*state, "none.json"), &config), ERROR_FILE, "none.json");
}

#define VIT                                                                                                  \
    "{\"model_type\":\"vit\",\"num_hidden_layers\":1,\"num_attention_heads\":1,\"hidden_size\":8,"           \
    "\"intermediate_size\":8,\"patch_size\":[4,4],\"image_size\":"

static void a_square_may_be_a_list(void **state) {
    Config config;
    (void)state;
    expect_ok(parse(VIT "[32,32]}", &config));
    assert_true(config.image == 32 && config.patch == 4);
    expect_malformed(VIT "[32,28]}", "\"image_size\" is [32,28]; a positive integer");
    expect_malformed(VIT "[32,32,32]}", "\"image_size\"");
    expect_malformed(VIT "[0,0]}", "\"image_size\"");
}

static void long_values_are_cut(void **state) {
    (void)state;
    char text[400];
    snprintf(text, sizeof text, "{\"model_type\":\"%0200d\"}", 1);
    expect_malformed(text, "000...; only");
    expect_malformed("{\"model_type\":\"a\\nb\xC3\xBC\"}", "a\\nb\\u00FC");
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_their_sizes),
        cmocka_unit_test(sizes_must_fit_together),
        IN_SCRATCH(what_is_written_is_read),
        IN_SCRATCH(numbers_are_written_short),
        cmocka_unit_test(transformers_files_are_read),
        cmocka_unit_test(defaults_are_gpt2s),
        cmocka_unit_test(other_models_are_turned_away),
        cmocka_unit_test(berts_files_are_read),
        cmocka_unit_test(encoder_decoders_files_are_read),
        cmocka_unit_test(llamas_files_are_read),
        cmocka_unit_test(rotary_positions_are_read),
        cmocka_unit_test(other_llamas_are_turned_away),
        IN_SCRATCH(malformed_files_are_named),
        cmocka_unit_test(a_square_may_be_a_list),
        cmocka_unit_test(long_values_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
