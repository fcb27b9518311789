/* plans: what a product's cuBLASLt call needs beyond its addresses, made once for each set of properties:
 * descriptors, and the algorithm. Which algorithm is fastest only a clock knows: at its first run a product
 * is timed over what the library proposes, and the choice is kept in a file (choices.h), so that a
 * later process runs the same algorithms and computes the same bits. */
#pragma once

#include "kernels/gemm/choices.h"
#include "kernels/gemm/cuda_hopper.cuh"

/* All that the choice of an algorithm depends on, as words so that keys are hashed and compared plainly. */
struct PlanKey {
    int64_t m, n, k, lda, ldb, ldc, batch, a_step, b_step, c_step, aux_ld;
    int64_t types;      // dtypes, transposes, tf32, accumulation, whether alpha is 1
    int64_t epilogue;   // GemmEpilogueKind
    int64_t alignments; // log2 of the addresses' alignments: a, b, c, aux, bias
};

enum { PLAN_KEY_WORDS = sizeof(PlanKey) / sizeof(int64_t) };

/* A way to compute a product: our own kernel's, or one of cuBLASLt's. */
struct Algorithm {
    bool own;
    cublasLtMatmulAlgo_t library;
};

struct Plan {
    PlanKey key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    Algorithm algorithm;
    bool found;         // false: nobody has anything for this key
    bool settled;       // the algorithm stays; until then it is the library's first proposal
    float microseconds; // what the algorithm took when it was chosen; 0: never timed
};

/* The plan of a product; made, and looked up among the kept choices, but not timed, if it is new. */
CHECKED Status plan_find(const Ctx *ctx, const Gemm *g, const GemmEpilogue *e, Plan **found);
/* Binds the addresses of the epilogue and of the scales, which change from call to call under one plan. */
CHECKED Status plan_bind(Plan *plan, const Gemm *g, const GemmEpilogue *e);
/* The product itself, with any algorithm, into any C. */
CHECKED Status plan_run(Ctx *ctx, const Plan *plan, const Algorithm *algorithm, const Gemm *g,
                        const GemmEpilogue *e, void *c);

/* What cuBLASLt proposes for a plan, best guess first, then our own; `count` 0 when there is nothing. */
enum { LIBRARY_PROPOSALS = 32, PLAN_PROPOSALS = 2 * LIBRARY_PROPOSALS + 1 };
CHECKED Status plan_proposals(const CudaDevice *device, const Plan *plan, const Gemm *g,
                              const GemmEpilogue *e, Algorithm *proposals, int *count);
/* Tells algorithms apart. */
uint64_t algorithm_fingerprint(const Algorithm *algorithm);

/* Settles the plan on the choice that was kept for it, if that is among the proposals: true. */
bool plan_take_kept(const CudaDevice *device, Plan *plan, const Algorithm *proposals, int count);

/* Times the proposals on the product's own operands, settles the plan on the fastest and keeps the choice;
 * processes that share the file (the ranks of a host) take turns, and the others take what the first has kept.
 * C is left alone where the product adds to it, else undefined, as is what the epilogue writes. Leaves the
 * plan as it is while a graph is being captured. */
CHECKED Status plan_tune(Ctx *ctx, Plan *plan, const Gemm *g, const GemmEpilogue *e);

/* ---- kept choices ---- */

/* What FUSEBOX_TUNE says of our own kernel (cuda.cuh). */
enum OwnKernel { OWN_PROPOSED, OWN_ALWAYS, OWN_NEVER };
OwnKernel choice_of_own();
/* choice_find and choice_keep of choices.h, in this device's file. */
bool plan_choice_find(const CudaDevice *device, const PlanKey *key, KeptChoice *choice);
bool plan_choice_keep(const CudaDevice *device, const PlanKey *key, const KeptChoice *choice);
