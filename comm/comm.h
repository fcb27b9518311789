/* comm: the communicator. Every rank is a process with one device; all ranks call the same collectives, in
 * the same order, with the same sizes. Behind it stands one of four engines (comm_internal.h):
 *
 *     engine   between            order of a sum
 *     alone    one rank           nothing is added
 *     mpi      CPU processes      rank order
 *     peer     GPUs of one host   rank order
 *     nccl     GPUs               NCCL's own
 *
 * Rank order: ((x0 + x1) + x2) + ..., xr being rank r's value, computed in fp32 (of fp64 tensors in fp64)
 * and rounded once, at the end, to the tensor's dtype. An element's sum depends on the ranks' values
 * alone: not on the collective, on the tensor's size, on where the element lies or on which rank reads it.
 * It is what one rank gets that adds the same values one after another. NCCL's sums of fp32 are the same
 * bits with two ranks, for a sum of two has no order; with more they are not.
 *
 * Sums are of fp32 and bf16, and on the CPU and in an all-reduce of fp64. All-gather and broadcast move
 * bytes of any dtype.
 *
 * Tensors are dense and lie in the device's memory. On a GPU a collective is put into one of two streams
 * and returns; on the CPU it is over when it returns. Only one thread calls, but for comm_abort. */
#pragma once

#include "base/status.h"
#include "base/tensor.h"
#include "kernels/device/device.h"

__BEGIN_DECLS

struct Rendezvous; // rendezvous.h
struct CommEngine; // comm_internal.h

/* The device's own stream, in which its kernels run, or the communicator's, which runs beside it. Work of one
 * lane runs in order; comm_record and comm_wait make order between the two. */
typedef enum { LANE_MAIN, LANE_SIDE, LANE_COUNT } Lane;

typedef enum {
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_COUNT
} Collective;

/* What this rank has asked for so far. */
typedef struct {
    int64_t calls;
    double bytes; // of the whole tensors, whatever went over a link
} CommTotal;

typedef struct Comm {
    const struct CommEngine *engine;
    int rank, size, local_rank;
    char name[96];   // "NCCL 2.28.9", "MPI (Open MPI v4.1.4)", "peers", "alone"
    bool rank_order; // sums are in rank order
    bool posts;      // comm_scatter and comm_spread leave the kernels beside them alone
    Device *device;
    struct Rendezvous *rendezvous;
    CommTotal totals[COLLECTIVE_COUNT];
} Comm;

typedef struct {
    Device *device;
    struct Rendezvous *rendezvous; // NULL: one rank. It must outlive the communicator
    /* "auto", "nccl", "peer" or "mpi". auto: mpi on the CPU; between GPUs of one host that reach each
     * other's memory peer, else nccl. */
    const char *engine;
    bool share_gpu; // ranks may have one GPU in common (peer only): for tests
} CommSetup;

/* Collective. ERROR_USAGE for an engine that is unknown or not for this device, and where two ranks have one
 * GPU; ERROR_DEVICE where its library is missing or too old, or where ranks cannot reach each other. One rank
 * alone needs no library. */
CHECKED Status comm_open(const CommSetup *setup, Comm **comm);

/* Collective, unless the communicator was aborted: a rank that ends because of an error does not call it.
 * NULL is fine. */
void comm_close(Comm *comm);

/* ---- collectives ---- */

/* t = the sum of all ranks' t. */
CHECKED Status comm_all_reduce(Comm *comm, Tensor t, Lane lane);

/* piece = the sum of all ranks' whole, of which rank r gets part r of `size` equal ones. piece may be that
 * part of whole itself (comm_piece); the rest of whole is left as it is. */
CHECKED Status comm_reduce_scatter(Comm *comm, Tensor whole, Tensor piece, Lane lane);

/* whole = all ranks' pieces, in rank order. piece may be its own part of whole. */
CHECKED Status comm_all_gather(Comm *comm, Tensor piece, Tensor whole, Lane lane);

/* t = rank `root`'s t. */
CHECKED Status comm_broadcast(Comm *comm, int root, Tensor t, Lane lane);

/* ---- in two halves, beside kernels ---- */

enum { COMM_SLOTS = 1024 };

/* comm_scatter and comm_spread put on their way, in `lane`, this rank's parts of `whole` to the ranks that
 * they belong to, and this rank's part of `whole` to all others. comm_arrive makes what follows in the
 * main lane wait until what was posted in slots [first, first + count) has come from every rank. Behind it
 * comm_sum, in the main lane, makes comm_piece(whole) the sum, from the parts that have come.
 *
 * An engine that posts needs no rank to wait for another meanwhile, and of the multiprocessors next to
 * nothing: arrivals (size - 1 parts) and the spread tensor lie in shared memory, at the same offsets on
 * all ranks, and a rank must not scatter or spread into them again before it knows, by a collective, that
 * the others are through with them. A slot is used once until comm_clear, in the main lane, between two
 * collectives there: before the first of them all have waited for all slots, and behind the second they
 * are used again.
 *
 * Elsewhere arrivals may be empty; comm_scatter is the whole reduce-scatter, comm_spread the all-gather,
 * and the others do nothing: what follows in another lane waits for an event. */
CHECKED Status comm_scatter(Comm *comm, int slot, Tensor whole, Tensor arrivals, Lane lane);
CHECKED Status comm_spread(Comm *comm, int slot, Tensor whole, Lane lane);
CHECKED Status comm_arrive(Comm *comm, int first, int count);
CHECKED Status comm_sum(Comm *comm, Tensor whole, Tensor arrivals);
CHECKED Status comm_clear(Comm *comm);

/* The host waits until every rank's host has come here. Streams are not waited for. */
CHECKED Status comm_barrier(Comm *comm);

/* ---- equal parts ---- */

/* Elements that a bucket of `count` takes so that it falls into `size` equal parts, each a multiple of 64
 * elements: whole cache lines, and 16-byte accesses for every dtype. The padding must hold finite values. */
int64_t comm_padded(int size, int64_t count);

/* This rank's part of a dense tensor whose elements `size` divides: one axis, the same memory. */
Tensor comm_piece(const Comm *comm, Tensor whole);

/* ---- memory and order ---- */

/* Collective: tells the engine that collectives will be called on tensors in [memory, memory + bytes), an
 * allocation of the device (an arena), of the same size on every rank; such a tensor has the same offset on
 * every rank. Without it they work too, but the peer engine copies them through a buffer of its own.
 * comm_unshare comes before the memory is released. */
CHECKED Status comm_share(Comm *comm, void *memory, size_t bytes);
CHECKED Status comm_unshare(Comm *comm, void *memory);

/* Puts `event`, one of the device's, behind all that the lane holds so far; and makes what follows in the
 * lane wait for it. */
CHECKED Status comm_record(Comm *comm, Lane lane, Event *event);
CHECKED Status comm_wait(Comm *comm, Lane lane, Event *event);

/* ---- failure ---- */

/* What has gone wrong so far in work that was put into streams, known without waiting. */
CHECKED Status comm_check(Comm *comm);

/* Ends this rank's collectives, under way and to come, with errors, so that nobody waits in them for a rank
 * that does not come. From any thread. With MPI it ends the processes of all ranks, with exit code 6. */
void comm_abort(Comm *comm);

__END_DECLS
