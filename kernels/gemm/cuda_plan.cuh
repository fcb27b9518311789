/* plans: everything that a product's cuBLASLt call needs except addresses, made once per set of properties:
 * descriptors, and the algorithm. The algorithm is autotuned: at the first run all proposals are timed, and
 * the choice is cached in a file (choices.h), so that later processes run the same algorithms and compute the
 * same bits. */
#pragma once

#include "kernels/gemm/choices.h"
#include "kernels/gemm/cuda_hopper.cuh"

/* Everything that the choice of an algorithm depends on, as words, so that keys can be hashed and compared
 * bytewise. */
struct PlanKey {
    int64_t m, n, k, lda, ldb, ldc, batch, a_step, b_step, c_step, aux_ld;
    int64_t types;      // dtypes, transposes, tf32, accumulation, whether alpha is 1
    int64_t epilogue;   // GemmEpilogueKind
    int64_t alignments; // log2 of the addresses' alignments: a, b, c, aux, bias
};

enum { PLAN_KEY_WORDS = sizeof(PlanKey) / sizeof(int64_t) };

/* An algorithm for a product: our own kernel, or one of cuBLASLt's. */
struct Algorithm {
    bool own;
    cublasLtMatmulAlgo_t library;
};

struct Plan {
    PlanKey key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    Algorithm algorithm;
    bool found;         // false: no algorithm supports this key
    bool settled;       // autotuning is done; until then the algorithm is cuBLASLt's first proposal
    float microseconds; // the algorithm's time when it was selected; 0: never timed
};

/* The plan of a product. A new plan is created and looked up in the cache, but not timed. */
CHECKED Status plan_find(const Ctx *ctx, const Gemm *g, const GemmEpilogue *e, Plan **found);
/* Sets the addresses of the epilogue and of the scales, which differ between calls that share a plan. */
CHECKED Status plan_bind(const CublasLt *library, Plan *plan, const Gemm *g, const GemmEpilogue *e);
/* Runs the product with any algorithm and any C. */
CHECKED Status plan_run(Ctx *ctx, const Plan *plan, const Algorithm *algorithm, const Gemm *g,
                        const GemmEpilogue *e, void *c);

/* Lists cuBLASLt's proposals for a plan, best guess first, then our own; `count` may be 0. */
enum { LIBRARY_PROPOSALS = 32, PLAN_PROPOSALS = 2 * LIBRARY_PROPOSALS + 1 };
CHECKED Status plan_proposals(const CudaDevice *device, const Plan *plan, const Gemm *g,
                              const GemmEpilogue *e, Algorithm *proposals, int *count);
/* A hash that identifies an algorithm. */
uint64_t algorithm_fingerprint(const Algorithm *algorithm);

/* If the cached choice is among the proposals, selects it and returns true. */
bool plan_take_kept(const CudaDevice *device, Plan *plan, const Algorithm *proposals, int count);

/* Autotunes: times the proposals on the product's own operands, selects the fastest and caches the choice.
 * Processes that share the file (the ranks of a host) take turns; the first one times, and the others read
 * its choice. C is unchanged if the product adds to it, else undefined, as are the epilogue's outputs. Does
 * nothing while a graph is being captured. */
CHECKED Status plan_tune(Ctx *ctx, Plan *plan, const Gemm *g, const GemmEpilogue *e);

/* ---- cached choices ---- */

/* The setting of FUSEBOX_TUNE for our own kernel (cuda.cuh). */
enum OwnKernel { OWN_PROPOSED, OWN_ALWAYS, OWN_NEVER };
OwnKernel choice_of_own();
/* choice_find and choice_keep of choices.h, in this device's file. */
bool plan_choice_find(const CudaDevice *device, const PlanKey *key, KeptChoice *choice);
bool plan_choice_keep(const CudaDevice *device, const PlanKey *key, const KeptChoice *choice);
