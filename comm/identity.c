#include "comm/identity.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { RANKS_MOST = 1 << 20, FIRST_PORT = 20000, PORTS = 12000, PORT_MOST = 65535 };

/* ---- Slurm's list of hosts ---- */

Status nodelist_first(const char *list, char host[HOST_TEXT]) {
    size_t length = 0;
    const char *p = list;
    while (*p && *p != ',') {
        size_t part = strcspn(p, "[,"), skip = part;
        const char *from = p;
        if (part == 0 && *p == '[') {
            from = p + 1;
            part = strspn(from, "0123456789");
            const char *end = strchr(from, ']');
            if (part == 0 || !end || !strchr("-,]", from[part]) ||
                strspn(from, "0123456789-,") != (size_t)(end - from))
                return fail(ERROR_FORMAT, "\"%s\" is not a list of hosts: what is wrong begins at \"%s\"",
                            list, p);
            skip = (size_t)(end + 1 - p);
        }
        if (memchr(from, ']', part) || length + part >= HOST_TEXT)
            return fail(ERROR_FORMAT, "\"%s\" is not a list of hosts", list);
        memcpy(host + length, from, part);
        length += part;
        p += skip;
    }
    host[length] = 0;
    return length ? OK : fail(ERROR_FORMAT, "\"%s\" names no host", list);
}

/* ---- the environment ---- */

static const char *variable(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static Status number(const char *name, long least, long most, int *value) {
    const char *text = variable(name);
    char *end;
    if (!text) return fail(ERROR_USAGE, "%s is not set", name);
    long parsed = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || parsed < least || parsed > most)
        return fail(ERROR_USAGE, "%s=%s: a number from %ld to %ld is expected", name, text, least, most);
    *value = (int)parsed;
    return OK;
}

/* ---- what tells one run from another ---- */

Status identity_random(uint64_t *token) {
    if (getrandom(token, sizeof *token, 0) == sizeof *token) return OK;
    return fail(ERROR_DEVICE, "no random numbers for the run's token: %s", strerror(errno));
}

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; text && *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u; // between one text and the next
}

/* ---- who started it ---- */

typedef struct {
    const char *name, *rank;
    const char *with; // it has started this process only where that is set, too
    const char *size, *local;
    const char *here;               // how many ranks are on this host
    const char *run, *part, *again; // what tells one run from another
} Starter;

enum { TORCHRUN, OPEN_MPI, PMI, SLURM, STARTERS };

static const Starter starters[STARTERS] = {
    {"torchrun", "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
     "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, NULL},
    /* Slurm says PMI_RANK, too, but not the local one. */
    {"PMI", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL,
     NULL},
    /* A batch script itself is told of all tasks of its job, and is none of them: it is in no step. */
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
     "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
};

static Status read_rank(const Starter *s, Identity *identity) {
    TRY(number(s->size, 1, RANKS_MOST, &identity->size));
    TRY(number(s->rank, 0, RANKS_MOST, &identity->rank));
    if (identity->rank >= identity->size)
        return fail(ERROR_USAGE, "%s=%d, but %s=%d: ranks are numbered from 0", s->rank, identity->rank,
                    s->size, identity->size);
    return number(s->local, 0, RANKS_MOST, &identity->local_rank);
}

/* What differs from run to run, but not from rank to rank; and what the user may say. */
static uint64_t token_of(const Starter *s) {
    const char *const names[] = {s->run, s->part, s->again, "FUSEBOX_TOKEN"};
    uint64_t hash = hash_text(0xcbf29ce484222325u, s->name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        hash = hash_text(hash, names[i] ? variable(names[i]) : NULL);
    return hash;
}

static Status read_host(const Starter *s, bool here, Identity *identity) {
    const char *list = variable("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST",
               *loopback = identity->mpi ? "127.0.0.1" : "@fusebox",
               *master = here ? loopback : variable("MASTER_ADDR");
    if (s == &starters[TORCHRUN] && !variable("MASTER_ADDR"))
        return fail(ERROR_USAGE, "MASTER_ADDR is not set");
    if (master && strlen(master) >= sizeof identity->host)
        return fail(ERROR_USAGE, "MASTER_ADDR=%s: this is too long for a host's name", master);
    if (master) snprintf(identity->host, sizeof identity->host, "%s", master);
    if (master || s != &starters[SLURM]) return OK;
    if (!variable(list)) return fail(ERROR_USAGE, "%s is not set", list);
    return fail_at(nodelist_first(variable(list), identity->host), "%s", list);
}

/* Without MASTER_PORT a port follows from the token, or is any that is free. */
static Status read_port(const Starter *s, Identity *identity) {
    const bool torchrun = s == &starters[TORCHRUN];
    identity->port = identity->mpi ? 0 : FIRST_PORT + (int)(identity->token % PORTS);
    if (torchrun || variable("MASTER_PORT")) TRY(number("MASTER_PORT", 1, PORT_MOST, &identity->port));
    identity->port += torchrun; // torchrun itself listens on MASTER_PORT
    return identity->port <= PORT_MOST
               ? OK
               : fail(ERROR_USAGE, "MASTER_PORT=%d: the port above it is needed", PORT_MOST);
}

static Status read_starter(const Starter *s, Identity *identity) {
    TRY(read_rank(s, identity));
    const bool here = variable(s->here) && strcmp(variable(s->here), variable(s->size)) == 0;
    identity->starter = s->name;
    identity->mpi = s == &starters[OPEN_MPI] || s == &starters[PMI];
    identity->token = token_of(s);
    TRY(read_host(s, here, identity));
    return read_port(s, identity);
}

Status identity_read(Identity *identity) {
    *identity = (Identity){.size = 1, .listener = -1};
    for (const Starter *s = starters; s < starters + STARTERS; s++)
        if (variable(s->rank) && variable(s->with))
            return fail_at(read_starter(s, identity), "%s is set, as by %s", s->rank, s->name);
    if (variable("PMIX_RANK"))
        return fail(
            ERROR_USAGE,
            "PMIX_RANK is set, but nothing says how many ranks there are: start them with mpirun or srun");
    return OK;
}
