/* The communicator's engines. For CPU ranks the test runs itself again under mpirun; these tests are skipped
 * without mpirun, or in a build without MPI. */
#define _GNU_SOURCE
#include "comm/comm_internal.h"
#include "comm/rendezvous_internal.h"
#include "kernels/device/device.h"
#include "tests/support/collectives.h"
#include "tests/support/program.h"
#include "tests/support/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a rank, under mpirun ---- */

static Status check_rank(void) {
    Identity identity;
    Rendezvous *r;
    Device *device;
    Comm *comm;
    TRY(identity_read(&identity));
    TRY(rendezvous_open(&identity, 60, NULL, &r));
    TRY(device_open_cpu(1, &device));
    const CommSetup setup = {.device = device, .rendezvous = r, .engine = COMM_AUTO};
    TRY(comm_open(&setup, &comm));
    EXPECT(comm->rank == identity.rank && comm->size == identity.size && comm->rank_order);
    TRY(collectives_check(comm));
    const Heartbeat *now = &((const Link *)r)->now;
    EXPECT(strcmp(now->action, "barrier") == 0 && now->calls > 100);
    if (comm->rank == 0) printf("%d ranks by %s agree to the last bit\n", comm->size, comm->name);
    comm_close(comm);
    device->close(device);
    rendezvous_close(r, OK);
    return OK;
}

/* All ranks but one enter a barrier; that one aborts. */
static Status abort_rank(void) {
    Identity identity;
    Rendezvous *r;
    Device *device;
    Comm *comm;
    TRY(identity_read(&identity));
    TRY(rendezvous_open(&identity, 60, NULL, &r));
    TRY(device_open_cpu(1, &device));
    const CommSetup setup = {.device = device, .rendezvous = r, .engine = COMM_AUTO};
    TRY(comm_open(&setup, &comm));
    if (comm->rank == 1) comm_abort(comm);
    return comm_barrier(comm);
}

/* ---- the tests that start them ---- */

static void needs_mpi(const char *folder) {
    const Ran *ran =
        program_run(folder, "command -v mpirun && ls $(dirname $(command -v train))/comm_mpi.so");
    if (ran->code == 0) return;
    print_message("skipped: there is no mpirun, or this build has no MPI (libopenmpi-dev, openmpi-bin)\n");
    skip();
}

/* Settings that Open MPI requires for root, in a container, with few cores. It leaks memory when it ends. */
#define MPIRUN                                                                                               \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "         \
    "OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0 mpirun -n %d $(dirname "   \
    "$(command -v "                                                                                          \
    "train))/tests/test_comm %s"

static void test_mpi(void **state) {
    needs_mpi(*state);
    for (int ranks = 2; ranks <= 4; ranks++) {
        char said[64];
        snprintf(said, sizeof said, "%d ranks by MPI (", ranks);
        expect_text(program_succeeds(*state, MPIRUN, ranks, "rank")->output, said);
    }
}

static void test_mpi_abort(void **state) {
    needs_mpi(*state);
    double start = device_clock();
    const Ran *ran = program_run(*state, MPIRUN, 3, "abort");
    assert_int_equal(ran->code, ERROR_DEVICE);
    assert_true(device_clock() - start < 30);
}

/* A run with ranks fails without the module, with a message that names the remedy. */
static void test_no_mpi(void **state) {
    needs_mpi(*state);
    const Ran *ran = program_run(*state, "FUSEBOX_MPI=/nowhere.so " MPIRUN, 2, "rank");
    assert_int_not_equal(ran->code, 0);
    expect_text(ran->error, "need MPI, and its module does not load: /nowhere.so: ");
}

/* ---- errors ---- */

typedef struct {
    CommChoice engine;
    bool direct; // NCCL's engine is opened although the device is a CPU
    int port;
} Wrong;

static Status open_rank(int rank, void *user) {
    const Wrong *wrong = user;
    Identity identity = identity_of(rank, 2, wrong->port);
    Rendezvous *r;
    Device *device;
    Comm *comm;
    TRY(rendezvous_open(&identity, 20, NULL, &r));
    TRY(device_open_cpu(1, &device));
    const CommSetup setup = {.device = device, .rendezvous = r, .engine = wrong->engine};
    return wrong->direct ? comm_open_nccl(&setup, &comm) : comm_open(&setup, &comm);
}

static void test_wrong_engines(void **state) {
    (void)state;
    static const struct {
        CommChoice engine;
        bool direct;
        ErrorCode code;
        const char *part, *variable, *value;
    } cases[] = {
        {COMM_NCCL, false, ERROR_USAGE, "nccl is for GPUs; ranks on the CPU need mpi", "", ""},
        {COMM_PEER, false, ERROR_USAGE, "peer is for GPUs; ranks on the CPU need mpi", "", ""},
        {COMM_NCCL, true, ERROR_DEVICE, "FUSEBOX_NCCL=/nowhere: /nowhere: cannot open shared object file",
         "FUSEBOX_NCCL", "/nowhere"},
        {COMM_NCCL, true, ERROR_DEVICE, "FUSEBOX_NCCL=/tmp: ", "FUSEBOX_NCCL", "/tmp"},
        {COMM_NCCL, true, ERROR_DEVICE, "this libnccl has no ncclGetVersion: it is too old", "FUSEBOX_NCCL",
         "libm.so.6"},
        {COMM_AUTO, false, ERROR_DEVICE, "its module does not load: /nowhere: ", "FUSEBOX_MPI", "/nowhere"},
        {COMM_AUTO, false, ERROR_DEVICE, "comm_mpi.so is of another build", "FUSEBOX_MPI", "libm.so.6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Wrong wrong = {.engine = cases[i].engine, .direct = cases[i].direct, .port = free_port()};
        if (*cases[i].variable) setenv(cases[i].variable, cases[i].value, 1);
        const RankEnd *ends = ranks_run(2, open_rank, &wrong, 30);
        if (*cases[i].variable) unsetenv(cases[i].variable);
        expect_rank(ends, 0, (int)cases[i].code, cases[i].part);
        expect_rank(ends, 1, (int)cases[i].code, cases[i].part);
    }
}

/* MPI under another launcher's variables: every process is MPI's rank 0 of 1. */
static void test_not_mpirun(void **state) {
    needs_mpi(*state);
    Wrong wrong = {.engine = COMM_MPI, .port = free_port()};
    const RankEnd *ends = ranks_run(2, open_rank, &wrong, 60);
    expect_rank(ends, 1, ERROR_USAGE,
                "MPI says that this is rank 0 of 1, and who started it 1 of 2: start ranks on the CPU "
                "with mpirun");
}

static void test_wrong_tensors(void **state) {
    (void)state;
    Device *device;
    float values[64] = {0};
    expect_ok(device_open_cpu(1, &device));
    Comm *comm = &(Comm){.size = 1, .device = device};
    Tensor whole = tensor_view(values, F32, shape1(32));
    Tensor rows = tensor_view(values, F32, shape2(4, 8));
    expect_error(comm_all_reduce(comm, tensor_columns(rows, 0, 4), LANE_MAIN), ERROR_INTERNAL, "not dense");
    expect_error(comm_all_reduce(comm, tensor_view(values, I32, shape1(4)), LANE_MAIN), ERROR_INTERNAL,
                 "i32 is not added");
    expect_error(comm_reduce_scatter(comm, whole, tensor_view(values, F32, shape1(16)), LANE_MAIN),
                 ERROR_INTERNAL, "16 elements are not one of 1 equal parts of 32");
    expect_error(comm_all_gather(comm, tensor_view(values, BF16, shape1(32)), whole, LANE_MAIN),
                 ERROR_INTERNAL, "equal parts");
    expect_error(comm_all_gather(comm, tensor_view(values + 8, F32, shape1(32)), whole, LANE_MAIN),
                 ERROR_INTERNAL, "overlaps the whole");
    device->close(device);
}

static void test_parts(void **state) {
    (void)state;
    float values[256];
    const Comm comm = {.rank = 2, .size = 4};
    assert_int_equal(comm_padded(1, 1), 64);
    assert_int_equal(comm_padded(4, 0), 0);
    assert_int_equal(comm_padded(4, 256), 256);
    assert_int_equal(comm_padded(4, 257), 512);
    assert_int_equal(comm_padded(3, 257), 384);
    Tensor piece = comm_piece(&comm, tensor_view(values, BF16, shape2(8, 64)));
    assert_int_equal(tensor_count(piece), 128);
    assert_ptr_equal(piece.data, (char *)values + 512);
}

int main(int argc, char **argv) {
    if (argc > 1)
        return status_exit(strcmp(argv[1], "abort") == 0 ? abort_rank() : check_rank(), "test_comm");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpi),        cmocka_unit_test(test_mpi_abort),
        cmocka_unit_test(test_no_mpi),     cmocka_unit_test(test_wrong_engines),
        cmocka_unit_test(test_not_mpirun), cmocka_unit_test(test_wrong_tensors),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
