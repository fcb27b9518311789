/* runner: starts a run of a model: open and prepare; then, when the passes are known, measure, allocate and
 * load. */
#pragma once

#include "model/transformer.h"
#include "run/plan.h"
#include "run/session.h"

/* Opens both on the session's device, with its precision and fuses; they must not move. */
CHECKED Status runner_open(const Session *session, Ctx *ctx, Transformer *model);

typedef struct {
    const Session *session;
    Ctx *ctx;
    Transformer *model;
    Rehearsal take; // takes permanent memory; with ctx->measuring it also runs the largest passes
    void *program;
    bool compare;  // memory for the naive forms, too
    int64_t seed;  // seed of new weights
    size_t *bytes; // (FORM_COUNT) gets the memory of each form that was measured; or NULL
} Runner;

/* Measures, allocates and takes; then loads the weights of the model's folder, or initializes new ones. */
CHECKED Status runner_start(const Runner *runner);
