#include "kernels/gemm/cuda_plan.cuh"

#include "base/memory.h"

#include <string.h>

struct GemmPlans {
    Plan **slots; // open addressing, a power of two, at most half full
    size_t count, room;
};

/* ---- the table ---- */

static Plan **plan_slot(Plan **slots, size_t room, const PlanKey *key) {
    uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
    memcpy(words, key, sizeof words);
    for (uint64_t word : words) hash = (hash ^ word) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 29;
    size_t i = hash & (room - 1);
    while (slots[i] && memcmp(&slots[i]->key, key, sizeof *key) != 0) i = (i + 1) & (room - 1);
    return &slots[i];
}

static void plans_grow(GemmPlans *plans) {
    size_t room = plans->room ? plans->room * 2 : 128;
    Plan **slots = (Plan **)memory_array(room, sizeof *slots);
    for (size_t i = 0; i < plans->room; i++) {
        if (plans->slots[i]) *plan_slot(slots, room, &plans->slots[i]->key) = plans->slots[i];
    }
    memory_free(plans->slots);
    plans->slots = slots;
    plans->room = room;
}

static void plan_free(const CublasLt *library, Plan *plan) {
    if (!plan) return;
    if (plan->product) (void)library->MatmulDescDestroy(plan->product);
    if (plan->a) (void)library->MatrixLayoutDestroy(plan->a);
    if (plan->b) (void)library->MatrixLayoutDestroy(plan->b);
    if (plan->c) (void)library->MatrixLayoutDestroy(plan->c);
    memory_free(plan);
}

static void plans_free(const CublasLt *library, void *kept) {
    GemmPlans *plans = (GemmPlans *)kept;
    for (size_t i = 0; i < plans->room; i++) plan_free(library, plans->slots[i]);
    memory_free(plans->slots);
    memory_free(plans);
}

/* ---- making a plan ---- */

/* Alignments beyond 256 bytes make no difference to cuBLASLt. */
static int64_t alignment_log2(const void *pointer) {
    return __builtin_ctzll((uint64_t)(uintptr_t)pointer | 256);
}

enum { ALIGN_A, ALIGN_B, ALIGN_C, ALIGN_AUX, ALIGN_BIAS };

static uint32_t alignment_of(const PlanKey *key, int which) {
    return 1u << (key->alignments >> (4 * which) & 15);
}

static PlanKey plan_key(const Ctx *ctx, const Gemm *g, const GemmEpilogue *e) {
    PlanKey key = {};
    key.m = g->m, key.n = g->n, key.k = g->k;
    key.lda = g->lda, key.ldb = g->ldb, key.ldc = g->ldc;
    key.batch = g->batch > 1 ? g->batch : 1;
    if (key.batch > 1) key.a_step = g->a_step, key.b_step = g->b_step, key.c_step = g->c_step;
    key.types = (int64_t)g->a_dtype | (int64_t)g->b_dtype << 4 | (int64_t)g->c_dtype << 8 |
                (int64_t)g->transpose_a << 12 | (int64_t)g->transpose_b << 13 | (int64_t)ctx->tf32 << 14 |
                (int64_t)(g->beta != 0) << 15 | (int64_t)(g->alpha == 1) << 16 | (int64_t)g->fast << 17;
    key.epilogue = e->kind;
    key.alignments = alignment_log2(g->a) << (4 * ALIGN_A) | alignment_log2(g->b) << (4 * ALIGN_B) |
                     alignment_log2((const void *)((uintptr_t)g->c | (uintptr_t)e->added)) << (4 * ALIGN_C);
    if (e->kind != EPILOGUE_NONE) {
        key.aux_ld = e->aux_ld;
        key.alignments |= alignment_log2(e->aux) << (4 * ALIGN_AUX) | alignment_log2(e->bias)
                                                                          << (4 * ALIGN_BIAS);
    }
    return key;
}

static cudaDataType_t cuda_type(Dtype dtype) {
    return dtype == BF16 ? CUDA_R_16BF : dtype == E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_32F;
}

static cublasLtEpilogue_t cublas_epilogue(GemmEpilogueKind kind) {
    switch (kind) {
    case EPILOGUE_NONE: return CUBLASLT_EPILOGUE_DEFAULT;
    case EPILOGUE_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    case EPILOGUE_GELU_BIAS: return CUBLASLT_EPILOGUE_GELU_BIAS;
    case EPILOGUE_GELU_AUX_BIAS: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case EPILOGUE_DGELU: return CUBLASLT_EPILOGUE_DGELU;
    case EPILOGUE_ERF_BIAS:
    case EPILOGUE_ERF_AUX_BIAS:
    case EPILOGUE_DERF:
    case EPILOGUE_SWIGLU:
    case EPILOGUE_DSWIGLU: break; // not in cuBLASLt; library_has excludes it
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static bool library_has(GemmEpilogueKind kind) {
    return kind == EPILOGUE_NONE || cublas_epilogue(kind) != CUBLASLT_EPILOGUE_DEFAULT;
}

/* A matrix of `rows` rows of `width` elements, as column-major cuBLASLt sees it, with height `width`. */
static Status make_layout(const CublasLt *library, cublasLtMatrixLayout_t *layout, Dtype dtype, int64_t rows,
                          int64_t width, int64_t ld, int64_t batch, int64_t step) {
    if (ld < width) ld = width; // the stride of a single row is unused, but cuBLASLt checks it
    CUBLAS_TRY(library, MatrixLayoutCreate(layout, cuda_type(dtype), (uint64_t)width, (uint64_t)rows, ld));
    if (batch == 1) return OK;
    int32_t count = (int32_t)batch;
    CUBLAS_TRY(library,
               MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    CUBLAS_TRY(library, MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                 sizeof step));
    return OK;
}

static Status set_product(const CublasLt *library, Plan *plan, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes) {
    CUBLAS_TRY(library, MatmulDescSetAttribute(plan->product, attribute, value, bytes));
    return OK;
}

/* Our B is cuBLASLt's A. */
Status plan_bind(const CublasLt *library, Plan *plan, const Gemm *g, const GemmEpilogue *e) {
    if (g->a_dtype == E4M3) {
        TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->b_scale, sizeof g->b_scale));
        TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->a_scale, sizeof g->a_scale));
    }
    if (e->bias) TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &e->bias, sizeof e->bias));
    if (e->aux)
        TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &e->aux, sizeof e->aux));
    return OK;
}

static Status describe(Plan *plan, const Ctx *ctx, const Gemm *g, const GemmEpilogue *e) {
    const CublasLt *library = &cuda_device(ctx)->cublaslt;
    const PlanKey *key = &plan->key;
    bool tf32 = ctx->tf32 && g->a_dtype == F32;
    CUBLAS_TRY(library,
               MatmulDescCreate(&plan->product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                CUDA_R_32F));
    cublasOperation_t first = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (e->kind != EPILOGUE_NONE) {
        cublasLtEpilogue_t epilogue = cublas_epilogue(e->kind);
        int32_t type = cuda_type(g->c_dtype);
        TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        if (e->bias) TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
        if (e->aux)
            TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &e->aux_ld,
                            sizeof e->aux_ld));
    }
    const int8_t fast = g->fast;
    if (fast) TRY(set_product(library, plan, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast));
    TRY(plan_bind(library, plan, g, e));
    int64_t b_rows = g->transpose_b ? g->n : g->k, b_width = g->transpose_b ? g->k : g->n;
    int64_t a_rows = g->transpose_a ? g->k : g->m, a_width = g->transpose_a ? g->m : g->k;
    TRY(make_layout(library, &plan->a, g->b_dtype, b_rows, b_width, g->ldb, key->batch, key->b_step));
    TRY(make_layout(library, &plan->b, g->a_dtype, a_rows, a_width, g->lda, key->batch, key->a_step));
    return make_layout(library, &plan->c, g->c_dtype, g->m, g->n, g->ldc, key->batch, key->c_step);
}

static Status set_preferences(const CublasLt *library, cublasLtMatmulPreference_t preference,
                              size_t workspace, const Plan *plan) {
    const bool bf16 = (plan->key.types >> 8 & 15) == BF16, adds = plan->key.types >> 15 & 1;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t value;
    } settings[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(&plan->key, ALIGN_B)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(&plan->key, ALIGN_A)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(&plan->key, ALIGN_C)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(&plan->key, ALIGN_C)},
        // Split-k sums are reduced in fp32 only, never as rounded bf16, and added to C once.
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         (uint32_t)(bf16 || adds ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK)},
    };
    for (const auto &s : settings) {
        CUBLAS_TRY(library, MatmulPreferenceSetAttribute(preference, s.attribute, &s.value, sizeof s.value));
    }
    CUBLAS_TRY(library, MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &workspace, sizeof workspace));
    return OK;
}

uint64_t algorithm_fingerprint(const Algorithm *algorithm) {
    uint64_t hash = algorithm->own;
    for (uint64_t word : algorithm->library.data)
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 29;
    return hash;
}

static void add_proposal(const Algorithm &proposal, Algorithm *proposals, int *count) {
    for (int i = 0; i < *count; i++)
        if (algorithm_fingerprint(&proposals[i]) == algorithm_fingerprint(&proposal)) return;
    proposals[(*count)++] = proposal;
}

/* Adds cuBLASLt's proposals for this size of workspace, unless they are already listed. */
static Status library_proposals(const CudaDevice *device, size_t workspace, const Plan *plan,
                                Algorithm *proposals, int *count) {
    const CublasLt *library = &device->cublaslt;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[LIBRARY_PROPOSALS];
    CUBLAS_TRY(library, MatmulPreferenceCreate(&preference));
    Status status = set_preferences(library, preference, workspace, plan);
    if (!status) {
        int returned = 0;
        cublasStatus_t answer =
            library->MatmulAlgoGetHeuristic(device->blas, plan->product, plan->a, plan->b, plan->c, plan->c,
                                            preference, LIBRARY_PROPOSALS, results, &returned);
        if (answer == CUBLAS_STATUS_SUCCESS) {
            for (int i = 0; i < returned; i++)
                if (results[i].state == CUBLAS_STATUS_SUCCESS)
                    add_proposal({false, results[i].algo}, proposals, count);
        } else if (answer != CUBLAS_STATUS_NOT_SUPPORTED && answer != CUBLAS_STATUS_INVALID_VALUE) {
            status = cublaslt_status(library, answer, "cublasLtMatmulAlgoGetHeuristic");
        }
    }
    (void)library->MatmulPreferenceDestroy(preference);
    return status;
}

Status plan_proposals(const CudaDevice *device, const Plan *plan, const Gemm *g, const GemmEpilogue *e,
                      Algorithm *proposals, int *count) {
    *count = 0;
    if (library_has(e->kind)) {
        TRY(library_proposals(device, device->workspace_bytes, plan, proposals, count));
        TRY(library_proposals(device, 0, plan, proposals, count)); // algorithms that need no counter cleared
                                                                   // before
    }
    if (choice_of_own() != OWN_NEVER && gemm_hopper_suits(device, g, e)) proposals[(*count)++] = {true, {}};
    return OK;
}

/* Small products are too short for the choice to matter; they use the first proposal. */
static bool worth_timing(const PlanKey *key) {
    const double least = 1 << 20;
    return (double)key->m * (double)key->n * (double)key->k * (double)key->batch >= least;
}

bool plan_take_kept(const CudaDevice *device, Plan *plan, const Algorithm *proposals, int count) {
    KeptChoice kept;
    if (!plan_choice_find(device, &plan->key, &kept)) return false;
    for (int i = 0; i < count && !plan->settled; i++) {
        if (algorithm_fingerprint(&proposals[i]) != kept.fingerprint) continue;
        plan->algorithm = proposals[i];
        plan->microseconds = kept.microseconds;
        plan->settled = true;
    }
    return plan->settled;
}

/* Selects the cached choice if it is among the proposals, else the first proposal. Without proposals `found`
 * stays false, which is not an error here. */
static Status choose_algorithm(CudaDevice *device, Plan *plan, const Gemm *g, const GemmEpilogue *e) {
    Algorithm proposals[PLAN_PROPOSALS];
    int count;
    TRY(plan_proposals(device, plan, g, e, proposals, &count));
    const bool always_own = choice_of_own() == OWN_ALWAYS && count > 0 && proposals[count - 1].own;
    plan->found = count > 0;
    plan->settled = count < 2 || !worth_timing(&plan->key) || !choices_wanted() || always_own;
    if (!plan->found) return OK;
    plan->algorithm = proposals[always_own ? count - 1 : 0];
    if (!plan->settled) (void)plan_take_kept(device, plan, proposals, count);
    return OK;
}

Status plan_find(const Ctx *ctx, const Gemm *g, const GemmEpilogue *e, Plan **found) {
    CudaDevice *device = cuda_device(ctx);
    if (!device->plans) {
        device->plans = memory_allocate(sizeof(GemmPlans));
        device->free_plans = plans_free;
    }
    GemmPlans *plans = (GemmPlans *)device->plans;
    if (plans->count * 2 >= plans->room) plans_grow(plans);

    PlanKey key = plan_key(ctx, g, e);
    Plan **slot = plan_slot(plans->slots, plans->room, &key);
    if (!*slot) {
        Plan *plan = (Plan *)memory_allocate(sizeof *plan);
        plan->key = key;
        Status status = describe(plan, ctx, g, e);
        if (!status) status = choose_algorithm(device, plan, g, e);
        if (status) {
            plan_free(&device->cublaslt, plan);
            return status;
        }
        *slot = plan;
        plans->count++;
    }
    *found = *slot;
    return OK;
}

Status plan_run(Ctx *ctx, const Plan *plan, const Algorithm *algorithm, const Gemm *g, const GemmEpilogue *e,
                void *c) {
    if (algorithm->own) return gemm_hopper_run(ctx, g, e, c);
    CudaDevice *device = cuda_device(ctx);
    const float alpha = (float)g->alpha, beta = (float)g->beta;
    CUBLAS_TRY(&device->cublaslt,
               Matmul(device->blas, plan->product, &alpha, g->b, plan->a, g->a, plan->b, &beta,
                      e->added ? e->added : c, plan->c, c, plan->c, &algorithm->library, device->workspace,
                      device->workspace_bytes, device->stream));
    device->base.launches++;
    return OK;
}
