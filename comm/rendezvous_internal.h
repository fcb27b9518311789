/* The state of a rendezvous, and the messages between its ranks. */
#pragma once

#include "comm/mpi_module.h"
#include "comm/rendezvous.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAGIC                                                                                                \
    { 'f', 'u', 's', 'e', 'b', 'o', 'x', 3 } // the name, and the protocol's version

enum { MAGIC_BYTES = 8, REASON_BYTES = 480, NOTE_BYTES = 96 };

/* A rank has two connections to rank 0: its main thread exchanges bytes on one, in the order of its calls;
 * its watch sends Beats on the other. */
enum { EXCHANGE, WATCH, CONNECTIONS };

/* Why the run must end; code 0: it need not. */
typedef struct {
    int32_t code;
    char reason[REASON_BYTES];
} Verdict;

/* The first message on a connection, in both directions. */
typedef struct {
    char magic[MAGIC_BYTES];
    uint64_t token; // rank 0 answers 0 to another run
    int32_t rank, size, process, connection;
    char host[RANK_HOST];
    Verdict verdict; // rank 0's
} Hello;

typedef enum { BEAT_ALIVE = 1, BEAT_END, BEAT_VERDICT } Kind;

/* A heartbeat. */
typedef struct {
    int32_t kind;
    Verdict verdict;
    int64_t calls;           // collectives so far
    double idle;             // seconds since the last note
    char phase[NOTE_BYTES];  // "step 12"
    char action[NOTE_BYTES]; // "reduce-scatter of 3145728 fp32"; "" before the phase's first
} Heartbeat;

/* Another rank, as this one knows it. */
typedef struct {
    int rank, process;
    int connections[CONNECTIONS]; // or -1
    bool ended;                   // the rank has sent its last word
    bool closed;                  // the watch no longer reads its connection
    double heard;                 // when its last heartbeat came
    Heartbeat last;
} Other;

typedef struct {
    Rendezvous base;
    int count; // number of others: on rank 0 all other ranks, elsewhere only rank 0
    Other *others;
    bool reported;        // rank 0 has sent the verdict
    const MpiModule *mpi; // set if MPI has started the ranks

    pthread_t thread; // the watch
    bool threaded;
    atomic_bool ending;
    pthread_mutex_t lock; // guards the members below, and `ended`
    pthread_cond_t news;
    Status verdict; // why the run must end
    HeartbeatSetup watch;
    Heartbeat now;                   // this rank's current action
    double noted;                    // when that action was set
    double began;                    // when this phase began
    double recent[HEARTBEAT_RECENT]; // seconds of the last steps, a ring
    int64_t steps;
    bool step_runs;
} Link;

Verdict verdict_of(Status status);
/* ERROR_DEVICE if another rank sent an invalid code. */
CHECKED Status verdict_status(Verdict verdict);

void other_close(Other *other);

/* Makes the connections: rank 0 waits for all ranks, the others look for rank 0. */
CHECKED Status rendezvous_host(Link *link, const Identity *identity, const Hello *mine, double seconds);
CHECKED Status rendezvous_join(Link *link, const Identity *identity, const Hello *mine, double seconds);

/* Starts the watch thread; ends it after a last word to the others. */
CHECKED Status heartbeat_open(Link *link);
void heartbeat_close(Link *link, Status why);

/* One iteration of the thread: reads the others' heartbeats and checks deadlines. */
void heartbeat_check(Link *link);

/* Sends a last word, and waits up to two seconds until the others have read it. */
void heartbeat_leave(Link *link, Status why);
