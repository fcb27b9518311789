#include "run/sampler.h"

#include "base/memory.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>

/* Random streams for sampling: this number and the sequence's. */
#define SAMPLER_STREAM UINT64_C(0x73616D706C650000)

struct Sampler {
    SamplerOptions options;
    int64_t vocab;
    SampleRule rule;
    int32_t *weights; // (vocab)
    bool *seen;       // (vocab) while penalizing; all false
};

Status sampler_open(int64_t vocab, const SamplerOptions *options, Sampler **sampler) {
    *sampler = NULL;
    if (vocab < 1 || vocab > INT32_MAX)
        return fail(ERROR_USAGE, "cannot sample from %" PRId64 " tokens", vocab);
    if (!(options->temperature >= 0 && isfinite(options->temperature)))
        return fail(ERROR_USAGE, "the temperature is %g, but must be finite and not negative",
                    options->temperature);
    if (options->top_k < 0)
        return fail(ERROR_USAGE, "top-k is %" PRId64 ", but must not be negative", options->top_k);
    if (!(options->top_p > 0 && options->top_p <= 1))
        return fail(ERROR_USAGE, "top-p is %g, but must be above 0 and at most 1", options->top_p);
    if (!(options->min_p >= 0 && options->min_p <= 1))
        return fail(ERROR_USAGE, "min-p is %g, but must be from 0 to 1", options->min_p);
    if (!(options->repeat_penalty >= 0 && isfinite(options->repeat_penalty)))
        return fail(ERROR_USAGE, "the repeat penalty is %g, but must be finite and not negative",
                    options->repeat_penalty);
    Sampler *s = memory_allocate(sizeof *s);
    *s = (Sampler){.options = *options,
                   .vocab = vocab,
                   .rule = sample_rule(options->temperature, options->top_k, options->top_p, options->min_p),
                   .weights = memory_array((size_t)vocab, sizeof *s->weights),
                   .seen = memory_array((size_t)vocab, sizeof *s->seen)};
    *sampler = s;
    return OK;
}

void sampler_close(Sampler *s) {
    if (!s) return;
    memory_free(s->weights);
    memory_free(s->seen);
    memory_free(s);
}

static Status find_maximum(const float *logits, int64_t vocab, int64_t index, int32_t *best) {
    float largest = -INFINITY;
    int32_t bad = 0, first = 0;
#pragma omp simd reduction(max : largest) reduction(+ : bad)
    for (int64_t i = 0; i < vocab; i++) {
        bad += !(logits[i] < INFINITY);
        largest = logits[i] > largest ? logits[i] : largest;
    }
    if (bad) {
        while (logits[first] < INFINITY) first++;
        return fail(ERROR_NONFINITE, "the logit of token %" PRId32 " at position %" PRId64 " is %s", first,
                    index, isnan(logits[first]) ? "not a number" : "infinite");
    }
    if (largest == -INFINITY)
        return fail(ERROR_NONFINITE, "every logit at position %" PRId64 " is -inf", index);
    while (logits[first] != largest) first++;
    *best = first;
    return OK;
}

double sampler_uniform(const Sampler *s, int64_t index) {
    return random_uniform(s->options.seed, SAMPLER_STREAM + s->options.sequence, (uint64_t)index);
}

SampleRule sampler_rule(const Sampler *s) {
    return s->rule;
}

bool sampler_penalizes(const Sampler *s) {
    return s->options.repeat_penalty > 0 && s->options.repeat_penalty != 1;
}

void sampler_penalize(Sampler *s, const int32_t *tokens, int64_t count, float *logits) {
    const float penalty = (float)s->options.repeat_penalty;
    for (int64_t i = 0; i < count; i++) {
        float *logit = &logits[tokens[i]];
        if (!s->seen[tokens[i]]) *logit = *logit < 0 ? *logit * penalty : *logit / penalty;
        s->seen[tokens[i]] = true;
    }
    for (int64_t i = 0; i < count; i++) s->seen[tokens[i]] = false;
}

Status sampler_next(Sampler *s, const float *logits, int64_t index, int32_t *token) {
    int32_t best;
    TRY(find_maximum(logits, s->vocab, index, &best));
    *token = sample_host(&s->rule, logits, s->vocab, best, sampler_uniform(s, index), s->weights);
    return OK;
}
