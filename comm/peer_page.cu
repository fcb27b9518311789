/* The page of host memory that the ranks of one host share. */
#include "comm/peer.cuh"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Rank 0 creates the page without a name (memfd), and the others open it through /proc/PROCESS/fd. */

typedef struct {
    int process, file;
} Place;

static Status make(int *file) {
    *file = memfd_create("fusebox", MFD_CLOEXEC);
    if (*file >= 0 && ftruncate(*file, sizeof(PeerPage)) == 0) return OK;
    return fail(ERROR_DEVICE, "no memory can be shared with other processes: %s", strerror(errno));
}

static Status open_other(Place place, int *file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", place.process, place.file);
    *file = open(path, O_RDWR | O_CLOEXEC);
    if (*file >= 0) return OK;
    return fail(ERROR_DEVICE,
                "rank 0's memory cannot be shared (%s: %s): GPU peers must be in one container, of one user",
                path, strerror(errno));
}

/* Maps the page into this process, and into its GPU's address space. */
static Status map(PeerComm *p, int file) {
    void *page = mmap(NULL, sizeof(PeerPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), *device_page;
    if (page == MAP_FAILED) return fail(ERROR_DEVICE, "shared memory cannot be mapped: %s", strerror(errno));
    p->page = static_cast<PeerPage *>(page);
    CUDA_TRY(cudaHostRegister(page, sizeof(PeerPage), cudaHostRegisterMapped));
    CUDA_TRY(cudaHostGetDevicePointer(&device_page, page, 0));
    p->device_page = static_cast<PeerPage *>(device_page);
    return OK;
}

Status peer_page_open(PeerComm *p) {
    Place mine = {(int)getpid(), -1}, all[PEERS_MOST];
    Status status = p->rank == 0 ? make(&mine.file) : OK;
    TRY(rendezvous_agree(p->rendezvous, status));
    TRY(rendezvous_gather(p->rendezvous, &mine, sizeof mine, all));
    if (p->rank != 0) status = open_other(all[0], &mine.file);
    if (!status) status = map(p, mine.file);
    status = rendezvous_agree(p->rendezvous, status); // rank 0 keeps the file open until all have mapped it
    if (mine.file >= 0) close(mine.file);
    return status;
}

void peer_page_close(PeerComm *p) {
    if (p->device_page) (void)cudaHostUnregister(p->page);
    if (p->page) (void)munmap(p->page, sizeof(PeerPage));
}
