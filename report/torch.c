#include "report/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- shapes ---- */

/* The i-th of "[[4, 64, 64], [], [64]]"; of rank 0 where there is none. */
static Shape shape_of(const char *shapes, int i) {
    Shape s = {0};
    const char *at = shapes;
    for (; i >= 0 && at; i--) at = strchr(at + 1, '[');
    for (at = at ? at + 1 : "]"; *at != ']' && s.rank < 4; at += strspn(at, ", ")) {
        char *end;
        s.d[s.rank] = strtoll(at, &end, 10);
        if (end == at) break;
        s.rank++;
        at = end;
    }
    return s;
}

/* The shapes of the product that the event is, of the last one before it in the same operation, or else of
 * the next. */
static const char *product_of(const Trace *t, int64_t event) {
    int64_t parent = t->events[event].parent;
    for (int64_t i = event; i > parent; i--)
        if (t->events[i].parent == parent && t->events[i].shapes) return t->events[i].shapes;
    for (int64_t i = event; parent >= 0 && i < t->count && t->events[i].begin < t->events[parent].end; i++)
        if (t->events[i].parent == parent && t->events[i].shapes) return t->events[i].shapes;
    return NULL;
}

/* (B * heads, rows, columns) as (B, heads, rows, columns); B is that of what the operation reads. */
static Shape by_head(Shape s, Shape read) {
    int64_t batch = s.rank == 3 ? s.d[0] : 1;
    if (s.rank < 2 || !read.rank || !read.d[0]) return (Shape){0};
    return shape4(read.d[0], batch / read.d[0], s.d[s.rank - 2], s.d[s.rank - 1]);
}

static Shape swapped(Shape s, int axis) {
    if (s.rank < axis + 2) return s;
    int64_t size = s.d[axis];
    s.d[axis] = s.d[axis + 1];
    s.d[axis + 1] = size;
    return s;
}

static Shape matrix(Shape s) {
    int64_t width = s.rank ? s.d[s.rank - 1] : 0;
    return width ? shape2(shape_count(s) / width, width) : s;
}

/* What a letter is of the product next to the event (torch.h). */
static Shape of_product(const Trace *t, int64_t event, char letter, Shape first) {
    const char *product = product_of(t, event);
    Shape a = shape_of(product, 0), b = shape_of(product, 1), wrote = a;
    if (b.rank) wrote.d[wrote.rank - 1] = b.d[b.rank - 1];
    switch (letter) {
    case 'a': return a;
    case 'b': return b;
    case 'o': return wrote;
    case 'g': return a.rank ? swapped(a, a.rank - 2) : a;
    case 'j': return b.rank ? swapped(b, b.rank - 2) : b;
    case 'w': return b.rank ? shape2(b.d[1], b.d[0]) : b;
    case 'c': return b.rank ? shape1(b.d[1]) : b;
    case 'A': return by_head(a, first);
    case 'B': return by_head(b, first);
    case 'Y': return by_head(wrote, first);
    case 'H': return swapped(by_head(a, first), 1);
    case 'N': return swapped(by_head(b, first), 1);
    case 'M': return swapped(by_head(wrote, first), 1);
    case 'k': return swapped(by_head(b, first), 2);
    case 'K': return swapped(swapped(by_head(b, first), 2), 1);
    case 'm': return wrote.rank == 3 ? shape2(wrote.d[1], wrote.d[2]) : (Shape){0};
    case 'y':
        if (first.rank && wrote.rank) first.d[first.rank - 1] = wrote.d[wrote.rank - 1];
        return first;
    default: return (Shape){0};
    }
}

/* And of an embedding: `tokens` are its indices, (B, T), and `width` is C. */
static Shape of_embedding(char letter, Shape tokens, int64_t width) {
    if (tokens.rank != 2) return (Shape){0};
    switch (letter) {
    case 'n': return shape1(shape_count(tokens));
    case 't': return shape1(tokens.d[1]);
    case 'e': return shape2(shape_count(tokens), width);
    case 'Q': return shape2(tokens.d[1], width);
    default: return shape3(tokens.d[0], tokens.d[1], width);
    }
}

/* Whether one product makes, or takes back, so many columns: that of the linear layer next to attention, before
 * it in the forward pass and behind it in the backward pass. */
static bool made_at_once(const Trace *t, int64_t attention, int64_t columns) {
    const int step = t->events[attention].pass == PASS_BACKWARD ? 1 : -1;
    for (int64_t i = attention; i >= 0 && i < t->count; i += step) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_PRIMITIVE || strcmp(e->operation, "linear") != 0 || !e->shapes) continue;
        return shape_of(e->shapes, 0).d[0] == columns || shape_of(e->shapes, 1).d[1] == columns;
    }
    return false;
}

/* (B, T, 3 C) of queries that a layer makes together with keys and values; `at`: which of what attention reads
 * they are. */
static Shape packed(const Trace *t, int64_t attention, int at) {
    if (attention < 0) return (Shape){0};
    Shape queries = shape_of(t->events[attention].shapes, at),
          strides = shape_of(t->events[attention].strides, at);
    if (strides.rank != 3 || strides.d[1] == queries.d[2] || !made_at_once(t, attention, strides.d[1]))
        return (Shape){0};
    return shape3(queries.d[0], queries.d[1], strides.d[1]);
}

/* The shape that a letter stands for. */
static Shape shape_named(const Trace *t, int64_t event, char letter) {
    const TraceEvent *e = &t->events[event];
    const char *read = e->parent >= 0 ? t->events[e->parent].shapes : NULL;
    const bool back = e->pass == PASS_BACKWARD;
    Shape first = shape_of(read, 0), second = shape_of(read, 1);
    int64_t rows = matrix(first).d[0];
    if (letter >= '0' && letter <= '4') return shape_of(read, letter - '0');
    switch (letter) {
    case '-': return (Shape){0};
    case 'd': return matrix(first);
    case 'x': return matrix(second);
    case 'r': return shape1(rows);
    case 'u':
        if (first.rank) first.d[first.rank - 1] = 1;
        return first;
    case 'z': return swapped(shape_of(read, 2), 0);
    case 'S': return packed(t, e->parent, back);
    case 'V': return shape2(rows, second.d[0]);
    case 'n':
    case 't':
    case 'e':
    case 'Q':
    case 'E': return of_embedding(letter, shape_of(read, back ? 2 : 1), shape_of(read, back).d[1]);
    default: return of_product(t, event, letter, first);
    }
}

void torch_shapes(const Trace *t, int64_t event, const char *letters, char text[SHAPES_BYTES]) {
    Shape sizes[TORCH_LETTERS];
    int count = 0;
    for (; letters[count] && count < TORCH_LETTERS; count++)
        sizes[count] = shape_named(t, event, letters[count]);
    shapes_say(sizes, count, text);
}

void torch_shapes_of(const char *outer, const char *letters, char text[SHAPES_BYTES]) {
    Shape sizes[TORCH_LETTERS];
    int count = 0;
    for (; letters[count] && count < TORCH_LETTERS; count++)
        sizes[count] = letters[count] == '-' ? (Shape){0} : shape_of(outer, letters[count] - '0');
    shapes_say(sizes, count, text);
}

/* ---- names ---- */

/* "aten::matmul[AB]/aten::bmm[ab]" */
static int split(const Trace *t, int64_t event, const char *path, bool shapes, TorchCall calls[TORCH_DEPTH]) {
    int count = 0;
    for (const char *at = path; *at && count < TORCH_DEPTH; count++) {
        TorchCall *call = &calls[count];
        char letters[TORCH_LETTERS + 1] = "";
        size_t length = strcspn(at, "/[");
        *call = (TorchCall){.joins = false};
        snprintf(call->name, sizeof call->name, "%.*s", (int)length, at);
        at += length;
        if (*at == '[') snprintf(letters, sizeof letters, "%.*s", (int)strcspn(at + 1, "]"), at + 1);
        if (shapes) torch_shapes(t, event, letters, call->shapes);
        at += strcspn(at, "/");
        at += *at == '/';
    }
    return count;
}

/* A backward pass reads a gradient before what its forward pass read. */
bool torch_has_bias(const Trace *t, int64_t primitive) {
    const TraceEvent *e = &t->events[primitive];
    const int bias = (e->operation && strcmp(e->operation, "norm") == 0 ? 3 : 2) + (e->pass == PASS_BACKWARD);
    return e->parent >= 0 && shape_of(t->events[e->parent].shapes, bias).rank > 0;
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
    if (e->parent >= 0) path = torch_name(e, torch_has_bias(t, event), &joins);
    if (!path) {
        snprintf(part, sizeof part, "%s: %s", label, e->name);
        return named(calls, "fusebox::", part);
    }
    count = split(t, event, path, shapes, calls);
    for (int i = 0; i < count; i++) calls[i].joins = i < joins;
    return count;
}
