/* What rank 0 and the others say to each other while they meet. */
#pragma once

#include "comm/rendezvous.h"

enum { MAGIC_BYTES = 8, REASON_BYTES = 480 }; // "fusebox" and the version of what follows

enum { CHANNEL_TALK, CHANNEL_PULSE, CHANNELS };

/* What a rank says first. */
typedef struct {
    char magic[MAGIC_BYTES];
    uint64_t token;
    int32_t rank, size, channel, process;
    char host[RANK_HOST];
    char facts[FACTS_BYTES]; // zero-terminated
} Hello;

/* What rank 0 answers: to a hello, to all when everybody has come, and before what a gathering brings. */
enum { ANSWER_WELCOME = 0, ANSWER_OTHER_RUN = -1 }; // else an ErrorCode
typedef struct {
    char magic[MAGIC_BYTES];
    uint64_t token;
    int32_t code;
    char reason[REASON_BYTES];
} Answer;

Answer answer_of(uint64_t token, Status status);

/* The first difference between two ranks' facts, as an ERROR_USAGE. `who` is the rank that sent `theirs`. */
CHECKED Status facts_compare(const char *mine, const char *theirs, const char *who);

/* Rank 0's part: takes connections until each rank has both. The other ranks' part. */
CHECKED Status rendezvous_host(Rendezvous *r, const Identity *identity, const Hello *mine, double until);
CHECKED Status rendezvous_join(Rendezvous *r, const Identity *identity, const Hello *mine, double until,
                               bool *told);
