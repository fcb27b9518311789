#include "run/fit.h"

#include "base/checked.h"
#include "base/memory.h"
#include "comm/rendezvous.h"
#include "run/plan.h"

#include <inttypes.h>
#include <stdlib.h>

static Status measure_anew(Trainer *t, MeasureRun measure, void *run, size_t *bytes) {
    plan_forget(&t->ctx);
    TRY(measure(run));
    *bytes = plan_bytes(&t->ctx);
    return OK;
}

/* ---- the least recomputation ---- */

static int64_t blocks(const Trainer *t) {
    const Config *c = &t->model.config;
    return c->layers > c->encoder_layers ? c->layers : c->encoder_layers;
}

/* Levels 1 to L recompute the hidden activations of that many blocks; levels L + 1 to 2L recompute that many
 * whole blocks, and the hidden activations of the others. */
static void set_level(Trainer *t, int64_t level) {
    const int64_t L = blocks(t);
    t->model.recompute = (Recompute)pieces(level, L);
    t->model.spared = t->model.recompute * L - level;
}

static Status find_level(Trainer *t, MeasureRun measure, void *run, int64_t *level) {
    size_t available, bytes;
    TRY(t->ctx.device->available(t->ctx.device, &available));
    int64_t low = 0, high = 2 * blocks(t);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        set_level(t, middle);
        TRY(measure_anew(t, measure, run, &bytes));
        if (bytes <= available)
            high = middle;
        else
            low = middle + 1;
    }
    *level = low;
    return OK;
}

/* The maximum of all ranks' levels. */
static Status agree_on_level(Trainer *t, int64_t *level) {
    if (!t->comm) return OK;
    OWNED int64_t *all = memory_array((size_t)t->comm->size, sizeof *all);
    Status status = rendezvous_gather(t->comm->rendezvous, level, sizeof *level, all);
    for (int rank = 0; !status && rank < t->comm->size; rank++)
        if (all[rank] > *level) *level = all[rank];
    return status;
}

Status fit_choose(Trainer *t, MeasureRun measure, void *run) {
    int64_t level = 0;
    Status status = find_level(t, measure, run, &level);
    if (t->comm) status = rendezvous_agree(t->comm->rendezvous, status);
    TRY(status);
    TRY(agree_on_level(t, &level));
    set_level(t, level);
    plan_forget(&t->ctx);
    return OK;
}

/* ---- advice ---- */

/* An alternative to recomputing `recompute` that a run could use. */
typedef struct {
    Recompute recompute;
    int64_t batch, accum;
    bool narrow_moments;
} Way;

static Way way_of(const Trainer *t) {
    return (Way){t->model.recompute, t->batch, t->accum, t->model.parameters.narrow_moments};
}

static void take_way(Trainer *t, Way way) {
    t->model.recompute = way.recompute;
    t->batch = way.batch;
    t->accum = way.accum;
    t->model.parameters.narrow_moments = way.narrow_moments;
}

static void print_way(FILE *file, Way now, Way way, size_t bytes, bool fits) {
    static const char *const names[] = {"none", "hidden", "blocks"};
    char text[128];
    int used = 0;
    if (way.recompute != now.recompute)
        used += snprintf(text, sizeof text, "--recompute=%s ", names[way.recompute]);
    if (way.batch != now.batch)
        used += snprintf(text + used, sizeof text - (size_t)used, "--batch=%" PRId64 " --accum=%" PRId64 " ",
                         way.batch, way.accum);
    if (way.narrow_moments != now.narrow_moments)
        snprintf(text + used, sizeof text - (size_t)used, "--optimizer-dtype=bf16");
    fprintf(file, "  %-62s %12.0f MiB%s\n", text, (double)bytes / (1 << 20), fits ? ", fits" : "");
}

Status fit_advise(Trainer *t, MeasureRun measure, void *run, FILE *file) {
    size_t available, bytes;
    TRY(t->ctx.device->available(t->ctx.device, &available));
    if (plan_bytes(&t->ctx) <= available) return OK;
    const Way now = way_of(t);
    Way way = now;
    bool fits = false;
    fprintf(file, "this run needs %.0f MiB; it would need, with\n", (double)plan_bytes(&t->ctx) / (1 << 20));
    while (!fits) {
        if (way.recompute < RECOMPUTE_BLOCKS) {
            way.recompute++;
        } else if (way.batch > 1 && way.batch % 2 == 0) {
            way.batch /= 2;
            way.accum *= 2;
        } else if (!way.narrow_moments) {
            way.narrow_moments = true;
        } else {
            break;
        }
        take_way(t, way);
        TRY(measure_anew(t, measure, run, &bytes));
        fits = bytes <= available;
        print_way(file, now, way, bytes, fits);
    }
    take_way(t, now);
    return measure_anew(t, measure, run, &bytes);
}
