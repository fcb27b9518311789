/* plan: memory planning. The program's own steps run once without computing (rehearsal), and the arenas count
 * the allocations. Then each arena is allocated once, and nothing allocates afterwards. */
#pragma once

#include "kernels/op.h"

#include <stdio.h>

/* An all-naive fp32 Ctx on the device, which the caller still owns. Set other fields before the rehearsal. */
void ctx_open(Ctx *ctx, Device *device);
void ctx_close(Ctx *ctx);

/* Takes all memory that the program will ever take, once; called with ctx->measuring set. */
typedef Status (*Rehearsal)(Ctx *ctx, void *program);

/* Runs the rehearsal and records each arena's peak and its tensors. May be called again for another form:
 * peaks are then the maximum; `bytes`, unless NULL, is set to the sum of this rehearsal's own peaks. */
CHECKED Status plan_measure(Ctx *ctx, Rehearsal rehearse, void *program, size_t *bytes);

/* Allocates the arenas at the peaks of all plan_measure calls so far. ERROR_MEMORY if the device does not
 * have that much memory left; the message names the largest arena. */
CHECKED Status plan_allocate(Ctx *ctx);

/* Forgets the peaks of all rehearsals so far. Before plan_allocate. */
void plan_forget(Ctx *ctx);

/* Bytes of all arenas at their peaks. */
size_t plan_bytes(const Ctx *ctx);

/* Prints a table of the arenas, each with the `largest` largest tensors at its peak. */
void plan_print(const Ctx *ctx, int largest, FILE *file);
