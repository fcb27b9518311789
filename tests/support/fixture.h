/* Numbers that another program computed, from a safetensors file. */
#pragma once

#include "data/safetensors.h"
#include "model/parameters.h"

/* The elements of a tensor, freed by test_end (tests/support/rig.h). */
double *doubles_of(const Safetensors *file, const char *name);

/* A value for each parameter's elements, named prefix + name in the file and in the layout of files there,
 * in the flat layout of memory. */
double *flat_of(const Safetensors *file, const char *prefix, const Parameters *p);
