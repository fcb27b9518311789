/* positions: what a model without learned positions computes them from, made once. */
#pragma once

#include "kernels/op.h"
#include "model/architectures.h"

/* Empty but for what the config's kind of positions has. */
typedef struct {
    Tensor sinusoids;   // (context, C)
    Tensor frequencies; // (D/2) fp32: what each pair of a head's columns turns by a position (attention.h)
} PositionTables;

/* Takes them from ARENA_PARAMETERS and fills them in. */
CHECKED Status positions_take(Ctx *ctx, const Config *config, PositionTables *tables);

/* The frequency of pair `i` of a head, scaled. */
double rotary_frequency(const Config *config, int64_t i);
