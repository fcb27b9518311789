/* Ranks on GPUs. With the peer engine two ranks can share one GPU; NCCL requires one for each. Skipped
 * without a GPU. CUDA is used only in child processes, never in the test's own. */
#include "base/files.h"
#include "base/memory.h"
#include "comm/comm_internal.h"
#include "comm/lanes.h"
#include "comm/rendezvous.h"
#include "kernels/gemm/choices.h"
#include "kernels/gemm/gemm.h"
#include "run/plan.h"
#include "tests/support/collectives.h"
#include "tests/support/ranks.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATIENCE = 120, ELEMENTS = 4096, REPLAYS = 5, KILLS = 10 };

typedef struct {
    CommChoice engine;
    int size, port;
    bool share_gpu;
} Run;

/* One rank of a run. */
typedef struct {
    Rendezvous *r;
    Device *device;
    Comm *comm;
} Opened;

/* Skips the test without a GPU or, if each rank needs its own, with fewer GPUs than ranks. */
static Status open_rank(const Run *run, int rank, Opened *o) {
    Identity identity = identity_of(rank, run->size, run->port);
    const int gpus = gpu_count ? gpu_count() : 0;
    if (gpus == 0 || (!run->share_gpu && run->engine == COMM_NCCL && gpus < run->size)) rank_skip();
    TRY(rendezvous_open(&identity, 60, NULL, &o->r));
    TRY(device_open_cuda(run->share_gpu ? 0 : rank % gpus, &o->device));
    const CommSetup setup = {
        .device = o->device, .rendezvous = o->r, .engine = run->engine, .share_gpu = run->share_gpu};
    return comm_open(&setup, &o->comm);
}

static void close_rank(Opened *o) {
    comm_close(o->comm);
    o->device->close(o->device);
    rendezvous_close(o->r, OK);
}

static const RankEnd *run_ranks(CommChoice engine, int size, bool share_gpu, RankBody body) {
    static Run run;
    run = (Run){.engine = engine, .size = size, .port = free_port(), .share_gpu = share_gpu};
    return ranks_run(size, body, &run, PATIENCE);
}

/* ---- collectives ---- */

static Status check_rank(int rank, void *user) {
    Opened o;
    TRY(open_rank(user, rank, &o));
    TRY(collectives_check(o.comm));
    close_rank(&o);
    return OK;
}

static void test_peers(void **state) {
    (void)state;
    for (int size = 2; size <= 4; size++) {
        const RankEnd *ends = run_ranks(COMM_PEER, size, true, check_rank);
        for (int rank = 0; rank < size; rank++) expect_rank(ends, rank, 0, "");
    }
}

static void test_nccl(void **state) {
    (void)state;
    if (!nccl_found()) skip();
    const RankEnd *ends = run_ranks(COMM_NCCL, 2, false, check_rank);
    for (int rank = 0; rank < 2; rank++) expect_rank(ends, rank, 0, "");
}

static void test_one_gpu_by_mistake(void **state) {
    (void)state;
    Run run = {.engine = COMM_PEER, .size = 2, .port = free_port()};
    const RankEnd *ends = ranks_run(2, check_rank, &run, PATIENCE);
    if (ends[0].code == 0) skip(); // each rank has used its own of two GPUs
    for (int rank = 0; rank < 2; rank++) expect_rank(ends, rank, ERROR_USAGE, "ranks 0 and 1 on ");
    expect_rank(ends, 1, ERROR_USAGE, "both have the GPU GPU-");
}

/* ---- captured graphs ---- */

static Status order(Comm *comm, Event *event, Lane before, Lane after) {
    TRY(comm_record(comm, before, event));
    return comm_wait(comm, after, event);
}

/* Sums t over all ranks twice: by whole collectives, and in two halves as in a step. */
static Status sum_twice(Comm *comm, Event *event, Tensor t, Tensor arrivals, Tensor count) {
    TRY(order(comm, event, LANE_MAIN, LANE_SIDE));
    TRY(comm_reduce_scatter(comm, t, comm_piece(comm, t), LANE_SIDE));
    TRY(comm_all_gather(comm, comm_piece(comm, t), t, LANE_SIDE));
    TRY(comm_scatter(comm, 0, t, arrivals, LANE_SIDE));
    TRY(order(comm, event, LANE_SIDE, LANE_MAIN));
    TRY(comm_arrive(comm, 0, 1));
    TRY(comm_sum(comm, t, arrivals));
    TRY(order(comm, event, LANE_MAIN, LANE_SIDE));
    TRY(comm_spread(comm, 1, t, LANE_SIDE));
    TRY(comm_arrive(comm, 1, 1));
    TRY(order(comm, event, LANE_SIDE, LANE_MAIN));
    TRY(comm_all_reduce(comm, count, LANE_MAIN));
    return comm_clear(comm);
}

static Status capture(const Opened *o, Event *event, Tensor t, Tensor arrivals, Tensor count, Graph **graph) {
    TRY(o->device->capture_begin(o->device));
    Status status = sum_twice(o->comm, event, t, arrivals, count);
    Status ended = o->device->capture_end(o->device, graph);
    if (!status) return ended;
    status_free(ended);
    return status;
}

static Status replay_rank(int rank, void *user) {
    const Run *run = user;
    Opened o;
    Event *event;
    Graph *graph;
    void *memory;
    float values[ELEMENTS], want = 0;
    const int64_t others = ELEMENTS / run->size * (run->size - 1);
    TRY(open_rank(run, rank, &o));
    TRY(o.device->event_create(o.device, &event));
    TRY(o.device->allocate(o.device, 2 * sizeof values, &memory));
    TRY(comm_share(o.comm, memory, 2 * sizeof values));
    const Tensor arrivals = tensor_view((float *)memory + ELEMENTS, F32, shape1(others));
    const Tensor count =
        tensor_view((float *)memory + ELEMENTS + others, F32, shape1(1)); // of arbitrary data
    for (int i = 0; i < ELEMENTS; i++) values[i] = (float)(rank + 1);
    TRY(o.device->upload(o.device, memory, values, sizeof values));
    TRY(capture(&o, event, tensor_view(memory, F32, shape1(ELEMENTS)), arrivals, count, &graph));
    for (int i = 0; i < REPLAYS; i++) TRY(o.device->graph_launch(o.device, graph));
    TRY(o.device->download(o.device, values, memory, sizeof values));
    for (int other = 0; other < run->size; other++) want += (float)(other + 1);
    want *= powf((float)run->size, 2 * REPLAYS - 1);
    for (int i = 0; i < ELEMENTS; i++) EXPECT(values[i] == want);
    o.device->graph_free(o.device, graph);
    TRY(comm_unshare(o.comm, memory));
    o.device->release(o.device, memory);
    o.device->event_free(o.device, event);
    close_rank(&o);
    return OK;
}

static void test_replay(void **state) {
    (void)state;
    const RankEnd *ends = run_ranks(COMM_PEER, 2, true, replay_rank);
    for (int rank = 0; rank < 2; rank++) expect_rank(ends, rank, 0, "");
}

/* ---- the algorithms of products ---- */

enum { SIDES = 4, SIDE = 256 };

/* Products of several new sizes: with an empty cache all ranks would time them at once. */
static Status choosing_rank(int rank, void *user) {
    const Run *run = user;
    const size_t bytes = (size_t)(SIDES * SIDE) * (SIDES * SIDE) * sizeof(uint16_t);
    Opened o;
    Ctx ctx;
    char *memory[3];
    TRY(open_rank(run, rank, &o));
    ctx_open(&ctx, o.device);
    for (int i = 0; i < 3; i++) {
        TRY(o.device->allocate(o.device, bytes, (void **)&memory[i]));
        TRY(o.device->fill(o.device, memory[i], 0, bytes));
    }
    TRY(comm_barrier(o.comm));
    for (int64_t i = 1; i <= SIDES; i++) {
        const Shape side = shape2(i * SIDE, i * SIDE);
        const Gemm g = gemm_forward(tensor_view(memory[0], BF16, side), tensor_view(memory[1], BF16, side),
                                    tensor_view(memory[2], BF16, side), 0);
        TRY(gemm(&ctx, &g));
    }
    TRY(o.device->synchronize(o.device));
    for (int i = 0; i < 3; i++) o.device->release(o.device, memory[i]);
    ctx_close(&ctx);
    close_rank(&o);
    return OK;
}

/* Each product has one line in the file of choices: one rank has timed it, and the others use its choice. */
static void test_one_choice(void **state) {
    char *text;
    PathList files;
    int64_t length, lines = 0;
    setenv("XDG_CACHE_HOME", *state, 1);
    if (!choices_wanted()) skip();
    const RankEnd *ends = run_ranks(COMM_PEER, 2, true, choosing_rank);
    for (int rank = 0; rank < 2; rank++) expect_rank(ends, rank, 0, "");
    expect_ok(path_glob(inside(*state, "fusebox/products-*.txt"), &files));
    assert_int_equal(files.count, 1);
    expect_ok(file_read(files.paths[0], 1 << 20, &text, &length));
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, SIDES);
    memory_free(text);
    path_list_free(&files);
}

/* ---- failure ---- */

/* Rank 1 does not enter a collective; rank 0, which waits for it on the GPU, aborts. */
static Status abort_rank(int rank, void *user) {
    Opened o;
    void *memory;
    TRY(open_rank(user, rank, &o));
    TRY(o.device->allocate(o.device, ELEMENTS * sizeof(float), &memory));
    TRY(o.device->fill(o.device, memory, 0, ELEMENTS * sizeof(float)));
    if (rank == 0) {
        TRY(comm_all_reduce(o.comm, tensor_view(memory, F32, shape1(ELEMENTS)), LANE_SIDE));
        TRY(comm_check(o.comm));
        comm_abort(o.comm);
    }
    TRY(comm_barrier(o.comm));
    Status status = comm_check(o.comm);
    close_rank(&o); // this call waits for the lane
    return status;
}

static void test_abort(void **state) {
    (void)state;
    const RankEnd *ends = run_ranks(COMM_PEER, 2, true, abort_rank);
    for (int rank = 0; rank < 2; rank++)
        expect_rank(ends, rank, ERROR_DEVICE, "the communicator was aborted");
}

static void on_lost(void *user, Status status) {
    (void)user;
    _exit((int)status_code(status)); // a kernel is waiting for the other rank
}

static Status killed_rank(int rank, void *user) {
    Opened o;
    void *memory;
    const size_t bytes = 64 << 20;
    TRY(open_rank(user, rank, &o));
    heartbeat_begin(o.r, &(HeartbeatSetup){.lost = on_lost});
    TRY(o.device->allocate(o.device, bytes, &memory));
    TRY(o.device->fill(o.device, memory, 0, bytes));
    TRY(comm_share(o.comm, memory, bytes));
    for (int64_t step = 0;; step++) {
        heartbeat_step(o.r, step);
        TRY(comm_all_reduce(o.comm, tensor_view(memory, F32, shape1((int64_t)(bytes / 4))), LANE_MAIN));
        if (rank == 1 && step == 5) (void)kill(getpid(), SIGKILL); // during the collective
        TRY(o.device->synchronize(o.device));
    }
}

static Status look_at_memory(int rank, void *user) {
    (void)rank;
    Device *device;
    if (!gpu_count || gpu_count() == 0) rank_skip();
    TRY(device_open_cuda(0, &device));
    return device->available(device, user);
}

/* The other rank ends soon, and the GPU's memory is released, repeatedly. */
static void test_killed_rank(void **state) {
    (void)state;
    size_t *available = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(available != MAP_FAILED);
    expect_rank(ranks_run(1, look_at_memory, available, PATIENCE), 0, 0, "");
    const size_t before = available[0];
    for (int i = 0; i < KILLS; i++) {
        const RankEnd *ends = run_ranks(COMM_PEER, 2, true, killed_rank);
        expect_rank(ends, 0, ERROR_DEVICE, "");
        assert_int_equal(ends[1].code, 128 + SIGKILL);
        assert_true(ends[0].seconds < ends[1].seconds + 10);
    }
    // other programs use memory for a while; the ranks' 64 MiB would be missing for good
    for (int waited = 0; waited == 0 || available[0] + (32 << 20) <= before; waited++) {
        assert_true(waited < PATIENCE);
        if (waited) sleep(1);
        expect_rank(ranks_run(1, look_at_memory, available, PATIENCE), 0, 0, "");
    }
    munmap(available, 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_one_gpu_by_mistake),
        cmocka_unit_test(test_replay),
        cmocka_unit_test_setup_teardown(test_one_choice, scratch_setup, scratch_teardown),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_killed_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
