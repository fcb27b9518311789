#include "report/events.h"

#include "base/hash.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- the names of enums; NULL after the last ---- */

static const char *traffic_word(int i) {
    static const char *const names[TRAFFIC_COUNT] = {"none",    "all-reduce", "reduce-scatter", "all-gather",
                                                     "scatter", "sum",        "spread"};
    return i < TRAFFIC_COUNT ? names[i] : NULL;
}

/* ---- lists of numbers ---- */

/* Maximum of a step's times, sizes and numbers: sums over all events of a file stay exact. */
static const double NUMBER_MOST = 1e15;

static Status check_numbers(const json_t *item, size_t count, const char *where) {
    bool good = json_is_array(item) && json_array_size(item) == count;
    for (size_t i = 0; good && i < count; i++)
        good = json_is_integer(json_array_get(item, i)) &&
               fabs(json_number_value(json_array_get(item, i))) <= NUMBER_MOST;
    return good ? OK : fail(ERROR_FORMAT, "%s: not a list of %zu whole numbers", where, count);
}

static int64_t number(const json_t *item, size_t i) {
    return json_integer_value(json_array_get(item, i));
}

static void write_numbers(JsonWriter *w, const int64_t *numbers, int count) {
    json_write_open(w, '[');
    for (int i = 0; i < count; i++) json_write_integer(w, numbers[i]);
    json_write_close(w, ']');
}

/* For a kernel: grid, block, registers, shared and local memory. */
enum { SHAPE_NUMBERS = 10 };

static void write_shape(JsonWriter *w, const void *object) {
    const KernelShape *k = &((const TraceEvent *)object)->kernel;
    const int64_t numbers[SHAPE_NUMBERS] = {k->grid[0],        k->grid[1],  k->grid[2],   k->block[0],
                                            k->block[1],       k->block[2], k->registers, k->shared_static,
                                            k->shared_dynamic, k->local};
    write_numbers(w, numbers, SHAPE_NUMBERS);
}

static void read_shape(const json_t *items, void *object) {
    KernelShape *k = &((TraceEvent *)object)->kernel;
    int32_t *const to[SHAPE_NUMBERS] = {&k->grid[0],        &k->grid[1],  &k->grid[2],   &k->block[0],
                                        &k->block[1],       &k->block[2], &k->registers, &k->shared_static,
                                        &k->shared_dynamic, &k->local};
    for (size_t i = 0; i < SHAPE_NUMBERS && i < json_array_size(items); i++)
        *to[i] = (int32_t)number(items, i);
}

static Status check_shape(const json_t *item, const char *where) {
    const bool good =
        json_is_integer(item) && json_integer_value(item) >= 0 && json_integer_value(item) <= INT32_MAX;
    return good ? OK : fail(ERROR_FORMAT, "%s: not a number of a kernel's shape", where);
}

enum { KIND, TRACK, BEGIN, LENGTH, PARENT, LAUNCH, STEP, LAYER, QUEUED, SUBMITTED, EVENT_NUMBERS };

static Status check_events(const json_t *item, const char *where) {
    return check_numbers(item, EVENT_NUMBERS, where);
}

/* (r->trace->count) events that are left out, -1, get no number, so later events move up. */
static int64_t *places_of(const RankEvents *r) {
    int64_t *place = memory_array((size_t)r->trace->count + 1, sizeof *place), written = 0;
    for (int64_t i = 0; i < r->trace->count; i++) place[i] = r->numbers[i] < 0 ? -1 : written++;
    return place;
}

static void write_events(JsonWriter *w, const void *object) {
    const RankEvents *r = object;
    const Trace *t = r->trace;
    OWNED int64_t *place = places_of(r);
    json_write_open(w, '[');
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (r->numbers[i] < 0) continue;
        const int64_t numbers[EVENT_NUMBERS] = {[KIND] = r->numbers[i],
                                                [TRACK] = trace_on_device(e) ? e->stream : e->thread,
                                                [BEGIN] = e->begin,
                                                [LENGTH] = trace_length(e),
                                                [PARENT] = e->parent < 0 ? -1 : place[e->parent],
                                                [LAUNCH] = e->launch < 0 ? -1 : place[e->launch],
                                                [STEP] = e->step,
                                                [LAYER] = e->layer,
                                                [QUEUED] = e->queued,
                                                [SUBMITTED] = e->submitted};
        write_numbers(w, numbers, EVENT_NUMBERS);
    }
    json_write_close(w, ']');
}

static const char *named(Trace *t, const char *text) {
    return text && *text ? trace_name(t, text) : NULL;
}

/* An event of a kind, whose texts belong to the trace. */
static TraceEvent event_of_kind(Trace *t, const TraceEvent *kind) {
    TraceEvent e = *kind;
    e.name = trace_name(t, kind->name);
    e.operation = named(t, kind->operation);
    e.call = named(t, kind->call);
    e.source = named(t, kind->source);
    e.torch = named(t, kind->torch);
    e.shapes = named(t, kind->shapes);
    e.strides = named(t, kind->strides);
    e.instance = -1;
    return e;
}

static void read_events(const json_t *items, void *object) {
    RankEvents *r = object;
    Trace *t = r->trace = trace_open();
    OWNED TraceEvent *kinds = memory_array((size_t)r->kinds_count + 1, sizeof *kinds);
    size_t i;
    json_t *item;
    for (int64_t k = 0; k < r->kinds_count; k++) kinds[k] = event_of_kind(t, &r->kinds[k]);
    json_array_foreach(items, i, item) {
        TraceEvent e = kinds[number(item, KIND)];
        const bool device = trace_on_device(&e);
        e.thread = device ? -1 : (int32_t)number(item, TRACK);
        e.stream = device ? (int32_t)number(item, TRACK) : -1;
        e.begin = number(item, BEGIN);
        e.end = e.begin + number(item, LENGTH);
        e.parent = number(item, PARENT);
        e.launch = number(item, LAUNCH);
        e.step = number(item, STEP);
        e.layer = (int32_t)number(item, LAYER);
        e.queued = number(item, QUEUED);
        e.submitted = number(item, SUBMITTED);
        trace_add(t, &e);
    }
}

static void free_events(void *object) {
    RankEvents *r = object;
    trace_close(r->trace);
    r->trace = NULL;
}

/* ---- memory, and tokens per step ---- */

enum { AT, CLASS, BYTES, FILLER, MEMORY_NUMBERS };

static Status check_memory(const json_t *item, const char *where) {
    return check_numbers(item, MEMORY_NUMBERS, where);
}

static void write_memory(JsonWriter *w, const void *object) {
    const RankEvents *r = object;
    const Trace *t = r->trace;
    OWNED int64_t *place = places_of(r);
    json_write_open(w, '[');
    for (int64_t i = 0; i < t->memory_count; i++) {
        const TraceMemory *m = &t->memory[i];
        const int64_t numbers[MEMORY_NUMBERS] = {[AT] = m->at,
                                                 [CLASS] = m->class_,
                                                 [BYTES] = m->bytes,
                                                 [FILLER] = m->event < 0 ? -1 : place[m->event]};
        write_numbers(w, numbers, MEMORY_NUMBERS);
    }
    json_write_close(w, ']');
}

static void read_memory(const json_t *items, void *object) {
    RankEvents *r = object;
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item)
        trace_add_memory(r->trace, (TraceMemory){number(item, AT), (MemoryClass)number(item, CLASS),
                                                 number(item, BYTES), number(item, FILLER)});
}

static Status check_tokens(const json_t *item, const char *where) {
    const bool good =
        json_is_number(item) && isfinite(json_number_value(item)) && json_number_value(item) >= 0;
    return good ? OK : fail(ERROR_FORMAT, "%s: not a number of tokens", where);
}

static void write_tokens(JsonWriter *w, const void *object) {
    const Trace *t = ((const RankEvents *)object)->trace;
    json_write_open(w, '[');
    for (int64_t i = 0; i < t->run.traced_count; i++) json_write_number(w, trace_traced_tokens(&t->run, i));
    json_write_close(w, ']');
}

static void read_tokens(const json_t *items, void *object) {
    Trace *t = ((RankEvents *)object)->trace;
    const size_t count = json_array_size(items);
    OWNED double *tokens = memory_array(count + 1, sizeof *tokens);
    for (size_t i = 0; i < count; i++) tokens[i] = json_number_value(json_array_get(items, i));
    trace_set_times(t, NULL, NULL, 0, NULL, (int64_t)count);
    trace_set_tokens(t, NULL, tokens);
}

/* ---- the keys ---- */

#define NUMBERS(key_, what, free_)                                                                           \
    {                                                                                                        \
        .key = key_, .kind = FIELD_ITEMS, .check = check_##what, .write = write_##what, .read = read_##what, \
        .free = free_                                                                                        \
    }

static const Field kind_fields[] = {FIELD(TEXT, "name", TraceEvent, name),
                                    FIELD_WORD_OF("kind", TraceEvent, kind, trace_kind_name),
                                    FIELD_WORD_OF("phase", TraceEvent, phase, phase_name),
                                    FIELD(TRUTH, "own", TraceEvent, own),
                                    FIELD(TEXT, "operation", TraceEvent, operation),
                                    FIELD_WORD_OF("pass", TraceEvent, pass, pass_name),
                                    FIELD_WORD_OF("form", TraceEvent, form, form_name),
                                    FIELD(TEXT, "place", TraceEvent, call),
                                    FIELD_WORD_OF("category", TraceEvent, category, category_name),
                                    FIELD_WORD_OF("traffic", TraceEvent, traffic, traffic_word),
                                    FIELD(TEXT, "source", TraceEvent, source),
                                    FIELD(TEXT, "torch", TraceEvent, torch),
                                    FIELD(TRUTH, "torch_part", TraceEvent, torch_part),
                                    FIELD(TEXT, "shapes", TraceEvent, shapes),
                                    FIELD(TEXT, "strides", TraceEvent, strides),
                                    FIELD(MEASURE, "flops", TraceEvent, work.flops),
                                    FIELD(MEASURE, "least_bytes", TraceEvent, work.bytes),
                                    FIELD(MEASURE, "least_sent_bytes", TraceEvent, work.sent),
                                    NUMBERS("shape", shape, NULL),
                                    FIELD(MEASURE, "occupancy", TraceEvent, kernel.occupancy),
                                    FIELD_WORD_OF("direction", TraceEvent, copy.direction, copy_name),
                                    FIELD_WORD_OF("host_memory", TraceEvent, copy.host, host_memory_name),
                                    FIELD(COUNT, "bytes", TraceEvent, copy.bytes),
                                    {0}};

const Field event_fields[] = {FIELD(COUNT, "rank", RankEvents, rank),
                              FIELD(TEXT, "host", RankEvents, host),
                              FIELD(TEXT, "device", RankEvents, device),
                              FIELD(COUNT, "left_out", RankEvents, left_out),
                              FIELD_LIST_OF("kinds", RankEvents, kinds, kind_fields),
                              NUMBERS("events", events, free_events),
                              NUMBERS("memory", memory, NULL),
                              NUMBERS("tokens", tokens, NULL),
                              {0}};

/* ---- making ---- */

/* An event's kind: a copy without times and places, with zeroed padding, so that equal kinds are equal bytes. */
static void make_kind(const TraceEvent *e, TraceEvent *d) {
    memset(d, 0, sizeof *d);
    d->kind = e->kind, d->name = e->name, d->phase = e->phase, d->own = e->own;
    d->operation = e->operation, d->pass = e->pass, d->form = e->form, d->call = e->call;
    d->category = e->category, d->traffic = e->traffic, d->source = e->source;
    d->torch = e->torch, d->torch_part = e->torch_part, d->shapes = e->shapes, d->strides = e->strides;
    d->work.flops = e->work.flops, d->work.bytes = e->work.bytes, d->work.sent = e->work.sent;
    memcpy(&d->kernel, &e->kernel, sizeof d->kernel);
    d->copy.direction = e->copy.direction, d->copy.host = e->copy.host, d->copy.bytes = e->copy.bytes;
}

/* Maps kinds, by their bytes, to numbers: open addressing. */
typedef struct {
    int64_t *slots; // (room) number + 1; 0: free
    size_t room;    // a power of two, at most half full
    int64_t kinds_room;
} KindNumbers;

static size_t slot_of(const KindNumbers *d, const RankEvents *r, const TraceEvent *kind) {
    size_t i = hash_bytes(0, kind, sizeof *kind) & (d->room - 1);
    while (d->slots[i] && memcmp(&r->kinds[d->slots[i] - 1], kind, sizeof *kind) != 0)
        i = (i + 1) & (d->room - 1);
    return i;
}

static void grow(KindNumbers *d, const RankEvents *r) {
    memory_free(d->slots);
    d->room = d->room ? 2 * d->room : 1024;
    d->slots = memory_array(d->room, sizeof *d->slots);
    for (int64_t i = 0; i < r->kinds_count; i++) d->slots[slot_of(d, r, &r->kinds[i])] = i + 1;
}

static int64_t number_of(KindNumbers *d, RankEvents *r, const TraceEvent *e) {
    TraceEvent kind;
    make_kind(e, &kind);
    if (2 * (size_t)(r->kinds_count + 1) > d->room) grow(d, r);
    size_t slot = slot_of(d, r, &kind);
    if (!d->slots[slot]) {
        r->kinds = memory_grow(r->kinds, &d->kinds_room, r->kinds_count + 1, sizeof *r->kinds);
        memcpy(&r->kinds[r->kinds_count++], &kind, sizeof kind);
        d->slots[slot] = r->kinds_count;
    }
    return d->slots[slot] - 1;
}

/* The first step that does not fit; INT64_MAX: all fit. */
static int64_t steps_end(const Trace *t, int64_t most) {
    const int64_t first = t->run.first_step;
    int64_t last = first, end = INT64_MAX;
    for (int64_t i = 0; i < t->count; i++) last = t->events[i].step > last ? t->events[i].step : last;
    OWNED int64_t *events = memory_array((size_t)(last - first) + 1, sizeof *events); // of each step
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].step >= first) events[t->events[i].step - first]++;
    for (int64_t step = last, room = t->count; room > most && step >= first; step--) {
        room -= events[step - first];
        end = step;
    }
    return end;
}

static RankEvents rank_events(const Trace *t, int64_t most) {
    KindNumbers d = {0};
    RankEvents r = {.rank = t->run.rank,
                    .host = t->run.host,
                    .device = t->run.device,
                    .trace = (Trace *)(uintptr_t)t, // never modified
                    .numbers = memory_array((size_t)t->count + 1, sizeof *r.numbers)};
    const int64_t end = steps_end(t, most);
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        const bool kept = e->step < end && (e->parent < 0 || r.numbers[e->parent] >= 0);
        r.numbers[i] = kept ? number_of(&d, &r, e) : -1;
        r.left_out += !kept;
    }
    memory_free(d.slots);
    return r;
}

RankEvents *events_make(const Trace *t, int64_t *count) {
    *count = 1 + t->other_count;
    RankEvents *ranks = memory_array((size_t)*count, sizeof *ranks);
    for (int64_t i = 0; i < *count; i++)
        ranks[i] = rank_events(trace_of_rank(t, (int32_t)i), EVENTS_MOST / *count);
    return ranks;
}

void events_unmake(RankEvents *ranks, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        memory_free(ranks[i].kinds);
        memory_free(ranks[i].numbers);
    }
    memory_free(ranks);
}

/* ---- checking ---- */

static bool is_word(const char *(*word)(int i), const json_t *object, const char *key) {
    return field_word(word, json_string_value(json_object_get(object, key))) >= 0;
}

static bool good_kind(const json_t *kind) {
    return is_word(trace_kind_name, kind, "kind") && is_word(phase_name, kind, "phase") &&
           is_word(pass_name, kind, "pass") && is_word(form_name, kind, "form") &&
           is_word(category_name, kind, "category") && is_word(traffic_word, kind, "traffic") &&
           is_word(copy_name, kind, "direction") && is_word(host_memory_name, kind, "host_memory") &&
           json_array_size(json_object_get(kind, "shape")) == SHAPE_NUMBERS;
}

static TraceKind kind_of(const json_t *kinds, const json_t *event) {
    const json_t *kind = json_array_get(kinds, (size_t)number(event, KIND));
    return (TraceKind)field_word(trace_kind_name, json_string_value(json_object_get(kind, "kind")));
}

static bool in_range(int64_t value, int64_t low, int64_t high) {
    return low <= value && value < high;
}

static bool good_event(const json_t *events, size_t i, const json_t *kinds) {
    enum { TRACKS_MOST = 1024, LAYERS_MOST = 1 << 20 };
    const int64_t LENGTH_MOST = 10000000000000; // ns, so that sums over all events are representable
    const json_t *e = json_array_get(events, i);
    const int64_t launch = number(e, LAUNCH), count = (int64_t)json_array_size(events);
    if (!in_range(number(e, KIND), 0, (int64_t)json_array_size(kinds))) return false;
    if (!in_range(number(e, PARENT), -1, (int64_t)i) || !in_range(launch, -1, count)) return false;
    if (launch >= 0) {
        const json_t *call = json_array_get(events, (size_t)launch);
        if (!in_range(number(call, KIND), 0, (int64_t)json_array_size(kinds)) ||
            kind_of(kinds, call) != TRACE_RUNTIME)
            return false;
    }
    return in_range(number(e, TRACK), 0, TRACKS_MOST) && in_range(number(e, LENGTH), 0, LENGTH_MOST) &&
           number(e, STEP) >= -1 && in_range(number(e, LAYER), -1, LAYERS_MOST);
}

static Status check_rank(const json_t *rank) {
    const json_t *kinds = json_object_get(rank, "kinds"), *events = json_object_get(rank, "events"),
                 *memory = json_object_get(rank, "memory");
    for (size_t i = 0; i < json_array_size(kinds); i++)
        if (!good_kind(json_array_get(kinds, i)))
            return fail(ERROR_FORMAT, "kinds[%zu]: it contains an unknown word", i);
    if (json_array_size(events) > EVENTS_MOST) return fail(ERROR_FORMAT, "events: more than %d", EVENTS_MOST);
    for (size_t i = 0; i < json_array_size(events); i++)
        if (!good_event(events, i, kinds))
            return fail(ERROR_FORMAT, "events[%zu]: invalid kind, track, enclosing event or launch", i);
    for (size_t i = 0; i < json_array_size(memory); i++) {
        const json_t *m = json_array_get(memory, i);
        if (!in_range(number(m, CLASS), 0, MEMORY_CLASS_COUNT) || number(m, BYTES) < 0 ||
            !in_range(number(m, FILLER), -1, (int64_t)json_array_size(events)))
            return fail(ERROR_FORMAT, "memory[%zu]: invalid class, size or event", i);
    }
    return OK;
}

Status events_check(const json_t *ranks, size_t path) {
    for (size_t i = 0; i < json_array_size(ranks); i++)
        TRY(fail_at(check_rank(json_array_get(ranks, i)), "paths[%zu].recorded[%zu]", path, i));
    return OK;
}
