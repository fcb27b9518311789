#include "profile/torch.h"

#include "profile/category.h"

#include <stdio.h>
#include <string.h>

/* ---- shapes ---- */

/* The i-th of "[[4, 64, 64], [], [64]]"; of rank 0 where there is none. */
static Shape shape_of(const char *shapes, int i) {
    Shape s = {0};
    const char *at = shapes;
    for (; i >= 0 && at; i--) at = strchr(at + 1, '[');
    for (at = at ? at + 1 : "]"; *at != ']' && s.rank < 4; at += strspn(at, ", ")) {
        long long size;
        int used;
        if (sscanf(at, "%lld%n", &size, &used) != 1) break;
        s.d[s.rank++] = size;
        at += used;
    }
    return s;
}

/* The shapes of the product that the event is, or of the last one before it in the same operation. */
static const char *product_of(const Trace *t, int64_t event) {
    int64_t parent = t->events[event].parent;
    for (int64_t i = event; i > parent; i--)
        if (t->events[i].parent == parent && t->events[i].shapes) return t->events[i].shapes;
    return NULL;
}

/* (B * heads, rows, columns) as (B, heads, rows, columns); B is that of what the operation reads. */
static Shape by_head(Shape s, Shape read) {
    int64_t batch = s.rank == 3 ? s.d[0] : 1;
    if (s.rank < 2 || !read.rank || !read.d[0]) return (Shape){0};
    return shape4(read.d[0], batch / read.d[0], s.d[s.rank - 2], s.d[s.rank - 1]);
}

/* The shape that a letter stands for (torch.h). */
static Shape shape_named(const Trace *t, int64_t event, char letter) {
    const TraceEvent *e = &t->events[event];
    const char *read = e->parent >= 0 ? t->events[e->parent].shapes : NULL;
    const char *product = product_of(t, event);
    Shape first = shape_of(read, 0), a = shape_of(product, 0), b = shape_of(product, 1), wrote = a;
    int64_t count = shape_count(first);
    if (b.rank) wrote.d[wrote.rank - 1] = b.d[b.rank - 1];
    switch (letter) {
    case 'a': return a;
    case 'b': return b;
    case 'A': return by_head(a, first);
    case 'B': return by_head(b, first);
    case 'Y': return by_head(wrote, first);
    case 'w': return b.rank ? shape2(b.d[1], b.d[0]) : b;
    case 'c': return b.rank ? shape1(b.d[1]) : b;
    case 'y':
        if (first.rank && wrote.rank) first.d[first.rank - 1] = wrote.d[wrote.rank - 1];
        return first;
    case 'd': return first.rank ? shape2(count / first.d[first.rank - 1], first.d[first.rank - 1]) : first;
    default: return letter >= '0' && letter <= '3' ? shape_of(read, letter - '0') : (Shape){0};
    }
}

/* ---- names ---- */

/* "aten::matmul[AB]/aten::bmm[ab]" */
static int split(const Trace *t, int64_t event, const char *path, bool shapes, TorchCall calls[TORCH_DEPTH]) {
    enum { LETTERS_MOST = 8 };
    Shape sizes[LETTERS_MOST];
    int count = 0;
    for (const char *at = path; *at && count < TORCH_DEPTH; count++) {
        TorchCall *call = &calls[count];
        size_t length = strcspn(at, "/["), letters = 0;
        snprintf(call->name, sizeof call->name, "%.*s", (int)length, at);
        at += length;
        if (*at == '[') letters = strcspn(at + 1, "]");
        if (!shapes || letters > LETTERS_MOST) letters = 0;
        for (size_t i = 0; i < letters; i++) sizes[i] = shape_named(t, event, at[1 + i]);
        shapes_say(sizes, (int)letters, call->shapes);
        at += strcspn(at, "/");
        at += *at == '/';
    }
    return count;
}

/* Whether the operation has a bias: a backward pass reads a gradient before what its forward pass read. */
static bool has_bias(const TraceEvent *e) {
    int bias = e->operation == OP_NORM ? 3 : 2;
    return shape_of(e->shapes, bias + (e->pass == PASS_BACKWARD)).rank > 0;
}

static int named(TorchCall calls[TORCH_DEPTH], const char *prefix, const char *name) {
    calls[0] = (TorchCall){.joins = false};
    snprintf(calls[0].name, sizeof calls[0].name, "%s%.*s", prefix, TORCH_NAME_BYTES - 16, name);
    return 1;
}

int torch_calls(const Trace *t, int64_t event, bool shapes, TorchCall calls[TORCH_DEPTH]) {
    const TraceEvent *e = &t->events[event];
    char label[LABEL_BYTES], part[2 * LABEL_BYTES];
    int joins, count;
    operation_label(e, label);
    if (e->kind == TRACE_RUNTIME) return named(calls, "", e->name);
    if (e->kind == TRACE_STEP) return named(calls, "", "ProfilerStep*");
    if (e->kind < TRACE_OPERATION) return e->layer >= 0 ? 0 : named(calls, "", e->name);
    if (e->kind == TRACE_OPERATION) return e->form == FORM_NAIVE ? 0 : named(calls, "fusebox::", label);
    const char *path = NULL;
    if (e->parent >= 0)
        path = torch_name(e->operation, e->pass, e->name, has_bias(&t->events[e->parent]), &joins);
    if (!path) {
        snprintf(part, sizeof part, "%s: %s", label, e->name);
        return named(calls, "fusebox::", part);
    }
    count = split(t, event, path, shapes, calls);
    for (int i = 0; i < count; i++) calls[i].joins = i < joins;
    return count;
}
