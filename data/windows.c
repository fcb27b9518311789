/* Batches of windows of a row of tokens: for the next token, and for masked tokens. */
#include "base/memory.h"
#include "base/random.h"
#include "data/loader_internal.h"

#include <math.h>
#include <string.h>

enum { STREAM_MASK_KIND = 0x6d61736b, STREAM_MASK_TOKEN }; // "mask"; of base/random.h

/* What a maker of windows keeps. */
typedef struct {
    LoaderOptions options;
    int64_t windows;
    int64_t stride; // tokens from one window to the next
    MaskRule rule;  // of masked windows
} Windows;

/* Where window number `position` of the endless row of epochs begins in the source. */
static int64_t window_first(const Windows *w, int64_t position) {
    int64_t epoch = position / w->windows, window = position % w->windows;
    if (w->options.shuffle) window = random_permute(w->options.seed, (uint64_t)epoch, w->windows, window);
    return w->options.first + window * w->stride;
}

static Status make_windows(void *context, int64_t position, void *memory, Batch *batch) {
    const Windows *w = context;
    const LoaderOptions *o = &w->options;
    int32_t *inputs = memory, *targets = inputs + o->batch * o->seq;
    *batch = (Batch){.inputs = inputs,
                     .targets = targets,
                     .seq = o->seq,
                     .position = position,
                     .tokens = o->batch * o->seq};
    for (int64_t row = 0; row < o->batch; row++, inputs += o->seq, targets += o->seq) {
        /* The targets are the inputs moved by one: only the last comes from beyond them. */
        int64_t first = window_first(w, position + row);
        TRY(tokens_read(o->source, first, o->seq, inputs));
        memcpy(targets, inputs + 1, (size_t)(o->seq - 1) * sizeof *inputs);
        TRY(tokens_read(o->source, first + o->seq, 1, targets + o->seq - 1));
    }
    return OK;
}

static Status count_windows(void *context, int64_t position, int64_t *targets) {
    const LoaderOptions *o = &((const Windows *)context)->options;
    (void)position;
    *targets = o->batch * o->seq;
    return OK;
}

/* ---- masking ---- */

/* How many of a row's n tokens are hidden. */
static int64_t hidden_of(int64_t n) {
    int64_t hidden = llround(0.15 * (double)n);
    return hidden < 1 ? 1 : hidden;
}

static Status count_masked(void *context, int64_t position, int64_t *targets) {
    const Windows *w = context;
    (void)position;
    *targets = w->options.batch * hidden_of(w->stride);
    return OK;
}

/* Hides some of the n tokens of row `position`; returns how many. */
static int64_t mask_row(const Windows *w, int64_t position, int64_t n, int32_t *inputs, int32_t *targets) {
    uint64_t seed = w->options.seed, row = (uint64_t)position;
    int64_t hidden = hidden_of(n);
    for (int64_t i = 0; i < hidden; i++) {
        /* The first of a shuffle of the row's own: none is drawn twice. */
        int64_t drawn = random_permute(~seed, row, n, i);
        uint64_t index = row * (uint64_t)n + (uint64_t)i;
        double kind = random_uniform(seed, STREAM_MASK_KIND, index);
        targets[drawn] = inputs[drawn];
        if (kind < 0.8)
            inputs[drawn] = w->rule.mask;
        else if (kind < 0.9)
            inputs[drawn] = (int32_t)random_below(seed, STREAM_MASK_TOKEN, index, (uint64_t)w->rule.vocab);
    }
    return hidden;
}

static Status make_masked(void *context, int64_t position, void *memory, Batch *batch) {
    const Windows *w = context;
    const LoaderOptions *o = &w->options;
    int32_t *inputs = memory, *targets = inputs + o->batch * o->seq;
    *batch = (Batch){.inputs = inputs, .targets = targets, .seq = o->seq, .position = position};
    for (int64_t row = 0; row < o->batch; row++, inputs += o->seq, targets += o->seq) {
        TRY(tokens_read(o->source, window_first(w, position + row), w->stride, inputs + 1));
        inputs[0] = w->rule.begin;
        inputs[o->seq - 1] = w->rule.end;
        for (int64_t i = 0; i < o->seq; i++) targets[i] = -1;
        batch->tokens += mask_row(w, position + row, w->stride, inputs + 1, targets + 1);
    }
    return OK;
}

/* ---- opening ---- */

/* How many tokens of the source the windows are cut from. */
static Status part_length(const LoaderOptions *o, int64_t *length) {
    *length = o->length ? o->length : tokens_count(o->source) - o->first;
    if (o->first >= 0 && *length >= 0 && *length <= tokens_count(o->source) - o->first) return OK;
    return fail(ERROR_INTERNAL, "the part of the data from token %lld on, %lld tokens long, is out of range",
                (long long)o->first, (long long)o->length);
}

/* A window takes `stride` tokens, and looks `beyond` tokens further. */
static Status open_windows(const LoaderOptions *o, int64_t stride, int64_t beyond, const MaskRule *rule,
                           Loader **loader) {
    int64_t length, bytes;
    *loader = NULL;
    TRY(loader_check(o, 2, &bytes));
    TRY(part_length(o, &length));
    if (length < stride + beyond)
        return fail(ERROR_FORMAT, "too few tokens (%lld): one window of --seq=%lld needs %lld",
                    (long long)length, (long long)o->seq, (long long)(stride + beyond));
    Windows *w = memory_allocate(sizeof *w);
    *w = (Windows){.options = *o, .windows = (length - beyond) / stride, .stride = stride};
    if (rule) w->rule = *rule;
    BatchMaker maker = {.context = w,
                        .windows = w->windows,
                        .bytes = bytes,
                        .make = rule ? make_masked : make_windows,
                        .count = rule ? count_masked : count_windows,
                        .release = memory_free};
    return loader_start(o, maker, loader);
}

Status loader_open(const LoaderOptions *options, Loader **loader) {
    return open_windows(options, options->seq, 1, NULL, loader);
}

Status loader_open_masked(const LoaderOptions *options, const MaskRule *rule, Loader **loader) {
    *loader = NULL;
    if (options->seq < 3)
        return fail(ERROR_USAGE,
                    "--seq=%lld leaves no room between a begin and an end token; the minimum is 3",
                    (long long)options->seq);
    return open_windows(options, options->seq - 2, 0, rule, loader);
}
