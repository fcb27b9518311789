/* comm: the communicator. Every rank is a process with one device. All ranks call the same collectives in the
 * same order with the same sizes. One of three engines (comm_internal.h) executes them:
 *
 *     engine   between            order of a sum
 *     mpi      CPU processes      rank order
 *     peer     GPUs of one host   rank order
 *     nccl     GPUs               NCCL's own
 *
 * Rank order means ((x0 + x1) + x2) + ..., where xr is rank r's value. It is computed in fp32 (for fp64
 * tensors in fp64) and rounded once, at the end, to the tensor's dtype. An element's sum depends on the
 * ranks' values only: not on the collective, the tensor's size, the element's place or the rank that reads
 * it. One rank that adds the same values one after another gets the same bits. With two ranks, NCCL's sums of
 * fp32 have these bits too, because a sum of two has only one order.
 *
 * Sums take fp32 and bf16; fp64 on the CPU and in an all-reduce. All-gather moves bytes of any dtype.
 *
 * Tensors are dense and lie in the device's memory. On a GPU a collective is enqueued in one of two streams
 * and returns at once; on the CPU it returns when it is done. Only comm_abort may be called by a second
 * thread. */
#pragma once

#include "base/status.h"
#include "base/tensor.h"
#include "kernels/device/device.h"

__BEGIN_DECLS

struct Rendezvous; // rendezvous.h
struct CommEngine; // comm_internal.h

/* LANE_MAIN is the device's own stream, in which its kernels run; LANE_SIDE is the communicator's. Work in
 * one lane runs in order. comm_record and comm_wait order work of different lanes. */
typedef enum { LANE_MAIN, LANE_SIDE, LANE_COUNT } Lane;

typedef struct Comm {
    const struct CommEngine *engine;
    int rank, size;
    char name[96];   // "NCCL 2.28.9", "MPI (Open MPI v4.1.4)", "peers"
    bool rank_order; // sums are in rank order
    bool posts;      // comm_scatter and comm_spread do not slow down concurrent kernels
    Device *device;
    struct Rendezvous *rendezvous;
} Comm;

/* COMM_AUTO: mpi on the CPU; peer between GPUs of one host that reach each other's memory; else nccl. */
typedef enum { COMM_AUTO, COMM_NCCL, COMM_PEER, COMM_MPI } CommChoice;

typedef struct {
    Device *device;
    struct Rendezvous *rendezvous; // rendezvous of several ranks; it must outlive the communicator
    CommChoice engine;
    bool share_gpu; // several ranks may use one GPU (peer only): for tests
} CommSetup;

/* Collective. ERROR_USAGE if the engine is not for this device, or if two ranks have one GPU;
 * ERROR_DEVICE if the engine's library is missing or too old, or if ranks cannot reach each other. */
CHECKED Status comm_open(const CommSetup *setup, Comm **comm);

/* Collective, unless the communicator was aborted. A rank that ends because of an error does not call it.
 * NULL is fine. */
void comm_close(Comm *comm);

/* ---- collectives ---- */

/* t = the sum of all ranks' t. */
CHECKED Status comm_all_reduce(Comm *comm, Tensor t, Lane lane);

/* Cuts the sum of all ranks' whole into `size` equal parts: rank r's piece = part r. piece may be that part
 * of whole itself (comm_piece); the rest of whole stays as it is. */
CHECKED Status comm_reduce_scatter(Comm *comm, Tensor whole, Tensor piece, Lane lane);

/* whole = all ranks' pieces, in rank order. piece may be its own part of whole. */
CHECKED Status comm_all_gather(Comm *comm, Tensor piece, Tensor whole, Lane lane);

/* ---- collectives in two halves, concurrent with kernels ---- */

enum { COMM_SLOTS = 1024 };

/* comm_scatter starts to send each part of `whole` to the rank that it belongs to; comm_spread starts to send
 * this rank's part of `whole` to all others. Both work in `lane`. comm_arrive lets the main lane wait until
 * every rank has posted slots [first, first + count). Then comm_sum, in the main lane, adds the parts that
 * have arrived: comm_piece(whole) = their sum.
 *
 * With an engine that posts (Comm.posts) no rank waits for another in the first half, and the transfers
 * occupy almost no multiprocessor. `arrivals` (size - 1 parts) and the tensor of comm_spread lie in shared
 * memory, at the same offsets on all ranks. A rank must not scatter or spread into them again before a
 * collective has shown that the other ranks have finished reading. A slot is used once until comm_clear.
 * comm_clear runs in the main lane between two collectives there: all ranks wait for all slots before the
 * first, and reuse slots after the second.
 *
 * With other engines `arrivals` may be empty, comm_scatter is the whole reduce-scatter and comm_spread the
 * whole all-gather. The other three functions do nothing; work in another lane waits for an event. */
CHECKED Status comm_scatter(Comm *comm, int slot, Tensor whole, Tensor arrivals, Lane lane);
CHECKED Status comm_spread(Comm *comm, int slot, Tensor whole, Lane lane);
CHECKED Status comm_arrive(Comm *comm, int first, int count);
CHECKED Status comm_sum(Comm *comm, Tensor whole, Tensor arrivals);
CHECKED Status comm_clear(Comm *comm);

/* Waits until every rank's host calls it. Does not wait for streams. */
CHECKED Status comm_barrier(Comm *comm);

/* ---- equal parts ---- */

/* `count` elements, padded so that they form `size` equal parts, each a multiple of 64 elements: whole cache
 * lines, and 16-byte accesses for every dtype. The padding must hold finite values. */
int64_t comm_padded(int size, int64_t count);

/* This rank's part of a dense tensor, as a view with one axis. The ranks divide the number of elements. */
Tensor comm_piece(const Comm *comm, Tensor whole);

/* ---- memory and order ---- */

/* Collective: announces collectives on tensors in [memory, memory + bytes), an allocation of the device (an
 * arena) with the same size on every rank. A tensor in it has the same offset on every rank. Collectives also
 * work on other memory, but then the peer engine copies through a buffer. comm_unshare comes before the
 * memory is released. */
CHECKED Status comm_share(Comm *comm, void *memory, size_t bytes);
CHECKED Status comm_unshare(Comm *comm, void *memory);

/* Records an event of the device in the lane; lets the lane wait for it. */
CHECKED Status comm_record(Comm *comm, Lane lane, Event *event);
CHECKED Status comm_wait(Comm *comm, Lane lane, Event *event);

/* ---- failure ---- */

/* An error of enqueued work, if one is known. Does not wait. */
CHECKED Status comm_check(Comm *comm);

/* Ends this rank's running and future collectives with errors, so that it does not wait for a lost rank. From
 * any thread. With MPI it ends the processes of all ranks, with exit code 6. */
void comm_abort(Comm *comm);

__END_DECLS
