/* runner: the ritual with which a run of a model begins: open and prepare; then, when it is known what will
 * run, measure, allocate and load. */
#pragma once

#include "model/transformer.h"
#include "run/plan.h"
#include "run/session.h"

/* Opens both on the session's device, with its precision and fuses; they must stay where they are. */
CHECKED Status runner_open(const Session *session, Ctx *ctx, Transformer *model);

typedef struct {
    const Session *session;
    Ctx *ctx;
    Transformer *model;
    Rehearsal take; // takes what lasts; with ctx->measuring it also runs the largest passes
    void *program;
    bool compare; // memory for the naive forms, too
    int64_t seed; // of weights that are drawn
} Runner;

/* Measures, allocates and takes; then the weights of the model's folder, or new ones. */
CHECKED Status runner_start(const Runner *runner);
