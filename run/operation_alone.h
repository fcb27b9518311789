/* operation_alone: one operation by itself, measured naive and fused (./infer --op). */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

/* Prints the operations and what is called of each: --op=help. */
CHECKED Status operation_alone_list(FILE *file);

/* Runs --op in turns with its forms, and prints what each takes. ERROR_USAGE for an unknown operation, or one that has
 * no such pass or no form on this device. */
CHECKED Status operation_alone(const Session *session, const InferOptions *options, const OptionSet *set);
