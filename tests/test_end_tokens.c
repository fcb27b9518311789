/* data/end_tokens: a folder's end tokens, and generation that ends at them. */
#include "tasks/text/stream_text.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/end_tokens.h"
#include "data/kept.h"
#include "model/checkpoint.h"
#include "model/config_file.h"
#include "run/inference.h"
#include "tests/support/rig.h"

#include <stdio.h>
#include <string.h>

static void write_file(const char *folder, const char *name, const char *text) {
    char *path = path_join(folder, name);
    expect_ok(file_write(path, text, (int64_t)strlen(text)));
    memory_free(path);
}

static Status read_files(const char *folder, const char *generation, const char *config, EndTokens *ends) {
    write_file(folder, "generation_config.json", generation);
    write_file(folder, "config.json", config);
    return end_tokens_read(folder, ends);
}

static void one_or_several_are_read(void **state) {
    const char *folder = *state;
    EndTokens ends;
    expect_ok(end_tokens_read(folder, &ends)); // neither file exists
    assert_int_equal(ends.count, 0);
    expect_ok(read_files(folder, "{\"eos_token_id\": 7}", "{\"eos_token_id\": 9}", &ends));
    assert_true(ends.count == 1 && ends.ids[0] == 7);
    expect_ok(read_files(folder, "{\"eos_token_id\": [7, 3]}", "{}", &ends));
    assert_true(ends.count == 2 && end_tokens_hold(&ends, 7) && end_tokens_hold(&ends, 3));
    assert_false(end_tokens_hold(&ends, 9));
    expect_ok(read_files(folder, "{\"eos_token_id\": null}", "{\"eos_token_id\": [9]}", &ends));
    assert_true(ends.count == 1 && ends.ids[0] == 9);
    expect_ok(read_files(folder, "{}", "{}", &ends));
    assert_int_equal(ends.count, 0);
}

static void malformed_ones_are_named(void **state) {
    static const char *const malformed[] = {"{\"eos_token_id\": \"7\"}", "{\"eos_token_id\": -1}",
                                            "{\"eos_token_id\": [1, 2.5]}", "{\"eos_token_id\": 4294967296}"};
    EndTokens ends;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        expect_error(read_files(*state, malformed[i], "{}", &ends), ERROR_FORMAT, "\"eos_token_id\" is not");
    expect_error(
        read_files(*state, "{\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "{}", &ends),
        ERROR_FORMAT, "more than 16");
    expect_error(read_files(*state, "{", "{}", &ends), ERROR_FORMAT, "generation_config.json");
}

static void what_is_written_is_read(void **state) {
    const EndTokens all[] = {{{2147483647}, 1}, {{5, 7, 0}, 3}};
    for (int i = 0; i < 2; i++) {
        EndTokens again;
        expect_ok(end_tokens_write(*state, &all[i], NULL));
        expect_ok(end_tokens_read(*state, &again));
        assert_memory_equal(&all[i], &again, sizeof again);
    }
}

/* Also for GPT-2; the begin token is the folder's, or else the tokenizer's. */
static void every_familys_are_the_configs(void **state) {
    static const char text[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 9, \"n_layer\": 1, \"n_head\": 1, "
                               "\"n_embd\": 4, \"n_positions\": 8, \"bos_token_id\": 0, "
                               "\"eos_token_id\": [5, 6]}";
    Config config;
    char *path = path_join(*state, "config.json"), *again;
    int64_t length;
    write_file(*state, "config.json", text);
    expect_ok(checkpoint_config(*state, &config));
    assert_true(config.ends.count == 2 && end_tokens_hold(&config.ends, 6));
    expect_ok(config_write(path, &config, 7));
    expect_ok(file_read(path, 1 << 16, &again, &length));
    assert_non_null(strstr(again, "\"bos_token_id\": 7,"));
    assert_non_null(strstr(again, "\"eos_token_id\": [5, 6],"));
    memory_free(again);
    Kept kept;
    write_file(*state, "config.json", text);
    expect_ok(kept_read(*state, &kept));
    config.kept = &kept;
    expect_ok(config_write(path, &config, 7));
    expect_ok(file_read(path, 1 << 16, &again, &length));
    assert_non_null(strstr(again, "\"bos_token_id\": 0,"));
    memory_free(again);
    kept_free(&kept);
    memory_free(path);
}

/* Foreign keys survive; end tokens, sizes and types are the model's. */
static void what_others_said_is_kept(void **state) {
    static const char generation[] = "{\"temperature\": 0.7, \"top_p\": 1.0, \"do_sample\": true, "
                                     "\"bos_token_id\": 1, \"pad_token_id\": 0, \"eos_token_id\": [5, 6], "
                                     "\"suppress\": [1, [2.5, null], {\"a \\\"b\\\"\": \"c\\n\"}]}",
                      text[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 9, \"n_layer\": 1, \"n_head\": 1, "
                               "\"n_embd\": 4, \"n_positions\": 8, \"bos_token_id\": 0, \"pad_token_id\": 0, "
                               "\"resid_pdrop\": 0.1, \"dtype\": \"float16\", \"use_cache\": true}";
    const char *const same[] = {"bos_token_id", "pad_token_id", "resid_pdrop", "use_cache", "n_embd"};
    Kept kept, again;
    Config config;
    char *path = path_join(*state, "config.json");
    write_file(*state, "generation_config.json", generation);
    write_file(*state, "config.json", text);
    expect_ok(checkpoint_config(*state, &config));
    expect_ok(kept_read(*state, &kept));
    config.kept = &kept;
    expect_ok(config_write(path, &config, 7));
    expect_ok(end_tokens_write(*state, &config.ends, kept.generation));
    expect_ok(kept_read(*state, &again));
    assert_true(json_equal(again.generation, kept.generation));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_true(
            json_equal(json_object_get(again.config, same[i]), json_object_get(kept.config, same[i])));
    assert_null(json_object_get(again.config, "dtype"));
    kept_free(&again);
    kept_free(&kept);
    memory_free(path);
}

enum { TOKENS = 60 };

static Status ignore(void *context, const void *bytes, int64_t count) {
    (void)context, (void)bytes, (void)count;
    return OK;
}

/* The bytes that a model with random weights generates after a first one. */
static TextStats write_text(const EndTokens *ends, int32_t tokens[1 + TOKENS]) {
    Inference in;
    Config config;
    Tokenizer *tokenizer;
    TextStats stats;
    const TextOptions options = {.prompt = "a",
                                 .prompt_length = 1,
                                 .tokens = TOKENS,
                                 .stop = "",
                                 .sampler = {.temperature = 1, .top_p = 1}};
    expect_ok(config_preset("llama-nano", &config));
    config.ends = *ends;
    expect_ok(tokenizer_open("bytes", &tokenizer));
    const Session session = {.device = test_device(BACKEND_CPU), .config = config};
    expect_ok(inference_open(&in, &session, true));
    in.use = INFERENCE_GENERATE;
    expect_ok(inference_start(&in, &session, false, 3));
    expect_ok(stream_text(&in.ctx, &in.generator, tokenizer, &options, ignore, NULL, &stats));
    memcpy(tokens, in.generator.history, (size_t)(1 + stats.tokens) * sizeof *tokens);
    inference_close(&in);
    tokenizer_free(tokenizer);
    return stats;
}

static void each_of_them_ends_a_text(void **state) {
    (void)state;
    int32_t whole[1 + TOKENS], ended[1 + TOKENS];
    TextStats stats = write_text(&(EndTokens){.count = 0}, whole);
    assert_true(stats.tokens == TOKENS && !stats.stopped);
    int32_t first = whole[20], second = whole[40];
    int64_t end = 1;
    while (whole[end] != first && whole[end] != second) end++;
    stats = write_text(&(EndTokens){{second, first}, 2}, ended);
    assert_true(stats.stopped && stats.tokens == end - 1);
    assert_memory_equal(ended, whole, (size_t)end * sizeof *whole);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(one_or_several_are_read),  IN_SCRATCH(malformed_ones_are_named),
        IN_SCRATCH(what_is_written_is_read),  IN_SCRATCH(every_familys_are_the_configs),
        IN_SCRATCH(what_others_said_is_kept), ONCE(each_of_them_ends_a_text)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
