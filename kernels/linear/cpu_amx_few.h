/* cpu_amx_few: up to three rows times a bf16 matrix without tiles, with the bits of cpu_amx. */
#pragma once

#include "kernels/linear/cpu_amx.h"

__BEGIN_DECLS

/* Whether there are few rows, and the weights are dense. */
bool linear_amx_few_serves(const LinearForward *l);

/* The words of memory that linear_amx_few needs. */
int64_t linear_amx_few_words(int64_t width);

/* Like linear_amx_rows. */
void linear_amx_few(Ctx *ctx, const LinearForward *l, AmxPair *memory, LinearFinish *finish);

__END_DECLS
