#include "base/memory.h"
#include "report/questions.h"
#include "base/stats.h"
#include "report/collectives.h"

#include <math.h>

/* Share of the step above which communication counts as its bottleneck. */
static const double BINDS = 0.05;

/* Per step and, except for `caused`, the mean over all ranks; ns. */
typedef struct {
    double exposed, hidden;
    double least, most; // computation of the fastest and the slowest rank
    int slowest;        // the rank that the others waited for most
    double caused;      // how long the other ranks waited for it, mean
} RankEvidence;

/* How long the others waited for each rank: a collective begins when its last rank arrives. */
static void weigh_waiting(const Trace *t, double steps, RankEvidence *e) {
    Collectives all = collectives_of(t);
    OWNED double *caused = memory_array((size_t)all.ranks, sizeof *caused);
    for (int64_t i = 0; i < all.count; i++)
        for (int rank = 0; rank < all.ranks && all.list[i].waits; rank++) {
            const Collected *c = &all.list[i];
            double waited = fmax(0, (double)(c->begin - c->spans[rank].begin)) / steps;
            caused[c->last] += waited / fmax(1, all.ranks - 1);
        }
    for (int rank = 0; rank < all.ranks; rank++)
        if (caused[rank] > caused[e->slowest]) e->slowest = rank;
    e->caused = caused[e->slowest];
    collectives_free(&all);
}

static RankEvidence weigh(const Trace *t, double steps) {
    RankEvidence e = {.least = INFINITY};
    double ranks = 1 + t->other_count;
    for (int32_t rank = 0; rank <= t->other_count; rank++) {
        Distribution d = distribution_of(trace_of_rank(t, rank));
        e.exposed += d.exposed / steps / ranks;
        e.hidden += d.overlap / steps / ranks;
        e.least = fmin(e.least, d.computation / steps);
        e.most = fmax(e.most, d.computation / steps);
    }
    weigh_waiting(t, steps, &e);
    return e;
}

/* With n ranks, (n - 1) / n of the bytes leave each rank. With one more rank, the exposed part grows by n^2 /
 * (n^2 - 1), and the computation stays the same. */
static void one_more(const ProfilePath *path, const RankEvidence *e, Answer *a) {
    const double n = path->trace->run.ranks, step = 1e6 * path->figures.step_ms;
    const double longer = step + e->exposed * (n * n / (n * n - 1) - 1);
    answer_line(
        a,
        "%s: one more rank on the same kind of link, with a batch like the others', would give %.1f%% more "
        "tokens a second (at most %.1f%%): %.0f ranks, a step of %s instead of %s",
        path->label, 100 * ((n + 1) / n * ratio(step, longer) - 1), 100 / n, n + 1,
        in_words(CELL_TIME, longer).text, in_words(CELL_TIME, step).text);
}

void question_ranks(const ProfilePath *path, Answer *a) {
    const Trace *t = path->trace;
    const Figures *f = &path->figures;
    if (t->run.ranks <= 1) {
        answer_line(a, "%s: one rank, which exchanges nothing; %s measures what a second one gives",
                    path->label,
                    t->run.source == SOURCE_CLOCK ? "mpirun -n 2 with --profile" : "--gpus=2 --profile");
        return;
    }
    RankEvidence e = weigh(t, (double)f->steps);
    double share = ratio(e.exposed, f->step_ns);
    answer_line(a,
                "%s: %s: in %.1f%% of a step (%s of %s with tracing) ranks exchange and compute nothing; "
                "another %s is hidden beside computation",
                path->label, share > BINDS ? "yes" : "no", 100 * share, in_words(CELL_TIME, e.exposed).text,
                in_words(CELL_TIME, f->step_ns).text, in_words(CELL_TIME, e.hidden).text);
    answer_line(a,
                "%s: rank %d is the slowest: each of the others waits %s a step for it in collectives; a "
                "rank computes %s to %s a step",
                path->label, e.slowest, in_words(CELL_TIME, e.caused).text, in_words(CELL_TIME, e.least).text,
                in_words(CELL_TIME, e.most).text);
    one_more(path, &e, a);
}
