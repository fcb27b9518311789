#include "tasks/masked/masked.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>

enum { STREAM_MASK_KIND = 0x6d61736b, STREAM_MASK_TOKEN }; // "mask"; of base/random.h

typedef struct {
    Windows windows;
    MaskRule rule;
} Masked;

/* How many of a row's n tokens are masked. */
static int64_t hidden_of(int64_t n) {
    int64_t hidden = llround(MASKED_SHARE * (double)n);
    return hidden < 1 ? 1 : hidden;
}

static Status count(void *context, int64_t position, int64_t *targets) {
    const Windows *w = &((const Masked *)context)->windows;
    (void)position;
    *targets = w->options.batch * hidden_of(w->stride);
    return OK;
}

/* Masks some of the n tokens of row `position`; returns how many. */
static int64_t mask_row(const Masked *m, int64_t position, int64_t n, int32_t *inputs, int32_t *targets) {
    uint64_t seed = m->windows.options.seed, row = (uint64_t)position;
    int64_t hidden = hidden_of(n);
    for (int64_t i = 0; i < hidden; i++) {
        /* The beginning of a random permutation for this row, so that no position is drawn twice. */
        int64_t drawn = random_permute(~seed, row, n, i);
        uint64_t index = row * (uint64_t)n + (uint64_t)i;
        double kind = random_uniform(seed, STREAM_MASK_KIND, index);
        targets[drawn] = inputs[drawn];
        if (kind < 0.8)
            inputs[drawn] = m->rule.mask;
        else if (kind < 0.9)
            inputs[drawn] = (int32_t)random_below(seed, STREAM_MASK_TOKEN, index, (uint64_t)m->rule.vocab);
    }
    return hidden;
}

static Status make(void *context, int64_t position, void *memory, Batch *batch) {
    const Masked *m = context;
    const Windows *w = &m->windows;
    const LoaderOptions *o = &w->options;
    int32_t *inputs = memory, *targets = inputs + o->batch * o->seq;
    *batch = (Batch){.inputs = inputs, .targets = targets, .seq = o->seq, .position = position};
    for (int64_t row = 0; row < o->batch; row++, inputs += o->seq, targets += o->seq) {
        TRY(tokens_read(w->source, windows_first(w, position + row), w->stride, inputs + 1));
        inputs[0] = m->rule.begin;
        inputs[o->seq - 1] = m->rule.end;
        for (int64_t i = 0; i < o->seq; i++) targets[i] = -1;
        batch->tokens += mask_row(m, position + row, w->stride, inputs + 1, targets + 1);
    }
    return OK;
}

Status loader_open_masked(const LoaderOptions *options, const TokenSource *source, const MaskRule *rule,
                          Loader **loader) {
    Windows windows;
    int64_t bytes;
    *loader = NULL;
    if (options->seq < 3)
        return fail(ERROR_USAGE,
                    "--seq=%lld leaves no room between a begin and an end token; the minimum is 3",
                    (long long)options->seq);
    TRY(windows_open(options, source, options->seq - 2, 0, &windows, &bytes));
    Masked *m = memory_allocate(sizeof *m);
    *m = (Masked){windows, *rule};
    const BatchMaker maker = {m, m->windows.count, bytes, make, count, memory_free};
    return loader_start(options, maker, loader);
}
