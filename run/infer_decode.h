/* infer_decode: throughput and latency of decoding, by batch size. */
#pragma once

#include "run/infer_options.h"

/* Decodes batches of --batch-sizes (else --batch) texts of equal length, and times the steps from the one
 * after --seq tokens on, --decode of them, including sampling. Prints a line per size to `file`. */
CHECKED Status infer_decode(const Session *session, const InferOptions *options, FILE *file);
