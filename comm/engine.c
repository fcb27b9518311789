/* Functions that several engines share. */
#include "base/memory.h"
#include "comm/comm_internal.h"
#include "comm/rendezvous.h"

Status engine_share_nothing(Comm *comm, void *memory, size_t bytes) {
    (void)comm, (void)memory, (void)bytes;
    return OK;
}

Status engine_unshare_nothing(Comm *comm, void *memory) {
    (void)comm, (void)memory;
    return OK;
}

Status engine_no_order(Comm *comm, Lane lane, Event *event) {
    (void)comm, (void)lane, (void)event;
    return OK;
}

Status engine_nothing_wrong(Comm *comm) {
    (void)comm;
    return OK;
}

Status engine_host_barrier(Comm *comm) {
    char *all = memory_allocate((size_t)comm->size);
    Status status = rendezvous_gather(comm->rendezvous, "", 1, all);
    memory_free(all);
    return status;
}
