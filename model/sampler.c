#include "model/sampler.h"

#include "base/memory.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

/* Random numbers for sampling are streams of their own: this and the sequence's number. */
#define SAMPLER_STREAM UINT64_C(0x73616D706C650000)

struct Sampler {
    SamplerOptions options;
    int64_t vocab;
    double *weights;     // (vocab) exp((logit - maximum) / temperature)
    int32_t *heap;       // (vocab) ids, and behind them those already taken out
    const float *logits; // of the present row
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
    Sampler *s = memory_allocate(sizeof *s);
    if (s) {
        *s = (Sampler){*options, vocab, NULL, NULL, NULL};
        s->weights = memory_array((size_t)vocab, sizeof *s->weights);
        s->heap = memory_array((size_t)vocab, sizeof *s->heap);
    }
    if (!s || !s->weights || !s->heap) {
        sampler_close(s);
        return fail(ERROR_MEMORY, "no memory left to sample from %" PRId64 " tokens", vocab);
    }
    *sampler = s;
    return OK;
}

void sampler_close(Sampler *s) {
    if (!s) return;
    memory_free(s->weights);
    memory_free(s->heap);
    memory_free(s);
}

/* ---- the candidates in order: a heap gives the first few without sorting the rest ---- */

static bool before(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift_down(int32_t *heap, int64_t count, int64_t place, const float *logits) {
    int32_t id = heap[place];
    for (int64_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && before(logits, heap[child + 1], heap[child])) child++;
        if (before(logits, id, heap[child])) break;
        heap[place] = heap[child];
    }
    heap[place] = id;
}

static void heap_build(Sampler *s) {
    for (int64_t i = 0; i < s->vocab; i++) s->heap[i] = (int32_t)i;
    for (int64_t i = s->vocab / 2; i-- > 0;) sift_down(s->heap, s->vocab, i, s->logits);
}

/* Takes the best of the `left` ids out and puts it behind them. */
static int32_t heap_take(Sampler *s, int64_t left) {
    int32_t best = s->heap[0];
    s->heap[0] = s->heap[left - 1];
    sift_down(s->heap, left - 1, 0, s->logits);
    s->heap[left - 1] = best;
    return best;
}

/* Keeps the first top_k and of these the nucleus. They end up at the end of the heap, the best last; the
 * answer is how many, and `mass` their weight. */
static int64_t restrict_candidates(Sampler *s, double total, double *mass) {
    int64_t vocab = s->vocab, k = s->options.top_k;
    int64_t limit = k && k < vocab ? k : vocab, taken = 0, kept = 0;
    heap_build(s);
    if (limit < vocab) {
        total = 0;
        while (taken < limit) total += s->weights[heap_take(s, vocab - taken++)];
    }
    double threshold = s->options.top_p < 1 ? s->options.top_p * total : INFINITY;
    *mass = 0;
    while (kept < limit && *mass < threshold) {
        if (kept == taken) heap_take(s, vocab - taken++);
        *mass += s->weights[s->heap[vocab - 1 - kept++]];
    }
    return kept;
}

/* ---- drawing ---- */

static Status find_maximum(const float *logits, int64_t vocab, int64_t index, int32_t *best) {
    *best = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return fail(ERROR_NONFINITE, "the logit of token %" PRId64 " at position %" PRId64 " is %s", i,
                        index, isnan(logits[i]) ? "not a number" : "infinite");
        if (logits[i] > logits[*best]) *best = (int32_t)i;
    }
    if (logits[*best] == -INFINITY)
        return fail(ERROR_NONFINITE, "every logit at position %" PRId64 " is -inf", index);
    return OK;
}

/* The candidate at which the running sum of weights first exceeds `target`: never one that weighs nothing. */
static int32_t pick(const Sampler *s, int64_t count, bool ordered, double target) {
    double sum = 0;
    int32_t chosen = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t id = ordered ? s->heap[s->vocab - 1 - i] : (int32_t)i;
        if (s->weights[id] > 0) chosen = id; /* the last of them, should rounding keep the sum below */
        sum += s->weights[id];
        if (sum > target) break;
    }
    return chosen;
}

Status sampler_next(Sampler *s, const float *logits, int64_t index, int32_t *token) {
    int32_t best;
    TRY(find_maximum(logits, s->vocab, index, &best));
    *token = best;
    if (s->options.temperature == 0 || s->options.top_k == 1) return OK;
    double total = 0;
    for (int64_t i = 0; i < s->vocab; i++) {
        s->weights[i] = exp(((double)logits[i] - logits[best]) / s->options.temperature);
        total += s->weights[i];
    }
    s->logits = logits;
    bool ordered = s->options.top_p < 1 || (s->options.top_k && s->options.top_k < s->vocab);
    int64_t count = ordered ? restrict_candidates(s, total, &total) : s->vocab;
    double u = random_uniform(s->options.seed, SAMPLER_STREAM + s->options.sequence, (uint64_t)index);
    *token = pick(s, count, ordered, u * total);
    return OK;
}
