/* The Llama family against transformers (fixtures/make_llama.py): the logits of a prompt, and greedy
 * generation from it with a cache. Its training: test_architectures.c, test_curves.c. */
#include "model/checkpoint.h"
#include "run/inference.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"
#include "tests/support/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/fixtures/llama/"
static const char *const models[] = {"llama",   "llama3", "linear", "qwen2",  "qwen3",
                                     "mistral", "head64", "head80", "head128"};
enum { MODELS = sizeof models / sizeof *models };

typedef struct {
    const char *folder;
    Config config;
    int64_t prompt_count, greedy_count;
    int32_t *prompt, *greedy;
    double *logits; // (prompt, vocab)
} Answer;

static int32_t *ints_of(const Safetensors *file, const char *name, int64_t *count) {
    const SafetensorsEntry *entry = safetensors_find(file, name);
    assert_non_null(entry);
    *count = entry->count;
    int32_t *values = integers(entry->count, 1);
    memcpy(values, entry->data, (size_t)entry->bytes);
    return values;
}

static Answer open_answer(int i, char folder[100]) {
    Answer a = {.folder = folder};
    char path[120];
    Safetensors *file;
    snprintf(folder, 100, FIXTURES "%s", models[i]);
    snprintf(path, sizeof path, "%s/values.safetensors", folder);
    expect_ok(checkpoint_config(folder, &a.config));
    expect_ok(safetensors_open(path, &file));
    a.prompt = ints_of(file, "prompt", &a.prompt_count);
    a.greedy = ints_of(file, "greedy", &a.greedy_count);
    a.logits = doubles_of(file, "prompt_logits");
    safetensors_close(file);
    return a;
}

static void open_inference(Inference *in, const Answer *a, const Variant *variant, InferenceUse use) {
    const Session session = {.device = test_device(variant->backend),
                             .dtype = variant->dtype,
                             .tf32 = variant->tf32,
                             .fuses = variant->form == FORM_FUSED ? (1 << OP_COUNT) - 1 : 0,
                             .config = a->config,
                             .folder = (char *)a->folder};
    expect_ok(inference_open(in, &session, true));
    in->use = use;
    in->logits_dtype = F32;
    in->batch = 1;
    in->seq = a->prompt_count;
    expect_ok(inference_start(in, &session, false, 0));
}

/* fp32 within 1e-5 on the CPU and 1e-4 on a GPU; shorter dtypes within a bound from their unit roundoff. */
static void logits_are_transformers(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < MODELS; i++) {
        char folder[100];
        Inference in;
        Answer a = open_answer(i, folder);
        open_inference(&in, &a, variant, INFERENCE_LOGITS);
        expect_ok(inference_logits(&in, a.prompt, 1, a.prompt_count));
        int64_t vocab = a.config.vocab, padded = config_padded_vocab(&a.config);
        float *got = calloc((size_t)(a.prompt_count * padded), sizeof *got);
        expect_ok(values_read(&in.ctx, in.logits, 0, a.prompt_count * padded, got));
        Units units = units_of(variant);
        double unit = fmax(units.storage, units.product), largest = 0;
        for (int64_t k = 0; k < a.prompt_count * vocab; k++) largest = fmax(largest, fabs(a.logits[k]));
        double fp32 = variant->backend == BACKEND_CPU ? 1e-5 : 1e-4;
        double bound = unit <= 0x1p-23 ? fp32 : 40 * unit * largest;
        for (int64_t t = 0; t < a.prompt_count; t++)
            for (int64_t v = 0; v < vocab; v++) {
                double off = fabs((double)got[t * padded + v] - a.logits[t * vocab + v]);
                if (!(off <= bound))
                    fail_msg("%s, %s: logit %d of position %d is off by %.3g", variant->name, models[i],
                             (int)v, (int)t, off);
            }
        free(got);
        inference_close(&in);
    }
}

/* The logits of transformers' greedy choices differ by more than 5e-5, so fp32 must make the same choices. */
static void greedy_text_is_transformers(void **state) {
    static const SamplerOptions options = {.temperature = 0, .top_p = 1};
    const Variant *variant = test_variant(state, OP_ATTENTION);
    if (variant->dtype != F32 || variant->tf32) skip();
    for (int i = 0; i < MODELS; i++) {
        char folder[100];
        Inference in;
        Sampler *sampler;
        Answer a = open_answer(i, folder);
        open_inference(&in, &a, variant, INFERENCE_GENERATE);
        expect_ok(sampler_open(a.config.vocab, &options, &sampler));
        expect_ok(generator_start(&in.generator, a.prompt, a.prompt_count));
        for (int64_t k = 0; k < a.greedy_count; k++) {
            int32_t token;
            expect_ok(generator_next(&in.ctx, &in.generator, sampler, &token));
            if (token != a.greedy[k])
                fail_msg("%s, %s: token %d is %d, and transformers' %d", variant->name, models[i], (int)k,
                         token, a.greedy[k]);
        }
        sampler_close(sampler);
        inference_close(&in);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ON_EACH_VARIANT(logits_are_transformers),
                                       ON_EACH_VARIANT(greedy_text_is_transformers)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
