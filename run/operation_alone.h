/* operation_alone: measures one operation by itself, naive and fused (./infer --op). */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

/* Implements --op=help: lists the operations and the call that --op makes of each. */
CHECKED Status operation_alone_list(FILE *file);

/* Runs --op alternately in its forms, and prints their times. ERROR_USAGE for an unknown operation, or one
 * without this pass or without a form on this device. */
CHECKED Status operation_alone(const Session *session, const InferOptions *options, const OptionSet *set);
