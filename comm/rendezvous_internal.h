/* What a rank keeps of the others, and what they say to each other. */
#pragma once

#include "comm/mpi_module.h"
#include "comm/rendezvous.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAGIC                                                                                                \
    { 'f', 'u', 's', 'e', 'b', 'o', 'x', 2 } // and the protocol's version

enum { MAGIC_BYTES = 8, BODY_BYTES = 8192, REASON_BYTES = 480, NOTE_BYTES = 96 };

/* Bytes that a rank may say before the main thread takes them: its part, and what is exchanged beside it. */
#define UNTAKEN_MOST ((int64_t)RANK_PART_MOST + (1 << 24))

typedef enum {
    SAYS_HELLO, // to rank 0: a Hello
    SAYS_WELCOME,
    SAYS_DATA,    // what is exchanged
    SAYS_ALIVE,   // a Beat, as all that follow
    SAYS_END,     // it ends; because of an error where there is a code
    SAYS_VERDICT, // rank 0's: the run is given up
} Kind;

/* What goes over a connection: this, and `bytes` bytes, up to BODY_BYTES. */
typedef struct {
    char magic[MAGIC_BYTES];
    uint64_t token;
    int32_t kind, bytes;
} Head;

typedef struct {
    int32_t rank, size, process;
    char host[RANK_HOST];
    char facts[FACTS_BYTES]; // zero-terminated
} Hello;

/* Why a rank or the run ends; a code of 0: for no error. */
typedef struct {
    int32_t code;
    char reason[REASON_BYTES];
} Verdict;

/* What a rank does. */
typedef struct {
    int64_t calls;           // collectives asked for so far
    double idle;             // seconds since the last note
    char phase[NOTE_BYTES];  // "step 12"
    char action[NOTE_BYTES]; // "reduce-scatter of 3145728 fp32"; "" while there is none in this phase
    Verdict why;
} Beat;

/* The other end of a connection. */
typedef struct {
    int rank, connection, process;
    bool ended, closed; // it has said that it ends; nothing more comes
    bool other_run;     // and that, because it belongs to another
    double heard;
    size_t have; // bytes of what is coming
    Head head;
    char body[BODY_BYTES];
    char *data; // what has come to be exchanged, until the main thread takes it
    int64_t count, room;
    Beat last;
    pthread_mutex_t sending;
} Channel;

typedef struct {
    Rendezvous base;
    Head head; // of what this rank says
    int count; // on rank 0 all others, elsewhere rank 0
    Channel *others;
    bool told;            // of the verdict, by rank 0
    const MpiModule *mpi; // where ranks have met by it

    pthread_t thread; // the watch's, which alone hears the others once they have met
    bool threaded;
    atomic_bool ending;
    pthread_mutex_t lock; // of what follows and the channels' data
    pthread_cond_t news;
    Status verdict; // why the run is given up
    PulseSetup watch;
    Beat now;                                  // what this rank does,
    double noted, began, recent[PULSE_RECENT]; // and when; since when this part of the run; of the last steps
    int64_t steps;
    bool step_runs;
} Link;

/* Whether a message has come in whole; and waits for one. What is not of this run closes the channel. */
bool channel_hear(Channel *channel, const Head *own);
bool channel_wait(Channel *channel, const Head *own, double until);
/* False when it cannot be said by then: that is the connection's end. A rank says that it lives only where
 * nothing else is being said. */
bool channel_say(Channel *channel, const Head *own, Kind kind, const void *data, size_t bytes, double until);
void channel_close(Channel *channel);
/* The Beat that has come in, with texts that end. */
const Beat *channel_beat(Channel *channel);

Verdict verdict_of(Status status);
/* What another rank has told, as an error: ERROR_DEVICE where its code is none. */
CHECKED Status verdict_status(Verdict verdict);

/* Rank 0's part of the meeting: until all have said who they are. */
CHECKED Status meeting_host(Link *link, const Identity *identity, const Hello *mine, double seconds);

/* One turn of the watch's thread: hears what the others have said, and looks at the clock. */
void pulse_look(Link *link);

/* Starts the thread; ends it, and tells the others why. */
CHECKED Status pulse_open(Link *link);
void pulse_close(Link *link, Status why);
