#include "report/figures.h"

#include <string.h>

const OperationRow *figures_find(const Figures *f, const char *call, const char *operation, Pass pass) {
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        if (r->pass == pass && strcmp(r->operation, operation) == 0 && strcmp(r->call, call) == 0) return r;
    }
    return NULL;
}

int64_t figures_kernel(const Figures *f, const TraceEvent *e) {
    int64_t i = f->kernel_count - 1;
    while (i >= 0 && (f->kernels[i].name != e->name || f->kernels[i].kind != e->kind)) i--;
    return i;
}

double figures_pass_ns(const Figures *f, Pass pass) {
    double ns = 0;
    for (int64_t i = 0; i < f->row_count; i++)
        if (pass == PASS_COUNT || f->rows[i].pass == pass) ns += f->rows[i].ns;
    return ns;
}

Phase figures_phase(const TraceEvent *e) {
    static const Phase phases[PASS_COUNT] = {PHASE_FORWARD, PHASE_BACKWARD, PHASE_OPTIMIZER};
    return e->operation ? phases[e->pass] : e->phase;
}

const Difference *difference_find(const Difference *differences, int64_t count, const char *call,
                                  const char *operation, Pass pass) {
    for (int64_t i = 0; i < count; i++) {
        const Difference *d = &differences[i];
        if (d->pass == pass && strcmp(d->operation, operation) == 0 && strcmp(d->call, call) == 0) return d;
    }
    return NULL;
}
