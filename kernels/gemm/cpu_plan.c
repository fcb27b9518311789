#include "kernels/gemm/cpu.h"

#include "base/memory.h"
#include "kernels/gemm/choices.h"

#include <float.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLANS_MOST = 1024 }; // then all are dropped, because sentence lengths lead to ever new products
enum { SLOTS = 2 * PLANS_MOST, KEY_WORDS = sizeof(OnednnProduct) / sizeof(int64_t) };
enum { FEWEST_RUNS = 3, MOST_RUNS = 12 };  // of each library, alternately: a busy moment affects both
static const double LONG_SECONDS = 0.06;   // timing ends after this time
static const double OPENBLAS_NEEDS = 0.97; // share of oneDNN's time, because oneDNN's epilogue is free
/* Timing also ends when a run of OpenBLAS takes SLOW_SECONDS, longer than a thread ever waits for a core, and
 * SLOW_TIMES as long as oneDNN's. */
static const double SLOW_SECONDS = 0.25, SLOW_TIMES = 2;

typedef struct {
    CpuPlan *slots[SLOTS]; // open addressing
    int count;
    AmxPacked packed;
} CpuPlans;

static void plans_clear(CpuPlans *plans) {
    for (int i = 0; i < SLOTS; i++) {
        if (plans->slots[i] && plans->slots[i]->kernel) onednn_kernel_free(plans->slots[i]->kernel);
        memory_free(plans->slots[i]);
        plans->slots[i] = NULL;
    }
    plans->count = 0;
}

static void plans_free(void *kept) {
    CpuPlans *plans = kept;
    plans_clear(plans);
    memory_free(plans->packed.values);
    memory_free(plans);
}

static CpuPlan **slot_of(CpuPlans *plans, const OnednnProduct *product) {
    uint64_t words[KEY_WORDS], hash = 0;
    memcpy(words, product, sizeof words);
    for (int i = 0; i < KEY_WORDS; i++) {
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    size_t at = hash % SLOTS;
    while (plans->slots[at] && memcmp(&plans->slots[at]->product, product, sizeof *product) != 0)
        at = (at + 1) % SLOTS;
    return &plans->slots[at];
}

/* ---- autotuning ---- */

static OnednnProduct product_of(const Gemm *g, const GemmFinish *finish) {
    return (OnednnProduct){.m = g->m,
                           .n = g->n,
                           .k = g->k,
                           .a_row = g->transpose_a ? 1 : g->lda,
                           .a_column = g->transpose_a ? g->lda : 1,
                           .b_row = g->transpose_b ? 1 : g->ldb,
                           .b_column = g->transpose_b ? g->ldb : 1,
                           .c_row = g->ldc,
                           .dtype = (int32_t)g->a_dtype,
                           .c_dtype = (int32_t)g->c_dtype,
                           .finish = (int32_t)finish->finish,
                           .bias = finish->bias != NULL,
                           .added = finish->added != NULL,
                           .accumulates = g->beta != 0};
}

/* Evicts the beginning of an operand from the caches; loading it evicts the rest of a large one. */
static void evict(const void *operand, int64_t rows, int64_t width, int64_t ld, Dtype dtype) {
#if defined(__SSE2__)
    enum { LINE = 64, MOST = 16 << 20 };
    const char *bytes = operand;
    size_t count = (size_t)((rows - 1) * ld + width) * dtype_size(dtype);
    for (size_t at = 0; at < count && at < MOST; at += LINE) __builtin_ia32_clflush(bytes + at);
#else
    (void)operand, (void)rows, (void)width, (void)ld, (void)dtype;
#endif
}

/* Recreates the state of the caches in a real step. `a` was just written by the previous operation, so it
 * stays warm. `b` (weights or saved activations) and an accumulated gradient were last used a step ago, so
 * they are evicted. Otherwise a library that is faster only on warm operands could be selected. On processors
 * other than x86 nothing is evicted. */
static void evict_operands(const Gemm *g) {
    evict(g->b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->ldb, g->b_dtype);
    if (g->beta != 0) evict(g->c, g->m, g->n, g->ldc, g->c_dtype);
}

Status cpu_plan_run(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish) {
    const OnednnOperands operands = {g->a, g->b, finish->bias, finish->added, g->c};
    if (plan->library == PLAN_ONEDNN) return onednn_run(plan->kernel, &operands);
    gemm_amx_run(ctx, g, finish, plan->packed);
    return OK;
}

/* The seconds of one timed run; DBL_MAX if it fails, which does not fail the product. */
static double run_seconds(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish) {
    evict_operands(g);
    double start = device_clock();
    Status status =
        plan->library == PLAN_OPENBLAS ? gemm_cpu_openblas(ctx, g) : cpu_plan_run(ctx, plan, g, finish);
    double seconds = device_clock() - start;
    if (!status) return seconds;
    status_free(status);
    return DBL_MAX;
}

/* The bytes that C spans: scratch for an accumulating product during timing. */
static size_t bytes_of_c(const Gemm *g) {
    return (size_t)((g->m - 1) * g->ldc + g->n) * dtype_size(g->c_dtype);
}

/* Times both libraries. OpenBLAS is timed without the epilogue. Returns 0 microseconds if there is no memory
 * for another C. */
static KeptChoice autotune(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan *plan) {
    struct Recorder *recorder = ctx->recorder; // timed runs are not recorded as calls
    KeptChoice choice = {plan->library, 0};
    Gemm timed = *g;
    if (g->beta != 0) timed.c = memory_reserve(bytes_of_c(g));
    if (!timed.c) return choice;
    if (g->beta != 0) memset(timed.c, 0, bytes_of_c(g));
    ctx->recorder = NULL;
    double openblas = DBL_MAX, onednn = DBL_MAX, all = 0;
    for (int run = 0; run < FEWEST_RUNS || (run < MOST_RUNS && all < LONG_SECONDS); run++) {
        double first = run_seconds(ctx, &(CpuPlan){.library = PLAN_OPENBLAS}, &timed, finish);
        double second = run_seconds(ctx, plan, &timed, finish);
        const bool slow = first > SLOW_SECONDS && first > SLOW_TIMES * second;
        if (run == 0 && !slow) continue; // the first run wakes the threads
        all += first + second;
        if (first < openblas) openblas = first;
        if (second < onednn) onednn = second;
        if (slow) break;
    }
    if (openblas < onednn * OPENBLAS_NEEDS)
        choice = (KeptChoice){PLAN_OPENBLAS, (float)(1e6 * openblas)};
    else if (onednn < DBL_MAX)
        choice = (KeptChoice){PLAN_ONEDNN, (float)(1e6 * onednn)};
    ctx->recorder = recorder;
    if (g->beta != 0) memory_free(timed.c);
    return choice;
}

/* The file name for this processor, number of threads and libraries. */
static void file_name(const Device *device, char *name, size_t bytes) {
    snprintf(name, bytes, "products %s %s.txt", device->name, device->library);
}

/* Small products are too short for the choice to matter. */
static bool worth_timing(const Gemm *g) {
    const double least = 1 << 20;
    return (double)g->m * (double)g->n * (double)g->k >= least;
}

/* Returns the cached choice, or autotunes and caches the result; one process at a time. A choice that cannot
 * be cached is not used, because another process might choose differently. */
static PlanLibrary find_library(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan *plan) {
    char file[400];
    int64_t key[KEY_WORDS];
    KeptChoice choice;
    if (!worth_timing(g) || !choices_wanted()) return plan->library;
    memcpy(key, &plan->product, sizeof key);
    file_name(ctx->device, file, sizeof file);
    bool kept = choice_find(file, key, KEY_WORDS, &choice);
    int lock = kept ? -1 : choices_lock();
    if (!kept) kept = choice_find(file, key, KEY_WORDS, &choice);
    if (!kept) {
        choice = autotune(ctx, g, finish, plan);
        kept = choice.microseconds > 0 && choice_keep(file, key, KEY_WORDS, &choice);
    }
    if (lock >= 0) close(lock);
    return kept && choice.fingerprint == PLAN_OPENBLAS ? PLAN_OPENBLAS : PLAN_ONEDNN;
}

/* ---- finding a plan ---- */

/* Whether oneDNN's interface can express the product. */
static bool served(const CpuDevice *device, const Gemm *g) {
    bool narrow = g->a_dtype == BF16 && (g->c_dtype == BF16 || g->c_dtype == F32);
    bool types = g->a_dtype == g->b_dtype && (narrow || (g->a_dtype == F32 && g->c_dtype == F32));
    return device->onednn && types && g->batch <= 1 && g->k > 0 && g->alpha == 1 &&
           (g->beta == 0 || g->beta == 1);
}

static bool on_tiles(const Gemm *g) {
    return gemm_amx_serves && gemm_amx_serves(g);
}

/* AMX tiles are not timed: they are nearly always the fastest, except while another process uses the same
 * core, and timing at such a moment would cache the wrong choice permanently. Until a library is selected,
 * the plan is oneDNN. */
static Status make_plan(Ctx *ctx, const Gemm *g, const GemmFinish *finish, CpuPlans *plans, CpuPlan *plan) {
    if (on_tiles(g)) {
        plan->library = PLAN_AMX;
        plan->packed = &plans->packed;
        return OK;
    }
    plan->library = PLAN_OPENBLAS;
    TRY(onednn_kernel(((CpuDevice *)ctx->device)->onednn, &plan->product, &plan->kernel));
    if (!plan->kernel) return OK;
    plan->library = PLAN_ONEDNN;
    plan->library = find_library(ctx, g, finish, plan);
    if (plan->library == PLAN_ONEDNN) return OK;
    onednn_kernel_free(plan->kernel);
    plan->kernel = NULL;
    return OK;
}

Status cpu_plan(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan **found) {
    CpuDevice *device = (CpuDevice *)ctx->device;
    *found = NULL;
    if (!served(device, g) && !on_tiles(g)) return OK;
    if (!device->plans) {
        device->plans = memory_allocate(sizeof(CpuPlans));
        device->free_plans = plans_free;
    }
    CpuPlans *plans = device->plans;
    OnednnProduct product = product_of(g, finish);
    CpuPlan **slot = slot_of(plans, &product);
    if ((*found = *slot)) return OK;
    if (plans->count == PLANS_MOST) {
        plans_clear(plans);
        slot = slot_of(plans, &product);
    }
    CpuPlan *plan = *slot = memory_allocate(sizeof *plan);
    plans->count++;
    plan->product = product;
    *found = plan;
    return make_plan(ctx, g, finish, plans, plan);
}
