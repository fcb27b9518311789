#include "report/spans.h"

#include "base/memory.h"

#include <stdlib.h>

Span *spans_make(const Trace *trace) {
    Span *made = memory_array((size_t)trace->count + 1, sizeof *made);
    for (int64_t i = 0; i < trace->count; i++) made[i].stream = -1;
    for (int64_t i = 0; i < trace->count; i++) {
        const TraceEvent *e = &trace->events[i];
        int64_t above = trace_on_device(e) ? trace_above(trace, i, TRACE_OPERATION) : -1;
        if (above < 0) continue;
        Span *span = &made[above];
        if (span->stream < 0)
            *span = (Span){e->begin, e->end, e->stream};
        else if (e->stream == span->stream && e->begin < span->begin)
            span->begin = e->begin;
        if (e->stream == span->stream && e->end > span->end) span->end = e->end;
    }
    return made;
}

int lanes_place(Lanes *lanes, int64_t *begin, int64_t end) {
    int lane = 0;
    while (lane < LANES && lanes->ends[lane] > *begin) lane++;
    if (lane == LANES) {
        lane = 0;
        for (int i = 1; i < LANES; i++)
            if (lanes->ends[i] < lanes->ends[lane]) lane = i;
        *begin = lanes->ends[lane] < end ? lanes->ends[lane] : end;
    }
    if (end > lanes->ends[lane]) lanes->ends[lane] = end;
    return lane;
}

static int earlier(const void *a, const void *b) {
    const Interval *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

void intervals_sort(Interval *intervals, int64_t count) {
    if (count) qsort(intervals, (size_t)count, sizeof *intervals, earlier);
}

int64_t intervals_union(Interval *intervals, int64_t count) {
    int64_t covered = 0, reached = INT64_MIN;
    intervals_sort(intervals, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = intervals[i].begin > reached ? intervals[i].begin : reached;
        if (intervals[i].end <= begin) continue;
        covered += intervals[i].end - begin;
        reached = intervals[i].end;
    }
    return covered;
}
