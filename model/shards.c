#include "model/shards.h"

#include "base/memory.h"
#include "kernels/accumulate/accumulate.h"

/* ---- opening and closing ---- */

static Status create_events(Shards *s, Device *device) {
    for (int g = 0; g < s->events; g++) {
        TRY(device->event_create(device, &s->ready[g]));
        TRY(device->event_create(device, &s->arrived[g]));
    }
    return device->event_create(device, &s->complete);
}

Status shards_open(Comm *comm, Parameters *p) {
    if (!comm) return OK;
    Shards *s = p->shards = memory_allocate(sizeof *s);
    *s = (Shards){.comm = comm, .device = comm->device, .lane = LANE_SIDE, .events = p->group_count};
    s->ready = memory_array((size_t)s->events, sizeof(Event *));
    s->arrived = memory_array((size_t)s->events, sizeof(Event *));
    s->order = memory_array((size_t)s->events, sizeof *s->order);
    parameters_share(p, comm->rank, comm->size);
    return create_events(s, s->device);
}

void shards_close(Parameters *p) {
    Shards *s = p->shards;
    if (!s) return;
    Device *device = s->device;
    for (int g = 0; g < s->events; g++) {
        if (s->ready[g]) device->event_free(device, s->ready[g]);
        if (s->arrived[g]) device->event_free(device, s->arrived[g]);
    }
    if (s->complete) device->event_free(device, s->complete);
    memory_free(s->ready);
    memory_free(s->arrived);
    memory_free(s->order);
    memory_free(s);
    p->shards = NULL;
}

/* Whether exchanges are one-sided copies that complete by themselves. */
static bool posts(const Shards *s) {
    return s->comm->posts && s->lane == LANE_SIDE;
}

bool shards_cut(const Ctx *ctx, const Parameters *p) {
    return p->ranks > 1 && op_form(ctx, OP_COMM, ctx->dtype) == FORM_FUSED;
}

/* Elements [first, first + count) of flat memory. */
static Tensor range(Tensor flat, int64_t first, int64_t count) {
    return tensor_elements(flat, first, shape1(count));
}

/* Offset of this rank's part of bucket g in a state tensor. */
static int64_t state_first(const Parameters *p, int g) {
    return p->sharded ? p->buckets[g].first / p->ranks : parameters_part(p, g).first;
}

/* ---- concurrent with the passes ---- */

/* Makes later work in one lane wait for the current work of the other. */
static Status order(const Shards *s, Lane first, Lane then, Event *event) {
    TRY(comm_record(s->comm, first, event));
    return first == then ? OK : comm_wait(s->comm, then, event);
}

int shards_outside_blocks(const Ctx *ctx, const Parameters *p, ParameterRange whole,
                          ParameterRange parts[PARTS_OUTSIDE_BLOCKS]) {
    if (accumulates_in_products(ctx)) return parameters_outside_blocks(p, whole, parts);
    parts[0] = whole;
    return 1;
}

Status shards_take_finished(Ctx *ctx, Parameters *p) {
    ParameterRange parts[PARTS_OUTSIDE_BLOCKS], all = {0, tensor_count(p->sums)};
    const int parts_count = p->whole ? 0 : shards_outside_blocks(ctx, p, all, parts);
    int64_t count = p->whole ? all.count : 0;
    for (int i = 0; i < parts_count; i++) count += parts[i].count;
    return take(ctx, ARENA_GRADIENTS, "finished gradients", p->sums.dtype, shape1(count), &p->finished);
}

Tensor shards_finished(const Parameters *p, ParameterRange part) {
    ParameterRange parts[PARTS_OUTSIDE_BLOCKS] = {{0, tensor_count(p->sums)}};
    int64_t at = 0; // offset of the part in `finished`
    int i = 0;
    if (tensor_count(p->finished) < parts[0].count) (void)parameters_outside_blocks(p, parts[0], parts);
    for (; part.first >= parts[i].first + parts[i].count; i++) at += parts[i].count;
    return tensor_elements(p->finished, at + part.first - parts[i].first, shape1(part.count));
}

/* Adds the bucket to the sum of the previous micro-batches. */
static Status add_finished(Ctx *ctx, const Parameters *p, ParameterRange bucket) {
    ParameterRange parts[PARTS_OUTSIDE_BLOCKS];
    if (tensor_empty(p->finished)) return OK;
    int count = shards_outside_blocks(ctx, p, bucket, parts);
    ctx->call = "micro-batches";
    for (int i = 0; i < count; i++)
        TRY(accumulate(ctx, &(Accumulate){.x = shards_finished(p, parts[i]),
                                          .sum = range(p->sums, parts[i].first, parts[i].count)}));
    return OK;
}

static int gradient_slot(const Parameters *p, int g) {
    (void)p;
    return g;
}

/* Slots: one per group for gradients, then one per group for weights. */
static int weight_slot(const Parameters *p, int g) {
    return p->group_count + g;
}

/* Waits in the main lane for the exchanges of groups [first, end), if there were any. */
static Status arrive(const Parameters *p, int (*slot)(const Parameters *p, int g), int first, int end) {
    for (int g = first, count; g < end; g += count + 1) {
        for (count = 0; g + count < end && p->buckets[g + count].count > 0;) count++;
        TRY(comm_arrive(p->shards->comm, slot(p, g), count));
    }
    return OK;
}

static Exchange gradients_of(const Parameters *p, int g) {
    ParameterRange bucket = p->buckets[g];
    Exchange e = {.comm = p->shards->comm,
                  .lane = p->shards->lane,
                  .slot = gradient_slot(p, g),
                  .whole = range(p->sums, bucket.first, bucket.count)};
    int64_t others = p->ranks - 1; // each other rank sends this rank its part
    if (!tensor_empty(p->arrivals))
        e.arrivals = range(p->arrivals, bucket.first / p->ranks * others, bucket.count / p->ranks * others);
    return e;
}

/* The number of buckets that are exchanged together. Buckets of the first two groups, which become ready
 * last, are exchanged separately. */
enum { TOGETHER = 4, LAST_GROUPS = 2 };

/* A branch in the pass's CUDA graph delays the next kernels by about 15 us, so several buckets share one. */
static Status exchange_group(Ctx *ctx, const Parameters *p, int g) {
    Shards *s = p->shards;
    ctx->layer = -1;
    if (p->buckets[g].count > 0) {
        TRY(add_finished(ctx, p, p->buckets[g]));
        s->order[s->done++] = g;
    }
    if (s->sent == s->done || (s->done - s->sent < TOGETHER && g >= LAST_GROUPS)) return OK;
    if (!ctx->measuring) TRY(order(s, LANE_MAIN, s->lane, s->ready[g]));
    while (s->sent < s->done) {
        Exchange e = gradients_of(p, s->order[s->sent++]);
        TRY(exchange_gradients(ctx, &e));
    }
    return OK;
}

/* The group of a gradient in the first block of a stack; else 0. */
static int first_block_of(const Parameters *p, Tensor gradient) {
    const size_t at = ((uintptr_t)gradient.data - (uintptr_t)p->sums.data) / dtype_size(p->sums.dtype);
    const int groups[] = {p->stack.first_group + 1,
                          p->config.encoder_layers ? p->encoder.first_group + 1 : 0};
    for (int i = 0; i < 2; i++) {
        const ParameterRange group = p->groups[groups[i]];
        if (groups[i] && at >= (size_t)group.first && at < (size_t)(group.first + group.count))
            return at >= (size_t)p->buckets[groups[i]].first ? groups[i] : 0;
    }
    return 0;
}

/* The embedding's gradient is the largest and ready last. To overlap its exchange, a weight gradient of
 * the first block is computed after it; nothing else waits for that gradient. */
bool shards_defer(Ctx *ctx, const void *linear) {
    const Parameters *p = ctx->defer_state;
    const LinearBackward *l = linear;
    Shards *s = p->shards;
    const int group = s && s->reduces ? first_block_of(p, l->dweight) : 0;
    if (!group || p->buckets[group].count == 0) return false;
    s->late = (LateGradient){group, *l->forward, *l, ctx->call, ctx->layer};
    s->late.backward.forward = &s->late.forward;
    s->late.backward.dx = (Tensor){0};
    s->late.backward.accumulate = false;
    return true;
}

/* Computes the deferred gradient after the embedding's group, before the first block's. */
static Status make_late(Ctx *ctx, const Parameters *p) {
    LateGradient *late = &p->shards->late;
    const int group = late->group;
    late->group = 0;
    ctx->layer = late->layer;
    ctx->call = late->call;
    late->backward.lasts = false;
    TRY(linear_backward(ctx, &late->backward));
    return exchange_group(ctx, p, group);
}

Status shards_ready(Ctx *ctx, const Parameters *p, int g) {
    const Shards *s = p->shards;
    if (!s || !s->reduces || (g > 0 && s->late.group == g)) return OK;
    TRY(exchange_group(ctx, p, g));
    return s->late.group == g + 1 ? make_late(ctx, p) : OK;
}

/* Starts to send bucket g's weights after the current work of the main lane. */
static Status gather(Ctx *ctx, const Parameters *p, int g) {
    const Shards *s = p->shards;
    ParameterRange bucket = p->buckets[g];
    Exchange e = {.comm = s->comm,
                  .lane = s->lane,
                  .slot = weight_slot(p, g),
                  .whole = range(p->weight, bucket.first, bucket.count)};
    if (bucket.count > 0) TRY(exchange_weights(ctx, &e));
    return ctx->measuring || posts(s) ? OK : comm_record(s->comm, s->lane, s->arrived[g]);
}

Status shards_gather(Ctx *ctx, const Parameters *p) {
    Shards *s = p->shards;
    ctx->layer = -1;
    if (!ctx->measuring) TRY(order(s, LANE_MAIN, s->lane, s->complete));
    for (int g = posts(s) ? 0 : 1; g < p->group_count; g++) TRY(gather(ctx, p, g));
    return OK;
}

bool shards_send(const Parameters *p) {
    return posts(p->shards);
}

/* A wait keeps the next kernel from starting early, so it covers all groups entered so far. This rank's
 * own sends have completed when the other ranks' passes, which wait for them, send gradients, that is,
 * before the memory is overwritten. */
Status shards_enter(Ctx *ctx, const Parameters *p, int g) {
    Shards *s = p->shards;
    if (!s || !s->gathers || ctx->measuring) return OK;
    if (posts(s) && g >= s->entered) {
        int end = g > 0 ? 2 * g : 2;
        if (end > p->group_count) end = p->group_count;
        TRY(arrive(p, weight_slot, s->entered, end));
        s->entered = end;
    }
    return s->lane == LANE_SIDE && !posts(s) && g > 0 ? comm_wait(s->comm, LANE_MAIN, s->arrived[g]) : OK;
}

/* ---- the update ---- */

/* The update of this rank's part of bucket g. */
static Adamw part_of(const Parameters *p, const Adamw *whole, int g) {
    ParameterRange part = parameters_part(p, g);
    int64_t first = state_first(p, g);
    Adamw a = *whole;
    a.first = part.first;
    a.weight = range(whole->weight, part.first, part.count);
    a.gradient = range(whole->gradient, part.first, part.count);
    if (!tensor_empty(a.master)) a.master = range(whole->master, first, part.count);
    a.m = range(whole->m, first, part.count);
    a.v = range(whole->v, first, part.count);
    a.squares = range(whole->squares, part.first / ADAMW_BLOCK, adamw_blocks(part.first, part.count));
    return a;
}

static Status update_part(Ctx *ctx, const Parameters *p, const Adamw *whole, unsigned steps, int g) {
    Adamw a = part_of(p, whole, g);
    a.steps = steps;
    ctx->call = "adamw";
    return tensor_count(a.weight) > 0 ? adamw_update(ctx, &a) : OK;
}

/* Reduces this rank's part of bucket g to the sum over ranks. */
static Status sum_part(Ctx *ctx, const Parameters *p, int g) {
    Exchange e = gradients_of(p, g);
    return posts(p->shards) && p->buckets[g].count > 0 ? exchange_sums(ctx, &e) : OK;
}

/* Sums the groups in order of arrival; the last groups' arrive last. This rank stores its partial squares at
 * their positions and zeros elsewhere. The sum over ranks then has all partial squares, and the norm has the
 * bits of a single rank. */
Status shards_sum(Ctx *ctx, const Parameters *p, const Adamw *whole) {
    const Shards *s = p->shards;
    const bool posted = posts(s), runs = !ctx->measuring;
    ctx->layer = -1;
    if (runs) TRY(ctx->device->fill(ctx->device, whole->squares.data, 0, tensor_bytes(whole->squares)));
    if (runs && !posted) TRY(order(s, s->lane, LANE_MAIN, s->complete));
    if (runs && posted) TRY(arrive(p, gradient_slot, LAST_GROUPS, p->group_count));
    for (int i = 0, all = 0; i < s->done; i++) {
        const int g = s->order[i];
        if (runs && posted && g < LAST_GROUPS && !all++) TRY(arrive(p, gradient_slot, 0, LAST_GROUPS));
        TRY(sum_part(ctx, p, g));
        TRY(update_part(ctx, p, whole, ADAMW_SUM, g));
    }
    return runs && posted ? order(s, s->lane, LANE_MAIN, s->complete) : OK;
}

/* Updates the first group first, because the next forward pass begins with it; where its weights are
 * gathered, that overlaps the updates of the others. */
static Status apply(Ctx *ctx, const Parameters *p, const Adamw *whole) {
    const Shards *s = p->shards;
    const bool gathers = !posts(s);
    TRY(update_part(ctx, p, whole, ADAMW_APPLY, 0));
    if (gathers && !ctx->measuring) TRY(order(s, LANE_MAIN, s->lane, s->complete));
    if (gathers) TRY(gather(ctx, p, 0));
    for (int g = 1; g < p->group_count; g++) TRY(update_part(ctx, p, whole, ADAMW_APPLY, g));
    if (ctx->measuring || !gathers || s->lane == LANE_MAIN) return OK;
    return comm_wait(s->comm, LANE_MAIN, s->arrived[0]);
}

Status shards_update(Ctx *ctx, const Parameters *p, const Adamw *whole) {
    ctx->layer = -1;
    if (!ctx->measuring)
        TRY(comm_clear(p->shards->comm)); // between the sums of the losses and of the squares
    TRY(exchange_squares(ctx, &(Exchange){.comm = p->shards->comm, .whole = whole->squares}));
    Adamw clip = *whole;
    clip.steps = ADAMW_CLIP;
    ctx->call = "adamw";
    TRY(adamw_update(ctx, &clip));
    return apply(ctx, p, whole);
}

/* ---- the state as a whole ---- */

/* This rank's part of bucket g of an unsharded tensor, including its part after the flat space. */
static Tensor piece(const Parameters *p, Tensor whole, int g) {
    int64_t count = p->buckets[g].count / p->ranks;
    return range(whole, p->buckets[g].first + p->rank * count, count);
}

Tensor shards_whole(const Parameters *p, Tensor state) {
    return p->sharded ? tensor_view(p->gradient.data, state.dtype, p->gradient.shape) : state;
}

Status shards_collect(Ctx *ctx, const Parameters *p, Tensor state, Tensor *whole) {
    *whole = shards_whole(p, state);
    for (int g = 0; g < p->group_count && p->sharded; g++) {
        Tensor all = range(*whole, p->buckets[g].first, p->buckets[g].count), own = piece(p, *whole, g);
        if (tensor_count(all) == 0) continue;
        TRY(ctx->device->copy(ctx->device, own.data, range(state, state_first(p, g), 1).data,
                              tensor_bytes(own)));
        TRY(comm_all_gather(p->shards->comm, own, all, LANE_MAIN));
    }
    return OK;
}

Status shards_keep(Ctx *ctx, const Parameters *p, Tensor state) {
    for (int g = 0; g < p->group_count && p->sharded; g++) {
        Tensor own = piece(p, shards_whole(p, state), g);
        if (tensor_count(own) > 0)
            TRY(ctx->device->copy(ctx->device, range(state, state_first(p, g), 1).data, own.data,
                                  tensor_bytes(own)));
    }
    return OK;
}
