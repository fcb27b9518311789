/* loader: batches, prefetched by worker threads. The task defines rows and how a batch is filled (BatchMaker,
 * below).
 *
 * An epoch visits each row once, in an order shuffled by (seed, epoch), or in the data's order; batches of
 * windows continue across the end of an epoch. The only state is the position, the number of rows handed out
 * since the start: the same position gives the same batches, whatever the number of workers.
 *
 * If several processes train together, each has a loader that hands out its share of every step's batches:
 * share.run of the share.run * share.count batches of a step, from share.index * share.run on. Positions
 * count the rows of all shares; between two steps they are the same in every process. */
#pragma once

#include "base/memory.h"
#include "base/status.h"
#include "data/batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The allocator of batches: pinned memory if a device reads them. */
typedef struct {
    void *(*allocate)(void *context, size_t bytes); // returns NULL if memory has run out
    void (*release)(void *context, void *pointer);
    void *context;
} HostBuffers;

/* count 0: no shares, this loader reads every batch. */
typedef struct {
    int64_t index, count, run;
} LoaderShare;

typedef struct {
    int64_t first, length; // the part of the source to use, in tokens, pairs, ...; length 0: to its end
    int64_t batch, seq;
    bool shuffle;
    uint64_t seed;
    int workers; // prefetching threads, 0 to 64; 0: loader_next reads synchronously
    int hold;    // how many of the latest batches stay valid, 1 to 64; 0 means 1
    LoaderShare share;
    int64_t delay_us;    // an artificial delay per batch, to study a starved loader; usually 0
    HostBuffers buffers; // all-zero: memory_allocate
} LoaderOptions;

typedef struct Loader Loader;

/* Fills batches. `make` is called by several threads at once. */
typedef struct {
    void *context;
    int64_t windows; // rows of one epoch
    int64_t bytes;   // memory per batch
    /* Fills `memory`, and `batch` with pointers into it. Depends only on the position. */
    Status (*make)(void *context, int64_t position, void *memory, Batch *batch);
    /* The number of targets, not counting ignored ones, in the batch that `make` would return, without
     * reading it. */
    Status (*count)(void *context, int64_t position, int64_t *targets);
    void (*release)(void *context);
} BatchMaker;

/* Checks batch, seq, workers, hold and delay. `bytes` is set to the size of `tensors` tensors of (batch, seq)
 * and two of (batch). */
CHECKED Status loader_check(const LoaderOptions *options, int tensors, int64_t *bytes);

/* Takes ownership of the maker, even if it fails. */
CHECKED Status loader_start(const LoaderOptions *options, BatchMaker maker, Loader **loader);
void loader_close(Loader *loader); // stops the workers; accepts NULL
CLOSER(loader_release, Loader, loader_close)

/* The next batch, valid until `hold` more batches, a seek, or the close. A worker's error is returned here,
 * in its turn; the position stays, and the next call tries the same batch again. */
CHECKED Status loader_next(Loader *loader, Batch *batch);

/* The number of targets in the next `batches` batches of all shares, called when a step begins: the mean loss
 * needs it before the first micro-batch. Nothing is prefetched. */
CHECKED Status loader_targets(const Loader *loader, int64_t batches, int64_t *targets);

int64_t loader_position(const Loader *loader);                // rows handed out, over all shares
CHECKED Status loader_seek(Loader *loader, int64_t position); // the next batch begins with this row
int64_t loader_windows(const Loader *loader);                 // rows of one epoch

/* The time loader_next has waited for batches since the opening, in milliseconds. */
double loader_waited_ms(const Loader *loader);

/* Batches that workers have prefetched, or are reading, and that have not been handed out. Only worker, begun
 * and done are set; done is 0 for a batch in progress. Returns their number. */
enum { LOADER_AHEAD = 129 };
int loader_ahead(Loader *loader, Batch batches[LOADER_AHEAD]);
