#define _GNU_SOURCE
#include "base/checked.h"
#include "base/memory.h"
#include "data/loader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { LIMIT = 64 }; // most workers, and most batches held

/* One batch of the ring buffer. Batch number n is in slot n % slot_count. */
typedef struct {
    void *memory;
    Batch batch;
    bool ready;
    Status status;
    int worker;   // the thread that is reading it; 0: none
    double begun; // when that thread began to read
} Slot;

struct Loader {
    LoaderOptions options;
    BatchMaker maker;
    Slot *slots;
    int slot_count;
    int64_t base;        // position in the data of batch number 0; a seek changes it
    int64_t handed;      // batches handed out since then; `mutex` guards the members from here on
    int64_t claimed;     // batches that a worker has begun
    int working;         // workers that have started
    int reading;         // workers that are reading a batch now
    bool paused, ending; // paused: no batch is begun
    pthread_mutex_t mutex;
    pthread_cond_t room, filled; // workers wait for `room`, loader_next and loader_seek for `filled`
    pthread_t *threads;
    int started;
    double waited; // seconds
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void pause_for(int64_t microseconds) {
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (microseconds > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

/* ---- making one batch ---- */

/* The position of batch `number` since the last seek. */
static int64_t position_of(const Loader *loader, int64_t number) {
    const LoaderShare *s = &loader->options.share;
    if (s->count > 1) number += (number / s->run * (s->count - 1) + s->index) * s->run;
    return loader->base + number * loader->options.batch;
}

static Status make_batch(const Loader *loader, int64_t position, Slot *slot) {
    pause_for(loader->options.delay_us);
    slot->batch = (Batch){.position = position};
    return loader->maker.make(loader->maker.context, position, slot->memory, &slot->batch);
}

/* ---- workers ---- */

/* Whether a slot is free, given that the last `hold` batches handed out keep theirs. */
static bool has_room(const Loader *loader) {
    int64_t held = loader->handed < loader->options.hold ? loader->handed : loader->options.hold;
    return loader->claimed < loader->handed - held + loader->slot_count;
}

static void *work(void *argument) {
    Loader *loader = argument;
    pthread_mutex_lock(&loader->mutex);
    const int worker = ++loader->working;
    for (;;) {
        while (!loader->ending && (loader->paused || !has_room(loader)))
            pthread_cond_wait(&loader->room, &loader->mutex);
        if (loader->ending) break;
        int64_t number = loader->claimed++;
        int64_t position = position_of(loader, number);
        Slot *slot = &loader->slots[number % loader->slot_count];
        loader->reading++;
        slot->begun = seconds();
        slot->worker = worker;
        pthread_mutex_unlock(&loader->mutex);
        Status status = make_batch(loader, position, slot);
        pthread_mutex_lock(&loader->mutex);
        slot->batch.worker = worker;
        slot->batch.begun = slot->begun;
        slot->batch.done = seconds();
        slot->worker = 0;
        loader->reading--;
        slot->status = status;
        slot->ready = true;
        pthread_cond_broadcast(&loader->filled);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

static Status start_workers(Loader *loader) {
    /* Signals are handled by the main thread: workers start with all of them blocked. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); // SIGBUS goes to the thread that reads a mapped file (data/tokens.h)
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (!error && loader->started < loader->options.workers) {
        error = pthread_create(&loader->threads[loader->started], NULL, work, loader);
        if (!error) loader->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? fail(ERROR_MEMORY, "cannot start data worker %d: %s", loader->started, strerror(error))
                 : OK;
}

/* ---- opening and closing ---- */

Status loader_check(const LoaderOptions *o, int tensors, int64_t *bytes) {
    int64_t tokens, ids;
    if (o->batch < 1 || o->seq < 1 || checked_multiply(o->batch, o->seq, &tokens) ||
        checked_multiply(tokens, tensors, &ids) || checked_add(ids, 2 * o->batch, &ids) ||
        checked_multiply(ids, (int64_t)sizeof(int32_t), bytes))
        return fail(ERROR_USAGE, "batches of %lld x %lld tokens are out of range", (long long)o->batch,
                    (long long)o->seq);
    if (o->workers < 0 || o->workers > LIMIT)
        return fail(ERROR_USAGE, "%d data workers are out of range: 0 to %d", o->workers, LIMIT);
    if (o->hold < 0 || o->hold > LIMIT || o->delay_us < 0)
        return fail(ERROR_USAGE, "a loader holds 0 to %d batches, and its delay is 0 us or more", LIMIT);
    return OK;
}

static void *allocate_default(void *context, size_t bytes) {
    (void)context;
    return memory_allocate(bytes);
}

static void release_default(void *context, void *pointer) {
    (void)context;
    memory_free(pointer);
}

static Status allocate(Loader *loader) {
    LoaderOptions *o = &loader->options;
    /* Slots in addition to the held ones: one per worker to read into, and one that is ready meanwhile. */
    loader->slot_count = o->hold + (o->workers ? o->workers + 1 : 0);
    loader->slots = memory_array((size_t)loader->slot_count, sizeof *loader->slots);
    loader->threads = memory_array((size_t)o->workers, sizeof *loader->threads);
    for (int i = 0; i < loader->slot_count; i++) {
        loader->slots[i].memory = o->buffers.allocate(o->buffers.context, (size_t)loader->maker.bytes);
        if (!loader->slots[i].memory)
            return fail(ERROR_MEMORY, "no memory left for %d batches of %lld x %lld tokens",
                        loader->slot_count, (long long)o->batch, (long long)o->seq);
    }
    return OK;
}

Status loader_start(const LoaderOptions *options, BatchMaker maker, Loader **loader) {
    *loader = NULL;
    Loader *l = memory_allocate(sizeof *l);
    l->maker = maker;
    l->options = *options;
    if (!l->options.hold) l->options.hold = 1;
    if (!l->options.buffers.allocate)
        l->options.buffers = (HostBuffers){allocate_default, release_default, NULL};
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->room, NULL);
    pthread_cond_init(&l->filled, NULL);
    Status status = allocate(l);
    if (!status) status = start_workers(l);
    if (status)
        loader_close(l);
    else
        *loader = l;
    return status;
}

void loader_close(Loader *loader) {
    if (!loader) return;
    pthread_mutex_lock(&loader->mutex);
    loader->ending = true;
    pthread_cond_broadcast(&loader->room);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->started; i++) pthread_join(loader->threads[i], NULL);
    for (int i = 0; i < loader->slot_count; i++) {
        status_free(loader->slots[i].status);
        if (loader->slots[i].memory)
            loader->options.buffers.release(loader->options.buffers.context, loader->slots[i].memory);
    }
    loader->maker.release(loader->maker.context);
    pthread_cond_destroy(&loader->filled);
    pthread_cond_destroy(&loader->room);
    pthread_mutex_destroy(&loader->mutex);
    memory_free(loader->threads);
    memory_free(loader->slots);
    memory_free(loader);
}

/* ---- handing out ---- */

int64_t loader_position(const Loader *loader) {
    int64_t shares = loader->options.share.count > 1 ? loader->options.share.count : 1;
    return loader->base + loader->handed * shares * loader->options.batch;
}

Status loader_targets(const Loader *loader, int64_t batches, int64_t *targets) {
    int64_t first = loader_position(loader), rows = loader->options.batch, some;
    *targets = 0;
    for (int64_t i = 0; i < batches; i++) {
        TRY(loader->maker.count(loader->maker.context, first + i * rows, &some));
        *targets += some;
    }
    return OK;
}

int64_t loader_windows(const Loader *loader) {
    return loader->maker.windows;
}
double loader_waited_ms(const Loader *loader) {
    return 1e3 * loader->waited;
}

int loader_ahead(Loader *loader, Batch batches[LOADER_AHEAD]) {
    int count = 0;
    pthread_mutex_lock(&loader->mutex);
    for (int i = 0; i < loader->slot_count; i++) {
        const Slot *slot = &loader->slots[i];
        if (slot->ready)
            batches[count++] =
                (Batch){.worker = slot->batch.worker, .begun = slot->batch.begun, .done = slot->batch.done};
        else if (slot->worker)
            batches[count++] = (Batch){.worker = slot->worker, .begun = slot->begun, .done = seconds()};
    }
    pthread_mutex_unlock(&loader->mutex);
    return count;
}

/* Waits for workers to finish, discards everything they have read, and restarts with batch `number` counted
 * from `base`. */
static void restart(Loader *loader, int64_t base, int64_t number) {
    pthread_mutex_lock(&loader->mutex);
    loader->paused = true;
    while (loader->reading > 0) pthread_cond_wait(&loader->filled, &loader->mutex);
    for (int i = 0; i < loader->slot_count; i++) {
        status_free(loader->slots[i].status);
        loader->slots[i].status = OK;
        loader->slots[i].ready = false;
    }
    loader->base = base;
    loader->handed = loader->claimed = number;
    loader->paused = false;
    pthread_cond_broadcast(&loader->room);
    pthread_mutex_unlock(&loader->mutex);
}

Status loader_seek(Loader *loader, int64_t position) {
    if (position < 0 || position > INT64_MAX / 2)
        return fail(ERROR_FORMAT, "the data has no window %lld", (long long)position);
    restart(loader, position, 0);
    return OK;
}

/* Waits until batch number `handed` is read, and takes its status. */
static Status take(Loader *loader, Slot *slot) {
    if (!loader->started) return make_batch(loader, position_of(loader, loader->handed), slot);
    pthread_mutex_lock(&loader->mutex);
    while (!slot->ready) pthread_cond_wait(&loader->filled, &loader->mutex);
    Status status = slot->status;
    slot->status = OK;
    slot->ready = false;
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

Status loader_next(Loader *loader, Batch *batch) {
    double start = seconds();
    Slot *slot = &loader->slots[loader->handed % loader->slot_count];
    Status status = take(loader, slot);
    loader->waited += seconds() - start;
    if (status) {
        restart(loader, loader->base, loader->handed);
        return status;
    }
    *batch = slot->batch;
    pthread_mutex_lock(&loader->mutex);
    loader->handed++;
    pthread_cond_broadcast(&loader->room);
    pthread_mutex_unlock(&loader->mutex);
    return OK;
}
