/* parameter_values: memory, initialization, reading and writing of parameters, and the tables of fixed
 * positions. */
#pragma once

#include "kernels/op.h"
#include "model/parameters.h"

/* Takes the flat tensors from ctx's arenas and makes every parameter a view of them; with `training`, also
 * gradients, moments and, for bf16, master weights. */
CHECKED Status parameters_take(Ctx *ctx, Parameters *parameters, bool training);

/* I8 or I4 if `packed` quantizes the parameter, else F32. */
Dtype parameter_groups(const Parameters *parameters, const ParameterInfo *info);

/* With `packed`, a head that is tied to the token table uses a quantized copy of the table. Call this once
 * the weights are loaded. */
CHECKED Status parameters_copy_head(Ctx *ctx, Parameters *parameters);

/* N(0, init_std), norms 1, biases 0; GPT-2's projections into the residual stream divided by sqrt(2 * layers)
 * (Radford et al. 2019, section 2.3). With init_std 0 matrices have the variance 2 / (in + out) (Glorot,
 * Bengio 2010, eq. 16) and tables 1 / C, which the embedding's scale makes 1. A pure function of the seed and
 * the parameter's name. */
CHECKED Status parameters_initialize(Ctx *ctx, Parameters *parameters, uint64_t seed);

/* Sets parameter i from `values`, (count) fp32 in host memory in the layout of `shape`: the weight, and
 * the master weight in shards_whole, from which shards_keep takes this rank's shard after the last
 * parameter (model/shards.h). */
CHECKED Status parameter_write(Ctx *ctx, Parameters *parameters, int i, const float *values);

/* Sets elements of a parameter's weight, in whole groups if it is quantized by groups. */
CHECKED Status weight_write(Ctx *ctx, const Parameters *parameters, const ParameterInfo *info, int64_t first,
                            int64_t count, const float *values);

/* Copies any elements between a device tensor of F32, F64 or BF16 and fp32 host memory; or from fp32 to whole
 * groups of I8 or I4. */
CHECKED Status values_read(Ctx *ctx, Tensor t, int64_t first, int64_t count, float *values);
CHECKED Status values_write(Ctx *ctx, Tensor t, int64_t first, int64_t count, const float *values);

/* Whether `count` values in host memory are all finite. */
bool values_finite(const float *values, int64_t count);

/* Precomputed tables of models without learned positions; only those of the config's kind of positions are
 * not empty. */
typedef struct {
    Tensor sinusoids;   // (context, C)
    Tensor frequencies; // (D/2) fp32: rotation of each pair per position (attention.h)
} PositionTables;

/* Takes the tables from ARENA_PARAMETERS and fills them. */
CHECKED Status positions_take(Ctx *ctx, const Config *config, PositionTables *tables);
