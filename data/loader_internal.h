/* loader_internal: what the loader of batches and the makers of batches share. */
#pragma once

#include "data/loader.h"

/* What fills a batch. `make` is called by several threads at once. */
typedef struct {
    void *context;
    int64_t windows; // rows of one epoch
    int64_t bytes;   // of a batch's memory
    /* Fills `memory`, and `batch` with pointers into it. A pure function of the position. */
    Status (*make)(void *context, int64_t position, void *memory, Batch *batch);
    /* The targets that count in the batch that `make` would make there, without making it. */
    Status (*count)(void *context, int64_t position, int64_t *targets);
    void (*release)(void *context);
} BatchMaker;

/* Takes the maker over, also where it fails. */
CHECKED Status loader_start(const LoaderOptions *options, BatchMaker maker, Loader **loader);

/* Checks batch, seq, workers, hold and delay; `bytes` gets the size of `tensors` tensors of (batch, seq) and
 * two of (batch). */
CHECKED Status loader_check(const LoaderOptions *options, int tensors, int64_t *bytes);
