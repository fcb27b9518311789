/* Fuzzes another rank's packed trace: a valid one in which bytes are changed. An input is a length in two
 * bytes, and then offsets and values of three bytes each. */
#include "base/memory.h"
#include "profile/trace_pack.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void pack_one(void **data, size_t *bytes) {
    Trace *t = trace_open();
    const double ms = 100, reader = 0, tokens = 11;
    TraceEvent step = trace_event(t, TRACE_STEP, "step"), kernel = trace_event(t, TRACE_KERNEL, "compute");
    step.end = kernel.end = 100;
    step.parent = -1;
    step.thread = kernel.stream = 0;
    kernel.parent = trace_add(t, &step);
    trace_add(t, &kernel);
    trace_add_memory(t, (TraceMemory){5, MEMORY_SAVED, 100, -1});
    t->run.engine = trace_name(t, "made up");
    t->run.ranks = 2;
    t->run.steps = t->run.step_count = 1;
    trace_set_times(t, &ms, &reader, 1, &ms, 1);
    trace_set_tokens(t, &tokens, &tokens);
    must(!trace_finish(t));
    trace_pack(t, data, bytes);
    trace_close(t);
}

static void read_trace(const uint8_t *data, size_t size) {
    static void *whole;
    static size_t bytes;
    Trace *t;
    if (!whole) pack_one(&whole, &bytes);
    if (size < 2) return;
    const size_t cut = (size_t)(data[0] << 8 | data[1]), length = cut < bytes ? bytes - cut : 0;
    OWNED uint8_t *changed = memory_allocate(length + 1);
    memcpy(changed, whole, length);
    for (size_t i = 2; i + 2 < size; i += 3) {
        const size_t at = (size_t)(data[i] << 8 | data[i + 1]);
        if (at < length) changed[at] = data[i + 2];
    }
    Status status = trace_unpack(changed, length, &t);
    if (!status) trace_close(t);
    if (status) must_refuse(status, status_code(status));
}

FUZZ(trace, read_trace, NULL)
