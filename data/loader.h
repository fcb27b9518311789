/* loader: batches of token windows, read ahead by worker threads.
 *
 * The row of tokens is cut into windows of seq + 1 tokens with stride seq: a window's inputs are its first
 * seq tokens, its targets its last seq. An epoch visits each window once, in an order shuffled by (seed,
 * epoch), or in the order of the row; batches run on over the end of an epoch. All state is the position, the
 * number of windows handed out since the start: the same position gives the same batches, whatever the number
 * of workers. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "base/status.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the batches' memory comes from: pinned memory, when a device reads it. */
typedef struct {
    void *(*allocate)(void *context, size_t bytes); // NULL where memory has run out
    void (*release)(void *context, void *pointer);
    void *context;
} HostBuffers;

typedef struct {
    const TokenSource *source; // outlives the loader
    int64_t first, length;     // the part of the source that is used: tokens; length 0: to its end
    int64_t batch, seq;
    bool shuffle;
    uint64_t seed;
    int workers;      // threads that read ahead, 0 to 64; 0: loader_next reads by itself
    int hold;         // how many of the latest batches stay valid, 1 to 64; 0 means 1
    int64_t delay_us; // makes every batch take this much longer to read, to study a starved loader; usually 0
    HostBuffers buffers; // all-zero: memory_allocate's
} LoaderOptions;

typedef struct {
    const int32_t *inputs, *targets; // (batch, seq)
    int64_t position;                // of its first window
} Batch;

typedef struct Loader Loader;

/* ERROR_FORMAT where the source is too short for one window. */
CHECKED Status loader_open(const LoaderOptions *options, Loader **loader);
void loader_close(Loader *loader); // ends the workers; NULL is fine

/* The next batch, valid until `hold` more have been asked for, or a seek, or the close. An error that a
 * worker met comes here, in its turn; the position then stays, and the next call tries the same batch
 * again. */
CHECKED Status loader_next(Loader *loader, Batch *batch);

int64_t loader_position(const Loader *loader);                // windows handed out
CHECKED Status loader_seek(Loader *loader, int64_t position); // the next batch begins with this window
int64_t loader_windows(const Loader *loader);                 // of one epoch

/* How long loader_next has waited for batches, in milliseconds: since the opening, and the last time. */
double loader_waited_ms(const Loader *loader);
double loader_waited_last_ms(const Loader *loader);

#endif
