/* The engine that uses NCCL. */
#include "comm/comm_internal.h"

#include "base/files.h"
#include "base/memory.h"
#include "comm/lanes.h"
#include "comm/rendezvous.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library is loaded at run time and declared here, so neither a build nor a run on one GPU needs it. */

enum { ID_BYTES = 128, VERSION_LEAST = 21000 };
enum { RESULT_OK = 0, RESULT_IN_PROGRESS = 7 };                    // ncclResult_t
enum { TYPE_BYTE = 0, TYPE_F32 = 7, TYPE_F64 = 8, TYPE_BF16 = 9 }; // ncclDataType_t
enum { OPERATION_SUM = 0 };                                        // ncclRedOp_t

typedef struct {
    char bytes[ID_BYTES];
} UniqueId;

/* name, arguments: the library's functions. They return 0 for success */
#define NCCL_FUNCTIONS(F)                                                                                    \
    F(GetVersion, (int *version))                                                                            \
    F(GetUniqueId, (UniqueId * id))                                                                          \
    F(CommInitRank, (void **nccl, int size, UniqueId id, int rank))                                          \
    F(CommAbort, (void *nccl))                                                                               \
    F(CommDestroy, (void *nccl))                                                                             \
    F(CommGetAsyncError, (void *nccl, int *result))                                                          \
    F(AllReduce, (const void *from, void *to, size_t count, int type, int operation, void *nccl, void *s))   \
    F(ReduceScatter,                                                                                         \
      (const void *from, void *to, size_t count, int type, int operation, void *nccl, void *s))              \
    F(AllGather, (const void *from, void *to, size_t count, int type, void *nccl, void *s))

typedef struct {
#define DECLARE(name, arguments) int(*name) arguments;
    NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
    const char *(*GetErrorString)(int result);
    const char *(*GetLastError)(void *nccl); // since 2.13, else NULL
} Library;

typedef struct {
    Comm base;
    Library library;
    Lanes lanes;
    void *nccl; // ncclComm_t; NULL once aborted
} Nccl;

static Nccl *nccl_of(Comm *comm) {
    return (Nccl *)comm;
}

static Status nccl_status(const Nccl *n, int result, const char *what) {
    if (result == RESULT_OK) return OK;
    const char *more = n->library.GetLastError ? n->library.GetLastError(n->nccl) : "";
    return fail(ERROR_DEVICE, "%s: %s%s%s", what, n->library.GetErrorString(result),
                more && *more ? ": " : "", more ? more : "");
}

#define NCCL_TRY(n, call) TRY(nccl_status(n, (n)->library.call, "nccl" #call))

/* ---- collectives ---- */

static int type_of(Dtype dtype) {
    return dtype == BF16 ? TYPE_BF16 : dtype == F64 ? TYPE_F64 : TYPE_F32;
}

static Status nccl_all_reduce(Comm *comm, void *data, int64_t count, Dtype dtype, Lane lane) {
    Nccl *n = nccl_of(comm);
    NCCL_TRY(n, AllReduce(data, data, (size_t)count, type_of(dtype), OPERATION_SUM, n->nccl,
                          n->lanes.streams[lane]));
    return OK;
}

static Status nccl_reduce_scatter(Comm *comm, const void *whole, void *piece, int64_t count, Dtype dtype,
                                  Lane lane) {
    Nccl *n = nccl_of(comm);
    NCCL_TRY(n, ReduceScatter(whole, piece, (size_t)count, type_of(dtype), OPERATION_SUM, n->nccl,
                              n->lanes.streams[lane]));
    return OK;
}

static Status nccl_all_gather(Comm *comm, const void *piece, void *whole, size_t bytes, Lane lane) {
    Nccl *n = nccl_of(comm);
    NCCL_TRY(n, AllGather(piece, whole, bytes, TYPE_BYTE, n->nccl, n->lanes.streams[lane]));
    return OK;
}

static Status nccl_record(Comm *comm, Lane lane, Event *event) {
    return lanes_record(&nccl_of(comm)->lanes, lane, event);
}

static Status nccl_wait(Comm *comm, Lane lane, Event *event) {
    return lanes_wait(&nccl_of(comm)->lanes, lane, event);
}

static Status nccl_check(Comm *comm) {
    Nccl *n = nccl_of(comm);
    int result = RESULT_OK;
    if (!n->nccl) return fail(ERROR_DEVICE, "the communicator was aborted");
    NCCL_TRY(n, CommGetAsyncError(n->nccl, &result));
    return result == RESULT_IN_PROGRESS ? OK : nccl_status(n, result, "an earlier collective");
}

/* ---- finding the library ---- */

/* The first file of a pattern that loads, or NULL. */
static void *open_match(const char *pattern) {
    CLOSED_BY(path_list_free) PathList found = {0};
    void *library = NULL;
    status_free(path_glob(pattern, &found)); // an unreadable folder counts as empty
    for (int64_t i = 0; i < found.count && !library; i++)
        library = dlopen(found.paths[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* Opens the library of a Python package, from the active environment, the user's folder or the system's. */
static void *open_python_library(void) {
    static const struct {
        const char *variable, *folder;
    } roots[] = {
        {"VIRTUAL_ENV", ""}, {"CONDA_PREFIX", ""}, {"HOME", "/.local"}, {NULL, "/usr/local"}, {NULL, "/usr"}};
    void *library = NULL;
    for (size_t i = 0; i < sizeof roots / sizeof *roots && !library; i++) {
        char pattern[4096];
        const char *root = roots[i].variable ? getenv(roots[i].variable) : "";
        if (!root) continue;
        snprintf(pattern, sizeof pattern, "%s%s/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2", root,
                 roots[i].folder);
        library = open_match(pattern);
    }
    return library;
}

/* Opens FUSEBOX_NCCL (a file or its folder) if it is set, and no other; else the system's library; else
 * Python's. */
static void *open_library(void) {
    const char *named = getenv("FUSEBOX_NCCL");
    if (named && *named) {
        char path[4096];
        PathKind kind;
        Status unseen = path_kind(named, &kind);
        status_free(unseen);
        if (unseen || kind != PATH_FOLDER) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
        snprintf(path, sizeof path, "%s/libnccl.so.2", named);
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    return library ? library : open_python_library();
}

bool nccl_found(void) {
    return open_library() != NULL; // the library stays loaded
}

static Status load(Nccl *n) {
    const char *named = getenv("FUSEBOX_NCCL");
    int version = 0;
    void *library = open_library();
    if (!library && named && *named) return fail(ERROR_DEVICE, "FUSEBOX_NCCL=%s: %s", named, dlerror());
    if (!library)
        return fail(ERROR_DEVICE,
                    "more than one GPU needs NCCL, and libnccl.so.2 is not here: install libnccl2 or "
                    "pip's nvidia-nccl, or name its folder in FUSEBOX_NCCL");
#define FIND(name, arguments)                                                                                \
    *(void **)&n->library.name = dlsym(library, "nccl" #name);                                               \
    if (!n->library.name) return fail(ERROR_DEVICE, "this libnccl has no nccl" #name ": it is too old");
    NCCL_FUNCTIONS(FIND)
    FIND(GetErrorString, )
#undef FIND
    *(void **)&n->library.GetLastError = dlsym(library, "ncclGetLastError");
    NCCL_TRY(n, GetVersion(&version));
    if (version < VERSION_LEAST) return fail(ERROR_DEVICE, "NCCL %d is too old: bf16 needs 2.10", version);
    snprintf(n->base.name, sizeof n->base.name, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    return OK;
}

/* ---- opening and closing ---- */

static void nccl_abort(Comm *comm) {
    Nccl *n = nccl_of(comm);
    void *nccl = __atomic_exchange_n(&n->nccl, NULL, __ATOMIC_SEQ_CST);
    if (nccl) (void)n->library.CommAbort(nccl);
}

static void nccl_close(Comm *comm) {
    Nccl *n = nccl_of(comm);
    lanes_close(&n->lanes);
    if (n->nccl) (void)n->library.CommDestroy(n->nccl);
    memory_free(n);
}

static const CommEngine engine = {.name = "nccl",
                                  .all_reduce = nccl_all_reduce,
                                  .reduce_scatter = nccl_reduce_scatter,
                                  .all_gather = nccl_all_gather,
                                  .record = nccl_record,
                                  .wait = nccl_wait,
                                  .check = nccl_check,
                                  .abort = nccl_abort,
                                  .close = nccl_close};

/* All ranks get rank 0's unique id. */
static Status exchange_id(Nccl *n, Rendezvous *r, UniqueId *id) {
    OWNED UniqueId *all = memory_array((size_t)r->size, sizeof *all);
    Status status = OK;
    if (r->rank == 0) status = nccl_status(n, n->library.GetUniqueId(id), "ncclGetUniqueId");
    TRY(rendezvous_agree(r, status));
    TRY(rendezvous_gather(r, id, sizeof *id, all));
    *id = all[0];
    return OK;
}

static Status start(Nccl *n, const CommSetup *setup) {
    Rendezvous *r = setup->rendezvous;
    UniqueId id = {{0}};
    setenv("NCCL_NVLS_ENABLE", "0", 0); // sums in the NVLink switch have another order
    Status status = load(n);
    if (!status && !lanes_open) status = fail(ERROR_DEVICE, "this build has no CUDA, which NCCL needs");
    if (!status) status = lanes_open(setup->device, &n->lanes);
    TRY(rendezvous_agree(r, status));
    TRY(lanes_distinct(&n->lanes, r));
    TRY(exchange_id(n, r, &id));
    return nccl_status(n, n->library.CommInitRank(&n->nccl, r->size, id, r->rank), "ncclCommInitRank");
}

Status comm_open_nccl(const CommSetup *setup, Comm **comm) {
    Nccl *n = memory_allocate(sizeof *n);
    n->base = (Comm){.engine = &engine, .rank_order = setup->rendezvous->size <= 2};
    Status status = start(n, setup);
    if (status && n->lanes.streams[LANE_SIDE]) lanes_close(&n->lanes);
    if (status)
        memory_free(n);
    else
        *comm = &n->base;
    return status;
}
