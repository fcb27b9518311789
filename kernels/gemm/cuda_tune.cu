#include "kernels/gemm/cuda_plan.cuh"

#include <math.h>
#include <unistd.h>

/* A race among the proposals: in each lap all of them run in turn, so that a chip that grows warm and slows
 * down slows all alike. */
namespace {

constexpr int LAPS = 8;              // that count; one before loads the kernels
constexpr double HOPELESS = 1.5;     // times the best after one lap: out of the race
constexpr double FIRST_KEEPS = 0.99; // the library's own first choice stays unless beaten by 1%

struct Racer {
    double total, worst; // milliseconds of the laps so far
    bool out;            // refused by the library, or hopeless
};

struct Race {
    Ctx *ctx;
    CudaDevice *device;
    const Plan *plan;
    const Gemm *product;
    const GemmEpilogue *epilogue;
    void *c;
    bool cold; // the caches could hold the operands, and shall not
    Event *start, *end;
    Algorithm proposals[PLAN_PROPOSALS];
    Racer racers[PLAN_PROPOSALS];
    int count;
};

/* What a racer's laps took, but for the worst. */
double score(const Racer *racer) {
    return racer->out ? INFINITY : racer->total - racer->worst;
}

/* One run. The workspace is there to be overwritten: it pushes the operands out of the caches. */
Status run(Race *race, int i, double *milliseconds) {
    Device *device = &race->device->base;
    if (race->cold) TRY(device->fill(device, race->device->workspace, 0, race->device->workspace_bytes));
    TRY(device->event_record(device, race->start));
    Status status =
        plan_run(race->ctx, race->plan, &race->proposals[i], race->product, race->epilogue, race->c);
    race->racers[i].out = status != OK; // refused, which is no error of the product
    status_free(status);
    TRY(device->event_record(device, race->end));
    return device->elapsed(device, race->start, race->end, milliseconds);
}

Status run_laps(Race *race) {
    for (int lap = -1; lap < LAPS; lap++) {
        double best = INFINITY;
        for (int i = 0; i < race->count; i++) {
            Racer *racer = &race->racers[i];
            double milliseconds;
            if (racer->out) continue;
            TRY(run(race, i, &milliseconds));
            if (lap < 0 || racer->out) continue;
            racer->total += milliseconds;
            racer->worst = fmax(racer->worst, milliseconds);
            best = fmin(best, milliseconds);
        }
        for (int i = 0; i < race->count && lap == 0; i++)
            if (race->racers[i].total > HOPELESS * best) race->racers[i].out = true;
    }
    return OK;
}

/* A choice that cannot be kept is not made: another process would make another. */
Status race_and_choose(Race *race, Plan *plan) {
    TRY(run_laps(race));
    int winner = 0;
    for (int i = 1; i < race->count; i++)
        if (score(&race->racers[i]) < score(&race->racers[winner])) winner = i;
    if (score(&race->racers[winner]) > FIRST_KEEPS * score(&race->racers[0])) winner = 0;
    plan->settled = true;
    if (race->racers[winner].out) return OK; // nothing runs: the first proposal will say why
    const float microseconds = (float)(1000 * score(&race->racers[winner]) / (LAPS - 1));
    const KeptChoice choice = {algorithm_fingerprint(&race->proposals[winner]), microseconds};
    if (!plan_choice_keep(race->device, &plan->key, &choice)) return OK;
    plan->algorithm = race->proposals[winner];
    plan->microseconds = microseconds;
    return OK;
}

/* The bytes that a product's C spans. */
size_t bytes_of_c(const Gemm *g) {
    const int64_t batch = g->batch > 1 ? g->batch : 1;
    return (size_t)((batch - 1) * g->c_step + (g->m - 1) * g->ldc + g->n) * dtype_size(g->c_dtype);
}

bool fits_in_caches(const CudaDevice *device, const Gemm *g) {
    const int64_t batch = g->batch > 1 ? g->batch : 1;
    const int64_t inputs = batch * g->k * (g->m + g->n) * (int64_t)dtype_size(g->a_dtype);
    return inputs + batch * g->m * g->n * (int64_t)dtype_size(g->c_dtype) < 4 * (int64_t)device->l2_bytes;
}

/* What a race needs besides; the launches in it are not counted. */
Status hold_race(Race *race, Plan *plan) {
    Device *device = &race->device->base;
    const Gemm *g = race->product;
    const int64_t launches = device->launches;
    void *scratch = NULL; // stands for a C that is added to
    const bool in_place = g->beta != 0 && !race->epilogue->added;
    Status status = in_place ? device->allocate(device, bytes_of_c(g), &scratch) : OK;
    if (status) { // no room: the first proposal will do
        status_free(status);
        plan->settled = true;
        return OK;
    }
    if (scratch) {
        race->c = scratch;
        status = device->fill(device, scratch, 0, bytes_of_c(g));
    }
    if (!status) status = device->event_create(device, &race->start);
    if (!status) status = device->event_create(device, &race->end);
    if (!status) status = race_and_choose(race, plan);
    device->launches = launches;
    device->event_free(device, race->start);
    device->event_free(device, race->end);
    device->release(device, scratch);
    return status;
}

} // namespace

Status plan_tune(Ctx *ctx, Plan *plan, const Gemm *g, const GemmEpilogue *e) {
    CudaDevice *cuda = cuda_device(ctx);
    cudaStreamCaptureStatus capture;
    CUDA_TRY(cudaStreamIsCapturing(cuda->stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) return OK;
    Race race = {};
    race.ctx = ctx;
    race.device = cuda;
    race.plan = plan;
    race.product = g;
    race.epilogue = e;
    race.c = g->c;
    race.cold = fits_in_caches(cuda, g);
    TRY(plan_proposals(cuda, plan, g, e, race.proposals, &race.count));
    const int lock = choices_lock();
    Status status = OK;
    if (lock < 0)
        plan->settled = true;                                         // the first proposal stays
    else if (!plan_take_kept(cuda, plan, race.proposals, race.count)) // meanwhile, by another process
        status = hold_race(&race, plan);
    if (lock >= 0) (void)close(lock);
    return status;
}
