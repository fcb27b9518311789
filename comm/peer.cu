/* Collectives between GPUs of one host. */
#include "comm/peer.cuh"

/* A barrier precedes and follows each collective, so that all ranks' data is complete before it is read, and
 * read before it is overwritten. A kernel adds all ranks' values in rank order; copy engines do the other
 * transfers. */

/* ---- copies ---- */

struct Copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* Several copies run concurrently in copy streams. A single copy, or those of two ranks, run in the lane. */
static Status copy_all(PeerComm *p, const Copy *copies, int count, Lane lane) {
    const cudaStream_t stream = lane_stream(p, lane);
    const bool several = count > 1 && p->size > 2;
    if (several) CUDA_TRY(cudaEventRecord(p->before[lane], stream));
    for (int i = 0; i < count; i++) {
        const cudaStream_t own = several ? p->copies[lane][i % PEER_COPIES] : stream;
        if (several && i < PEER_COPIES) CUDA_TRY(cudaStreamWaitEvent(own, p->before[lane], 0));
        if (copies[i].bytes)
            CUDA_TRY(cudaMemcpyAsync(copies[i].to, copies[i].from, copies[i].bytes, cudaMemcpyDefault, own));
    }
    for (int i = 0; several && i < count && i < PEER_COPIES; i++) {
        CUDA_TRY(cudaEventRecord(p->after[lane][i], p->copies[lane][i]));
        CUDA_TRY(cudaStreamWaitEvent(stream, p->after[lane][i], 0));
    }
    return OK;
}

/* Copies every other rank's part. Each rank begins with the next higher one, so that they read from different
 * ranks. */
static Status pull_parts(PeerComm *p, const Addresses &from, char *whole, size_t part, size_t bytes,
                         Lane lane) {
    Copy copies[PEERS_MOST];
    int count = 0;
    for (int i = 1; i < p->size; i++) {
        const int rank = (p->rank + i) % p->size;
        const size_t first = (size_t)rank * part;
        if (first >= bytes) continue; // a short tensor has fewer parts
        copies[count++] = {whole + first, from.at[rank], bytes - first < part ? bytes - first : part};
    }
    return copy_all(p, copies, count, lane);
}

/* ---- collectives on shared memory ---- */

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

Addresses peer_places(const PeerComm *p, const PeerRegion *region, const void *memory, size_t stride) {
    Addresses from = {};
    const size_t offset = (size_t)((const char *)memory - region->base);
    for (int rank = 0; rank < p->size; rank++)
        from.at[rank] = region->peers[rank] + offset + (size_t)rank * stride;
    return from;
}

static Status shared_reduce_scatter(PeerComm *p, const PeerRegion *region, const char *whole, int64_t count,
                                    Dtype dtype, void *piece, Lane lane) {
    const size_t first = (size_t)p->rank * (size_t)count * dtype_size(dtype);
    TRY(peer_barrier(p, lane));
    TRY(peer_add(p, peer_places(p, region, whole + first, 0), count, dtype, piece, lane));
    return peer_barrier(p, lane);
}

/* Adds this rank's part in place, because no other rank reads it, then copies the other ranks' parts once
 * they have added theirs. */
static Status shared_all_reduce(PeerComm *p, const PeerRegion *region, char *data, int64_t count, Dtype dtype,
                                Lane lane) {
    const int64_t each = comm_padded(p->size, count) / p->size, first = each * p->rank;
    const int64_t own = first >= count ? 0 : count - first < each ? count - first : each;
    const size_t part = (size_t)each * dtype_size(dtype), bytes = (size_t)count * dtype_size(dtype);
    char *mine = data + (size_t)p->rank * part;
    TRY(peer_barrier(p, lane));
    TRY(peer_add(p, peer_places(p, region, mine, 0), own, dtype, mine, lane));
    TRY(peer_barrier(p, lane));
    TRY(pull_parts(p, peer_places(p, region, data, part), data, part, bytes, lane));
    return peer_barrier(p, lane);
}

static Status shared_all_gather(PeerComm *p, const PeerRegion *region, const void *piece, char *whole,
                                size_t bytes, Lane lane) {
    char *mine = whole + (size_t)p->rank * bytes;
    const Copy own = {mine, piece, bytes};
    if (piece != mine) TRY(copy_all(p, &own, 1, lane));
    TRY(peer_barrier(p, lane));
    TRY(pull_parts(p, peer_places(p, region, whole, bytes), whole, bytes, (size_t)p->size * bytes, lane));
    return peer_barrier(p, lane);
}

/* ---- collectives in two halves ---- */

/* The index of rank `from`'s part among the arrivals of rank `to`. */
static size_t slot_of(int from, int to) {
    return (size_t)(from < to ? from : from - 1);
}

static Status shared_region(const PeerComm *p, const void *memory, size_t bytes, const PeerRegion **region) {
    *region = peer_find(p, memory, bytes);
    return *region ? OK : fail(ERROR_INTERNAL, "what is posted to other ranks goes to shared memory only");
}

static Status peer_scatter(Comm *comm, int slot, const void *whole, void *arrivals, size_t bytes, Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region;
    Copy copies[PEERS_MOST];
    int count = 0;
    TRY(shared_region(p, arrivals, (size_t)(p->size - 1) * bytes, &region));
    const Addresses places = peer_places(p, region, arrivals, 0);
    for (int i = 1; i < p->size; i++) {
        const int to = (p->rank + i) % p->size;
        copies[count++] = {places.at[to] + slot_of(p->rank, to) * bytes,
                           static_cast<const char *>(whole) + (size_t)to * bytes, bytes};
    }
    TRY(copy_all(p, copies, count, lane));
    return peer_post(p, slot, lane);
}

static Status peer_spread(Comm *comm, int slot, void *whole, size_t bytes, Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region;
    Copy copies[PEERS_MOST];
    int count = 0;
    TRY(shared_region(p, whole, (size_t)p->size * bytes, &region));
    char *const mine = static_cast<char *>(whole) + (size_t)p->rank * bytes;
    const Addresses places = peer_places(p, region, mine, 0);
    for (int i = 1; i < p->size; i++) copies[count++] = {places.at[(p->rank + i) % p->size], mine, bytes};
    TRY(copy_all(p, copies, count, lane));
    return peer_post(p, slot, lane);
}

static Status peer_sum(Comm *comm, void *whole, const void *arrivals, int64_t count, Dtype dtype) {
    PeerComm *p = peer_of(comm);
    const size_t bytes = (size_t)count * dtype_size(dtype);
    char *const mine = static_cast<char *>(whole) + (size_t)p->rank * bytes;
    char *const others = static_cast<char *>(const_cast<void *>(arrivals));
    Addresses from = {};
    for (int rank = 0; rank < p->size; rank++)
        from.at[rank] = rank == p->rank ? mine : others + slot_of(rank, p->rank) * bytes;
    return peer_add(p, from, count, dtype, mine, LANE_MAIN);
}

/* ---- collectives on other memory, through the buffers ---- */

enum { LANE_BUFFER = PEER_BUFFER / LANE_COUNT };

static char *buffer_of(const PeerComm *p, Lane lane) {
    return p->buffer->lanes[lane];
}

/* The address of `offset` in each rank's buffer. */
static Addresses buffers(const PeerComm *p, Lane lane, size_t offset) {
    return peer_places(p, peer_find(p, p->buffer, sizeof *p->buffer), buffer_of(p, lane) + offset, 0);
}

static Status copy(PeerComm *p, void *to, const void *from, size_t bytes, Lane lane) {
    const Copy one = {to, from, bytes};
    return copy_all(p, &one, 1, lane);
}

static Status buffered_reduce_scatter(PeerComm *p, const char *whole, char *piece, int64_t count, Dtype dtype,
                                      Lane lane) {
    const size_t element = dtype_size(dtype), bytes = (size_t)count * element;
    const size_t slice = LANE_BUFFER / (size_t)p->size / 256 * 256; // bytes of each rank's part
    for (size_t first = 0; first < bytes; first += slice) {
        const size_t now = smaller(slice, bytes - first);
        CUDA_TRY(cudaMemcpy2DAsync(buffer_of(p, lane), slice, whole + first, bytes, now, (size_t)p->size,
                                   cudaMemcpyDeviceToDevice, lane_stream(p, lane)));
        TRY(peer_barrier(p, lane));
        TRY(peer_add(p, buffers(p, lane, (size_t)p->rank * slice), (int64_t)(now / element), dtype,
                     piece + first, lane));
        TRY(peer_barrier(p, lane));
    }
    return OK;
}

static Status buffered_all_reduce(PeerComm *p, char *data, int64_t count, Dtype dtype, Lane lane) {
    const size_t element = dtype_size(dtype), bytes = (size_t)count * element;
    for (size_t first = 0; first < bytes; first += LANE_BUFFER) {
        const size_t now = smaller(LANE_BUFFER, bytes - first);
        TRY(copy(p, buffer_of(p, lane), data + first, now, lane));
        TRY(peer_barrier(p, lane));
        TRY(peer_add(p, buffers(p, lane, 0), (int64_t)(now / element), dtype, data + first, lane));
        TRY(peer_barrier(p, lane));
    }
    return OK;
}

static Status buffered_all_gather(PeerComm *p, const char *piece, char *whole, size_t bytes, Lane lane) {
    const Addresses from = buffers(p, lane, 0);
    for (size_t first = 0; first < bytes; first += LANE_BUFFER) {
        const size_t now = smaller(LANE_BUFFER, bytes - first);
        Copy copies[PEERS_MOST];
        for (int rank = 0; rank < p->size; rank++)
            copies[rank] = {whole + (size_t)rank * bytes + first, from.at[rank], now};
        TRY(copy(p, buffer_of(p, lane), piece + first, now, lane));
        TRY(peer_barrier(p, lane));
        TRY(copy_all(p, copies, p->size, lane));
        TRY(peer_barrier(p, lane));
    }
    return OK;
}

/* ---- the engine ---- */

static Status peer_all_reduce(Comm *comm, void *data, int64_t count, Dtype dtype, Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region = peer_find(p, data, (size_t)count * dtype_size(dtype));
    char *at = static_cast<char *>(data);
    const int64_t small = PEER_SMALL / (int64_t)dtype_size(dtype);
    if (count <= small || dtype == F64) {
        for (int64_t i = 0; i < count; i += small)
            TRY(peer_add_small(p, at + i * (int64_t)dtype_size(dtype), count - i < small ? count - i : small,
                               dtype, lane));
        return OK;
    }
    return region ? shared_all_reduce(p, region, at, count, dtype, lane)
                  : buffered_all_reduce(p, at, count, dtype, lane);
}

static Status peer_reduce_scatter(Comm *comm, const void *whole, void *piece, int64_t count, Dtype dtype,
                                  Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region = peer_find(p, whole, (size_t)(count * p->size) * dtype_size(dtype));
    const char *from = static_cast<const char *>(whole);
    return region ? shared_reduce_scatter(p, region, from, count, dtype, piece, lane)
                  : buffered_reduce_scatter(p, from, static_cast<char *>(piece), count, dtype, lane);
}

static Status peer_all_gather(Comm *comm, const void *piece, void *whole, size_t bytes, Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region = peer_find(p, whole, (size_t)p->size * bytes);
    char *to = static_cast<char *>(whole);
    return region ? shared_all_gather(p, region, piece, to, bytes, lane)
                  : buffered_all_gather(p, static_cast<const char *>(piece), to, bytes, lane);
}

static Status peer_record(Comm *comm, Lane lane, Event *event) {
    return lanes_record(&peer_of(comm)->lanes, lane, event);
}

static Status peer_wait(Comm *comm, Lane lane, Event *event) {
    return lanes_wait(&peer_of(comm)->lanes, lane, event);
}

static Status peer_check(Comm *comm) {
    PeerComm *p = peer_of(comm);
    if (__atomic_load_n(&p->page->aborted, __ATOMIC_ACQUIRE))
        return fail(ERROR_DEVICE, "the communicator was aborted");
    return p->cuda->base.launched(&p->cuda->base);
}

static void peer_abort(Comm *comm) {
    __atomic_store_n(&peer_of(comm)->page->aborted, 1u, __ATOMIC_RELEASE);
}

const CommEngine peer_engine = {
    "peer",      peer_all_reduce, peer_reduce_scatter, peer_all_gather, peer_scatter, peer_spread,
    peer_arrive, peer_sum,        peer_clear,          nullptr,         peer_share,   peer_unshare,
    peer_record, peer_wait,       peer_check,          peer_abort,      peer_close};
