/* Identities of ranks, and the rendezvous: valid starts, and invalid ones with their errors. */
#include "base/memory.h"
#include "comm/rendezvous_internal.h"
#include "comm/wire.h"
#include "kernels/device/device.h"
#include "tests/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- identities ---- */

/* Sets the variables "NAME=VALUE NAME=VALUE", and clears those of all other launchers. */
static void set_environment(const char *text) {
    static const char *const all[] = {"FUSEBOX_TOKEN",
                                      "RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "TORCHELASTIC_RUN_ID",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "PMIX_RANK",
                                      "PMIX_NAMESPACE",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "MPI_LOCALRANKID",
                                      "MPI_LOCALNRANKS",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_STEP_ID",
                                      "SLURM_STEP_TASKS_PER_NODE",
                                      "SLURM_JOB_ID",
                                      "SLURM_JOB_NODELIST",
                                      "SLURM_STEP_NODELIST"};
    char copy[1024], *rest = copy;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value = 0;
        setenv(word, value + 1, 1);
    }
}

#define TORCHRUN "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=gpu7 MASTER_PORT=29500"
#define OPEN_MPI "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1"
#define SLURM    "SLURM_PROCID=5 SLURM_NTASKS=16 SLURM_LOCALID=2 SLURM_STEP_ID=0 SLURM_JOB_ID=77"

static void test_starters(void **state) {
    (void)state;
    static const struct {
        const char *environment, *starter;
        int rank, size, local_rank;
        const char *host;
        int port; // 0: one that follows from the token
    } cases[] = {
        {"", NULL, 0, 1, 0, "", 0},
        {TORCHRUN, "torchrun", 3, 8, 1, "gpu7", 29501},
        {TORCHRUN " LOCAL_WORLD_SIZE=4", "torchrun", 3, 8, 1, "gpu7", 29501},
        {TORCHRUN " LOCAL_WORLD_SIZE=8", "torchrun", 3, 8, 1, "@fusebox", 29501},
        {OPEN_MPI " OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=1", "Open MPI", 1, 4, 1, "@fusebox", 0},
        {OPEN_MPI " OMPI_COMM_WORLD_LOCAL_SIZE=2", "Open MPI", 1, 4, 1, "", 0},
        {OPEN_MPI " OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=a MASTER_PORT=5000", "Open MPI", 1, 4, 1, "a",
         5000},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "PMI", 1, 2, 1, "@fusebox", 0},
        {SLURM " SLURM_JOB_NODELIST=n[03-06,9] SLURM_STEP_TASKS_PER_NODE=4(x4)", "Slurm", 5, 16, 2, "n03", 0},
        {SLURM " SLURM_JOB_NODELIST=n7 SLURM_STEP_TASKS_PER_NODE=16", "Slurm", 5, 16, 2, "@fusebox", 0},
        {SLURM " SLURM_JOB_NODELIST=n7 PMI_RANK=5 PMI_SIZE=16", "Slurm", 5, 16, 2, "n7", 0},
        {SLURM " SLURM_JOB_NODELIST=n[03-06,9] SLURM_STEP_NODELIST=n[05-06]", "Slurm", 5, 16, 2, "n05", 0},
        {SLURM " SLURM_JOB_NODELIST=n1 " OPEN_MPI " OMPI_COMM_WORLD_LOCAL_SIZE=4", "Open MPI", 1, 4, 1,
         "@fusebox", 0},
        {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_JOB_NODELIST=n1", NULL, 0, 1, 0, "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Identity identity;
        set_environment(cases[i].environment);
        expect_ok(identity_read(&identity));
        if (cases[i].starter)
            assert_string_equal(identity.starter, cases[i].starter);
        else
            assert_null(identity.starter);
        assert_int_equal(identity.rank, cases[i].rank);
        assert_int_equal(identity.size, cases[i].size);
        assert_int_equal(identity.local_rank, cases[i].local_rank);
        assert_string_equal(identity.host, cases[i].host);
        if (cases[i].port) assert_int_equal(identity.port, cases[i].port);
    }
}

static void test_wrong_starters(void **state) {
    (void)state;
    static const struct {
        const char *environment, *part;
    } cases[] = {
        {"RANK=0", "RANK is set, as by torchrun: WORLD_SIZE is not set"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "LOCAL_RANK is not set"},
        {"RANK=x WORLD_SIZE=2 LOCAL_RANK=0", "RANK=x: a number from 0"},
        {"RANK=-1 WORLD_SIZE=2 LOCAL_RANK=0", "RANK=-1: a number from 0"},
        {"RANK=2 WORLD_SIZE=2 LOCAL_RANK=0", "RANK=2, but WORLD_SIZE=2: ranks are numbered from 0"},
        {"RANK=0 WORLD_SIZE=0 LOCAL_RANK=0", "WORLD_SIZE=0: a number from 1"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=1", "MASTER_ADDR is not set"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", "MASTER_PORT is not set"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=70000",
         "MASTER_PORT=70000: a number from 1"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=65535", "the port above it is needed"},
        {"OMPI_COMM_WORLD_RANK=0", "as by Open MPI: OMPI_COMM_WORLD_SIZE is not set"},
        {"PMIX_RANK=1", "nothing says how many ranks there are"},
        {SLURM, "SLURM_JOB_NODELIST is not set"},
        {SLURM " SLURM_JOB_NODELIST=n[a-b]", "SLURM_JOB_NODELIST: \"n[a-b]\" is not a list of hosts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Identity identity;
        set_environment(cases[i].environment);
        Status status = identity_read(&identity);
        expect_error(status, status_code(status) == ERROR_FORMAT ? ERROR_FORMAT : ERROR_USAGE, cases[i].part);
    }
    char long_host[600] = TORCHRUN " MASTER_ADDR=";
    memset(long_host + strlen(long_host), 'h', HOST_TEXT);
    Identity identity;
    set_environment(long_host);
    expect_error(identity_read(&identity), ERROR_USAGE, "too long for a host's name");
}

/* Tokens differ between runs, but not between ranks. */
static void test_tokens(void **state) {
    (void)state;
    Identity one, same, other;
    set_environment(TORCHRUN " TORCHELASTIC_RUN_ID=a");
    expect_ok(identity_read(&one));
    set_environment(
        "RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=gpu7 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=a");
    expect_ok(identity_read(&same));
    assert_true(one.token == same.token);
    set_environment(TORCHRUN " TORCHELASTIC_RUN_ID=b");
    expect_ok(identity_read(&other));
    assert_true(one.token != other.token);
    set_environment(TORCHRUN " TORCHELASTIC_RUN_ID=a FUSEBOX_TOKEN=c");
    expect_ok(identity_read(&other));
    assert_true(one.token != other.token);
}

static void test_node_lists(void **state) {
    (void)state;
    static const char *const lists[][2] = {
        {"gpu3", "gpu3"},
        {"gpu3,gpu4", "gpu3"},
        {"gpu[3-4]", "gpu3"},
        {"node[01-04,07],other[1-2]", "node01"},
        {"node[7,01]", "node7"},
        {"rack[2,4]-n[08-09]", "rack2-n08"},
        {"a[1-2]b.cluster.example,c", "a1b.cluster.example"},
        {"[1-3]", "1"},
        {"host-with-dash.example.org", "host-with-dash.example.org"},
        {"10.0.0.[17-19]", "10.0.0.17"},
    };
    static const char *const wrong[] = {"",      ",a", "a[",     "a[]",   "a[x]",   "a[1",
                                        "a[1-2", "a]", "a[1;2]", "a[-1]", "a[1[2]]"};
    char host[HOST_TEXT];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        expect_ok(nodelist_first(lists[i][0], host));
        assert_string_equal(host, lists[i][1]);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(nodelist_first(wrong[i], host), ERROR_FORMAT,
                     *wrong[i] && *wrong[i] != ',' ? "is not a list" : "");
    char many[HOST_TEXT + 1];
    memset(many, 'a', HOST_TEXT);
    many[HOST_TEXT] = 0;
    expect_error(nodelist_first(many, host), ERROR_FORMAT, "is not a list of hosts");
}

/* ---- rendezvous ---- */

/* How a start differs from a valid one with `size` ranks. */
typedef struct {
    int size, port;
    int absent;     // this rank does not start; -1: all do
    int wrong;      // the rank with the settings below, if they are set
    int rank, says; // another rank, another size
    const char *facts, *host;
    bool own; // all ranks are on this host and use a Unix socket
    bool other_user;
    uint64_t token;
    double seconds;
    int dies; // this rank ends after the rendezvous; -1: none
    bool politely;
} Start;

static const Start good = {.size = 3, .absent = -1, .wrong = -1, .seconds = 20, .dies = -1};
static const char facts[] = "version=1\nseq=1024\ndata=abc\n";

static Status exchange(Rendezvous *r) {
    int32_t mine[3] = {r->rank, 10 * r->rank, -r->rank}, all[RANKS_MOST][3];
    for (int round = 0; round < 20; round++) {
        mine[2] = round * r->rank;
        TRY(rendezvous_gather(r, mine, sizeof mine, all));
        for (int i = 0; i < r->size; i++)
            EXPECT(all[i][0] == i && all[i][1] == 10 * i && all[i][2] == round * i);
    }
    for (int i = 0; i < r->size; i++) EXPECT(*r->hosts[i]);
    return OK;
}

static Status meet(int rank, void *user) {
    const Start *s = user;
    Identity identity = identity_of(rank, s->size, s->port);
    Rendezvous *r;
    const char *said = facts;
    if (rank == s->absent) return OK;
    if (s->own) snprintf(identity.host, sizeof identity.host, "@fusebox");
    if (rank == s->wrong) {
        if (s->rank) identity.rank = s->rank;
        if (s->says) identity.size = s->says;
        if (s->token) identity.token = s->token;
        if (s->facts) said = s->facts;
        if (s->host) snprintf(identity.host, sizeof identity.host, "%s", s->host);
        if (s->other_user && setuid(65534) != 0) rank_skip(); // we are not root
    }
    TRY(rendezvous_open(&identity, s->seconds, NULL, &r));
    Status status = rendezvous_compare(r, said);
    if (!status) status = exchange(r);
    if (!status && rank == s->dies && s->politely) {
        const struct timespec pause = {.tv_nsec = 200000000}; // the other ranks wait for it
        (void)nanosleep(&pause, NULL);
        rendezvous_close(r, OK);
        return OK;
    }
    if (!status && rank == s->dies) _exit(0);
    if (!status && s->dies >= 0) status = exchange(r);
    rendezvous_close(r, OK);
    return status;
}

static const RankEnd *run_start(Start start) {
    if (!start.port) start.port = free_port();
    return ranks_run(start.size, meet, &start, start.seconds + 20);
}

static void test_rendezvous(void **state) {
    (void)state;
    for (int size = 1; size <= 16; size = size < 4 ? size + 1 : 2 * size) {
        Start start = good;
        start.size = size;
        const RankEnd *ends = run_start(start);
        for (int rank = 0; rank < size; rank++) expect_rank(ends, rank, 0, "");
    }
}

/* While ranks wait for the last one, rank 0 does not read their heartbeats until all have connected. */
static Status meet_late(int rank, void *user) {
    const struct timespec pause = {.tv_sec = HEARTBEAT_SILENCE + 2};
    if (rank == 2) (void)nanosleep(&pause, NULL);
    return meet(rank, user);
}

static void test_late_rank(void **state) {
    (void)state;
    Start start = good;
    start.own = true;
    start.port = free_port();
    start.seconds = 60;
    const RankEnd *ends = ranks_run(start.size, meet_late, &start, start.seconds + 20);
    for (int rank = 0; rank < start.size; rank++) expect_rank(ends, rank, 0, "");
}

static void test_differences(void **state) {
    (void)state;
    static const struct {
        const char *facts, *part;
    } cases[] = {
        {"version=2\nseq=1024\ndata=abc\n", "rank 0 has version=1, and rank 2 on "},
        {"version=1\nseq=512\ndata=abc\n", "has seq=512: all ranks need the same"},
        {"version=1\nseq=1024\ndata=ab\n", "rank 0 has data=abc, and rank 2 on "},
        {"version=1\ndata=abc\n", "has no seq"},
        {"version=1\nseq=1024\ndata=abc\nlr=3\n", "has lr=3, and rank 0 has no lr"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Start start = good;
        start.wrong = 2;
        start.facts = cases[i].facts;
        const RankEnd *ends = run_start(start);
        expect_rank(ends, 0, ERROR_USAGE, cases[i].part);
        expect_rank(ends, 2, ERROR_USAGE, cases[i].part);
    }
}

static void test_wrong_ranks(void **state) {
    (void)state;
    Start start = good;
    start.wrong = 2;
    start.rank = 1; // rank 2 claims to be rank 1
    const RankEnd *ends = run_start(start);
    expect_rank(ends, 0, ERROR_USAGE, "two processes say that they are rank 1: ");

    start = good;
    start.wrong = 1;
    start.says = 4;
    ends = run_start(start);
    expect_rank(ends, 0, ERROR_USAGE, "says that there are 4 ranks, rank 0 on ");
    expect_rank(ends, 1, ERROR_USAGE, "says that there are 4 ranks, rank 0 on ");

    start = good;
    start.wrong = 1;
    start.host = "no..such.host"; // an empty label: an invalid name, which needs no resolver
    start.seconds = 2;
    ends = run_start(start);
    expect_rank(ends, 1, ERROR_USAGE, "there is no host no..such.host");
}

static void test_absent_ranks(void **state) {
    (void)state;
    Start start = good;
    start.seconds = 1;
    start.absent = 2;
    const RankEnd *ends = run_start(start);
    expect_rank(ends, 0, ERROR_DEVICE, "has waited 1 s; missing of 3 ranks: 2;");
    expect_rank(ends, 1, ERROR_DEVICE, "missing of 3 ranks: 2;"); // as rank 0 reports

    start.absent = 0;
    ends = run_start(start);
    expect_rank(ends, 1, ERROR_DEVICE, "has found no rank 0 of this run on 127.0.0.1 for 1 s: port ");
    expect_rank(ends, 1, ERROR_DEVICE, "Connection refused");

    start = good;
    start.seconds = 1;
    start.wrong = 1;
    start.token = 7; // of another run
    ends = run_start(start);
    expect_rank(ends, 0, ERROR_DEVICE, "missing of 3 ranks: 1; refused connections: ");
    expect_rank(ends, 1, ERROR_DEVICE, "the process that listens there belongs to another run");
}

static void test_rank_that_dies(void **state) {
    (void)state;
    Start start = good;
    start.dies = 2;
    const RankEnd *ends = run_start(start);
    expect_rank(ends, 0, ERROR_DEVICE, "rank 2 on ");
    expect_rank(ends, 1, ERROR_DEVICE, "rank 2 on ");
    assert_true(ends[0].seconds < 10);

    start.dies = 0;
    ends = run_start(start);
    expect_rank(ends, 1, ERROR_DEVICE, "rank 0 on ");
    expect_rank(ends, 2, ERROR_DEVICE, "is gone");

    start.politely = true;
    ends = run_start(start);
    for (int rank = 1; rank < start.size; rank++) {
        expect_rank(ends, rank, ERROR_DEVICE, "rank 0 on ");
        expect_rank(ends, rank, ERROR_DEVICE, "has ended");
    }
}

static void test_ports(void **state) {
    (void)state;
    Start start = good;
    int taken[RENDEZVOUS_PORTS];
    start.port = free_port();
    expect_ok(wire_listen("127.0.0.1", start.port, &taken[0])); // another process has this port
    const RankEnd *ends = run_start(start);
    for (int rank = 0; rank < start.size; rank++) expect_rank(ends, rank, 0, "");

    for (int i = 1; i < RENDEZVOUS_PORTS; i++) expect_ok(wire_listen("127.0.0.1", start.port + i, &taken[i]));
    start.seconds = 1;
    ends = run_start(start);
    expect_rank(ends, 0, ERROR_DEVICE, "none of the ports ");
    expect_rank(ends, 0, ERROR_DEVICE, "Address already in use");
    expect_rank(ends, 1, ERROR_DEVICE, "the process that listens there is not a rank of this version");
    for (int i = 0; i < RENDEZVOUS_PORTS; i++) close(taken[i]);
}

/* A connection meant for another run is refused, and the run starts. */
static Status meet_beside_foreigner(int rank, void *user) {
    Start *s = user;
    const struct timespec pause = {.tv_nsec =
                                       300000000}; // the last rank waits until the foreign connections exist
    if (rank == s->size - 1) (void)nanosleep(&pause, NULL);
    if (rank < s->size) return meet(rank, user);
    char text[32768] = "GET / HTTP/1.1\r\n";
    const Hello hello = {.magic = MAGIC, .token = 7, .rank = 1, .size = s->size}; // of another run
    if (rank == s->size + 1) memcpy(text, &hello, sizeof hello);
    for (double until = device_clock() + 10; device_clock() < until;) {
        int connection;
        Status status = wire_connect("127.0.0.1", s->port, until, &connection);
        if (status) {
            status_free(status);
            continue;
        }
        if (rank < s->size + 2) { // another protocol or another run: the connection is closed
            (void)wire_send(connection, text, sizeof text, until);
            while (wire_receive(connection, text, 1, until)) {}
            EXPECT(device_clock() < until);
        } // and the other sends nothing
        return OK;
    }
    return (fail)(ERROR_INTERNAL, "nobody listens");
}

static void test_foreigners(void **state) {
    (void)state;
    Start start = good;
    start.port = free_port();
    const RankEnd *ends = ranks_run(start.size + 3, meet_beside_foreigner, &start, 30);
    for (int rank = 0; rank < good.size + 3; rank++) expect_rank(ends, rank, 0, "");
}

/* A process of another user, even with the run's token, cannot connect to the ranks, nor they to it. */
static void test_other_users(void **state) {
    (void)state;
    Start start = good;
    start.own = true;
    const RankEnd *ends = run_start(start);
    for (int rank = 0; rank < start.size; rank++) expect_rank(ends, rank, 0, "");

    start.other_user = true;
    start.seconds = 1;
    for (start.wrong = 0; start.wrong < 2; start.wrong++) {
        ends = run_start(start);
        expect_rank(ends, 1, ERROR_DEVICE,
                    start.wrong ? "Permission denied" : "no rank 0 of this run on @fusebox");
        expect_rank(ends, 0, ERROR_DEVICE,
                    start.wrong ? "missing of 3 ranks: 1;" : "missing of 3 ranks: 1 2;");
    }
}

/* ---- untrusted lengths ---- */

static const struct {
    size_t part; // the length that rank 1 announces for its part
    const char *said;
} lengths[] = {
    {SIZE_MAX, "announces 18446744073709551615 bytes; at most 1073741824 are allowed"},
    {(size_t)RANK_PART_MOST + 1, "announces 1073741825 bytes; at most 1073741824 are allowed"},
};

typedef struct {
    int port, wrong;
} Lengths;

/* Rank 1 connects to rank 0 as usual. */
static Status say_length(int rank, void *user) {
    const Lengths *own = user;
    const size_t length = lengths[own->wrong].part;
    Identity identity = identity_of(rank, 2, own->port);
    Rendezvous *r;
    TRY(rendezvous_open(&identity, 20, NULL, &r));
    Link *l = (Link *)r;
    RankPart parts[2] = {{0}};
    Status status = OK;
    if (rank == 1)
        EXPECT(wire_send(l->others->connections[EXCHANGE], &length, sizeof length, device_clock() + 10));
    else
        status = rendezvous_collect(r, (RankPart){0}, parts);
    memory_free(parts[1].data);
    rendezvous_close(r, OK);
    return status;
}

static void test_lengths(void **state) {
    (void)state;
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        Lengths own = {free_port(), i};
        const RankEnd *ends = ranks_run(2, say_length, &own, 30);
        expect_rank(ends, 0, ERROR_DEVICE, lengths[i].said);
    }
}

static Status agree(int rank, void *user) {
    Identity identity = identity_of(rank, 3, *(int *)user);
    Rendezvous *r;
    TRY(rendezvous_open(&identity, 20, NULL, &r));
    TRY(rendezvous_agree(r, OK));
    Status status = rendezvous_agree(r, rank == 1 ? (fail)(ERROR_MEMORY, "no room here") : OK);
    rendezvous_close(r, OK);
    return status;
}

static void test_agreement(void **state) {
    (void)state;
    int port = free_port();
    const RankEnd *ends = ranks_run(3, agree, &port, 30);
    expect_rank(ends, 0, ERROR_MEMORY, "rank 1 on ");
    expect_rank(ends, 1, ERROR_MEMORY, "no room here");
    expect_rank(ends, 2, ERROR_MEMORY, "no room here");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starters),       cmocka_unit_test(test_wrong_starters),
        cmocka_unit_test(test_tokens),         cmocka_unit_test(test_node_lists),
        cmocka_unit_test(test_rendezvous),     cmocka_unit_test(test_differences),
        cmocka_unit_test(test_wrong_ranks),    cmocka_unit_test(test_absent_ranks),
        cmocka_unit_test(test_rank_that_dies), cmocka_unit_test(test_ports),
        cmocka_unit_test(test_foreigners),     cmocka_unit_test(test_other_users),
        cmocka_unit_test(test_agreement),      cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_late_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
