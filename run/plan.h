/* plan: a Ctx's life. The memory plan is made by running the program's own steps once with the door closed
 * (rehearsing): the arenas count what is taken. Then each arena is allocated once, and nothing allocates
 * again. */
#pragma once

#include "kernels/op.h"

#include <stdio.h>

/* An all-naive fp32 Ctx on the device, which stays the caller's. Set other fields before the rehearsal. */
void ctx_open(Ctx *ctx, Device *device);
void ctx_close(Ctx *ctx);

/* Everything the program will ever take, once each; called with ctx->measuring set. */
typedef Status (*Rehearsal)(Ctx *ctx, void *program);

/* Runs the rehearsal and leaves each arena's peak and what lay there. May be called again, for another form:
 * the peaks are then the larger ones; `bytes`, unless NULL, gets the sum of this rehearsal's own. */
CHECKED Status plan_measure(Ctx *ctx, Rehearsal rehearse, void *program, size_t *bytes);

/* Allocates the arenas at the peaks of all plan_measure calls so far. ERROR_MEMORY, before anything has run,
 * if the device has not that much left; the message names the largest arena. */
CHECKED Status plan_allocate(Ctx *ctx);

/* Bytes of all arenas at their peaks. */
size_t plan_bytes(const Ctx *ctx);

/* A table of the arenas and, of each, the `largest` largest tensors at its peak. */
void plan_print(const Ctx *ctx, int largest, FILE *file);
