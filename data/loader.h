/* loader: batches, read ahead by worker threads. What a row is, and what fills a batch, is the task's to say
 * (BatchMaker, below).
 *
 * An epoch visits each row once, in an order shuffled by (seed, epoch), or in the data's order;
 * batches of windows run on over the end of an epoch. All state is the position, the number of rows handed
 * out since the start: the same position gives the same batches, whatever the number of workers.
 *
 * Where several processes train together, each has a loader that hands out its share of every step's batches:
 * of the share.run * share.count batches of a step, those from share.index * share.run on. Positions count
 * all rows, of all shares; between two steps they are the same in every process. */
#pragma once

#include "base/memory.h"
#include "base/status.h"
#include "data/batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the batches' memory comes from: pinned memory, when a device reads it. */
typedef struct {
    void *(*allocate)(void *context, size_t bytes); // NULL where memory has run out
    void (*release)(void *context, void *pointer);
    void *context;
} HostBuffers;

/* count 0: no shares, every batch is this loader's. */
typedef struct {
    int64_t index, count, run;
} LoaderShare;

typedef struct {
    int64_t first, length; // the part of the source that is used, in tokens, pairs, ...; length 0: to its end
    int64_t batch, seq;
    bool shuffle;
    uint64_t seed;
    int workers; // threads that read ahead, 0 to 64; 0: loader_next reads by itself
    int hold;    // how many of the latest batches stay valid, 1 to 64; 0 means 1
    LoaderShare share;
    int64_t delay_us; // makes every batch take this much longer to read, to study a starved loader; usually 0
    HostBuffers buffers; // all-zero: memory_allocate's
} LoaderOptions;

typedef struct Loader Loader;

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

/* Checks batch, seq, workers, hold and delay; `bytes` gets the size of `tensors` tensors of (batch, seq) and
 * two of (batch). */
CHECKED Status loader_check(const LoaderOptions *options, int tensors, int64_t *bytes);

/* Takes the maker over, also where it fails. */
CHECKED Status loader_start(const LoaderOptions *options, BatchMaker maker, Loader **loader);
void loader_close(Loader *loader); // ends the workers; NULL is fine
CLOSER(loader_release, Loader, loader_close)

/* The next batch, valid until `hold` more have been asked for, or a seek, or the close. An error that a
 * worker met comes here, in its turn; the position then stays, and the next call tries the same batch
 * again. */
CHECKED Status loader_next(Loader *loader, Batch *batch);

/* How many targets count in the next `batches` batches, of all shares, when a step begins: what its loss is a
 * mean over must be known before its first micro-batch. Nothing is read ahead. */
CHECKED Status loader_targets(const Loader *loader, int64_t batches, int64_t *targets);

int64_t loader_position(const Loader *loader);                // rows handed out, of all shares
CHECKED Status loader_seek(Loader *loader, int64_t position); // the next batch begins with this row
int64_t loader_windows(const Loader *loader);                 // rows of one epoch

/* How long loader_next has waited for batches, in milliseconds, since the opening. */
double loader_waited_ms(const Loader *loader);

/* What the workers have read, or are reading now, and has not been handed out: of each the worker and when it
 * began, and ended or is seen to go on. Nothing else of it is set. Gives how many there are. */
enum { LOADER_AHEAD = 129 };
int loader_ahead(Loader *loader, Batch batches[LOADER_AHEAD]);
