/* fixture: numbers computed by another program, from a safetensors file. */
#pragma once

#include "data/safetensors.h"
#include "model/parameters.h"

/* The elements of a tensor, freed by test_end (tests/support/rig.h). */
double *doubles_of(const Safetensors *file, const char *name);

/* A flat array of all parameters, as in memory, from the file's tensors, named prefix + name and laid out as
 * in model files. */
double *flat_of(const Safetensors *file, const char *prefix, const Parameters *p);
