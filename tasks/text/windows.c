#include "tasks/text/windows.h"

#include "base/memory.h"
#include "base/random.h"

#include <string.h>

int64_t windows_first(const Windows *w, int64_t position) {
    int64_t epoch = position / w->count, window = position % w->count;
    if (w->options.shuffle) window = random_permute(w->options.seed, (uint64_t)epoch, w->count, window);
    return w->options.first + window * w->stride;
}

static Status make(void *context, int64_t position, void *memory, Batch *batch) {
    const Windows *w = context;
    const LoaderOptions *o = &w->options;
    int32_t *inputs = memory, *targets = inputs + o->batch * o->seq;
    *batch = (Batch){.inputs = inputs,
                     .targets = targets,
                     .seq = o->seq,
                     .position = position,
                     .tokens = o->batch * o->seq};
    for (int64_t row = 0; row < o->batch; row++, inputs += o->seq, targets += o->seq) {
        /* The targets are the inputs shifted by one: only the last target lies beyond the inputs. */
        int64_t first = windows_first(w, position + row);
        TRY(tokens_read(w->source, first, o->seq, inputs));
        memcpy(targets, inputs + 1, (size_t)(o->seq - 1) * sizeof *inputs);
        TRY(tokens_read(w->source, first + o->seq, 1, targets + o->seq - 1));
    }
    return OK;
}

static Status count(void *context, int64_t position, int64_t *targets) {
    const LoaderOptions *o = &((const Windows *)context)->options;
    (void)position;
    *targets = o->batch * o->seq;
    return OK;
}

/* The number of tokens of the source that the windows are cut from. */
static Status part_length(const LoaderOptions *o, const TokenSource *source, int64_t *length) {
    *length = o->length ? o->length : tokens_count(source) - o->first;
    if (o->first >= 0 && *length >= 0 && *length <= tokens_count(source) - o->first) return OK;
    return fail(ERROR_INTERNAL, "the part of the data from token %lld on, %lld tokens long, is out of range",
                (long long)o->first, (long long)o->length);
}

Status windows_open(const LoaderOptions *o, const TokenSource *source, int64_t stride, int64_t beyond,
                    Windows *windows, int64_t *bytes) {
    int64_t length;
    TRY(loader_check(o, 2, bytes));
    TRY(part_length(o, source, &length));
    if (length < stride + beyond)
        return fail(ERROR_FORMAT, "too few tokens (%lld): one window of --seq=%lld needs %lld",
                    (long long)length, (long long)o->seq, (long long)(stride + beyond));
    *windows = (Windows){*o, source, (length - beyond) / stride, stride};
    return OK;
}

Status loader_open_windows(const LoaderOptions *options, const TokenSource *source, Loader **loader) {
    Windows windows;
    int64_t bytes;
    *loader = NULL;
    TRY(windows_open(options, source, options->seq, 1, &windows, &bytes));
    Windows *w = memory_allocate(sizeof *w);
    *w = windows;
    const BatchMaker maker = {w, w->count, bytes, make, count, memory_free};
    return loader_start(options, maker, loader);
}
