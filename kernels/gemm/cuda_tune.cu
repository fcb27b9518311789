#include "kernels/gemm/cuda_plan.cuh"

#include <math.h>
#include <unistd.h>

/* Autotuning: in each round all proposals run in turn, so that thermal throttling slows all alike. */
namespace {

constexpr int ROUNDS = 8;            // timed rounds; one round before them loads the kernels
constexpr double TOO_SLOW = 1.5;     // a candidate that takes this many times the best time in one round is
                                     // dropped
constexpr double FIRST_STAYS = 0.99; // cuBLASLt's first proposal stays unless another is 1% faster

struct Candidate {
    double total, worst; // milliseconds of the rounds so far
    bool out;            // failed or was too slow
};

struct Tuning {
    Ctx *ctx;
    CudaDevice *device;
    const Plan *plan;
    const Gemm *product;
    const GemmEpilogue *epilogue;
    void *c;
    bool cold; // the operands would fit in the caches, so they are evicted before each run
    Event *start, *end;
    Algorithm proposals[PLAN_PROPOSALS];
    Candidate candidates[PLAN_PROPOSALS];
    int count;
};

/* A candidate's total time without its worst round. */
double score(const Candidate *candidate) {
    return candidate->out ? INFINITY : candidate->total - candidate->worst;
}

/* One timed run. Overwriting the workspace evicts the operands from the caches. */
Status run(Tuning *tuning, int i, double *milliseconds) {
    Device *device = &tuning->device->base;
    if (tuning->cold)
        TRY(device->fill(device, tuning->device->workspace, 0, tuning->device->workspace_bytes));
    TRY(device->event_record(device, tuning->start));
    Status status = plan_run(tuning->ctx, tuning->plan, &tuning->proposals[i], tuning->product,
                             tuning->epilogue, tuning->c);
    tuning->candidates[i].out = status != OK; // an unsupported candidate is not an error of the product
    status_free(status);
    TRY(device->event_record(device, tuning->end));
    return device->elapsed(device, tuning->start, tuning->end, milliseconds);
}

Status time_candidates(Tuning *tuning) {
    for (int round = -1; round < ROUNDS; round++) {
        double best = INFINITY;
        for (int i = 0; i < tuning->count; i++) {
            Candidate *candidate = &tuning->candidates[i];
            double milliseconds;
            if (candidate->out) continue;
            TRY(run(tuning, i, &milliseconds));
            if (round < 0 || candidate->out) continue;
            candidate->total += milliseconds;
            candidate->worst = fmax(candidate->worst, milliseconds);
            best = fmin(best, milliseconds);
        }
        for (int i = 0; i < tuning->count && round == 0; i++)
            if (tuning->candidates[i].total > TOO_SLOW * best) tuning->candidates[i].out = true;
    }
    return OK;
}

/* A choice that cannot be cached is not used, because another process might choose differently. */
Status time_and_select(Tuning *tuning, Plan *plan) {
    TRY(time_candidates(tuning));
    int fastest = 0;
    for (int i = 1; i < tuning->count; i++)
        if (score(&tuning->candidates[i]) < score(&tuning->candidates[fastest])) fastest = i;
    if (score(&tuning->candidates[fastest]) > FIRST_STAYS * score(&tuning->candidates[0])) fastest = 0;
    plan->settled = true;
    if (tuning->candidates[fastest].out)
        return OK; // every candidate failed: running the first proposal will report
                   // why
    const float microseconds = (float)(1000 * score(&tuning->candidates[fastest]) / (ROUNDS - 1));
    const KeptChoice choice = {algorithm_fingerprint(&tuning->proposals[fastest]), microseconds};
    if (!plan_choice_keep(tuning->device, &plan->key, &choice)) return OK;
    plan->algorithm = tuning->proposals[fastest];
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

/* Provides events, and scratch for an accumulating product's C. Launches made while timing are not
 * recorded. */
Status autotune(Tuning *tuning, Plan *plan) {
    Device *device = &tuning->device->base;
    const Gemm *g = tuning->product;
    const int64_t launches = device->launches;
    void *scratch = NULL; // replaces a C that is accumulated to
    const bool in_place = g->beta != 0 && !tuning->epilogue->added;
    Status status = in_place ? device->allocate(device, bytes_of_c(g), &scratch) : OK;
    if (status) { // without memory, keep the first proposal
        status_free(status);
        plan->settled = true;
        return OK;
    }
    if (scratch) {
        tuning->c = scratch;
        status = device->fill(device, scratch, 0, bytes_of_c(g));
    }
    if (!status) status = device->event_create(device, &tuning->start);
    if (!status) status = device->event_create(device, &tuning->end);
    if (!status) status = time_and_select(tuning, plan);
    device->launches = launches;
    device->event_free(device, tuning->start);
    device->event_free(device, tuning->end);
    device->release(device, scratch);
    return status;
}

} // namespace

Status plan_tune(Ctx *ctx, Plan *plan, const Gemm *g, const GemmEpilogue *e) {
    CudaDevice *cuda = cuda_device(ctx);
    cudaStreamCaptureStatus capture;
    CUDA_TRY(cudaStreamIsCapturing(cuda->stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) return OK;
    Tuning tuning = {};
    tuning.ctx = ctx;
    tuning.device = cuda;
    tuning.plan = plan;
    tuning.product = g;
    tuning.epilogue = e;
    tuning.c = g->c;
    tuning.cold = fits_in_caches(cuda, g);
    TRY(plan_proposals(cuda, plan, g, e, tuning.proposals, &tuning.count));
    const int lock = choices_lock();
    Status status = OK;
    if (lock < 0)
        plan->settled = true;                                             // keep the first proposal
    else if (!plan_take_kept(cuda, plan, tuning.proposals, tuning.count)) // another process may have cached a
                                                                          // choice meanwhile
        status = autotune(&tuning, plan);
    if (lock >= 0) (void)close(lock);
    return status;
}
