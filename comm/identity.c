#include "comm/identity.h"

#include "base/hash.h"

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

/* The variables that a launcher sets. */
typedef struct {
    const char *name, *rank;
    const char *with; // a variable that is also set if this launcher has started the process
    const char *size, *local;
    const char *here;                  // the number of ranks on this host
    const char *run, *part, *restarts; // variables that differ between runs, but not between a run's ranks
} Launcher;

enum { TORCHRUN, OPEN_MPI, PMI, SLURM, LAUNCHERS };

static const Launcher launchers[LAUNCHERS] = {
    {"torchrun", "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
     "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, NULL},
    /* Slurm sets PMI_RANK too, but not PMI's local rank. */
    {"PMI", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL,
     NULL},
    /* A batch script has SLURM_PROCID too, but belongs to no step. */
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
     "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
};

/* ---- token and port ---- */

static uint64_t hash_of(const char *const *names, size_t count) {
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) {
        const char *text = names[i] ? variable(names[i]) : NULL;
        hash = hash_bytes(hash, text ? text : "", text ? strlen(text) + 1 : 1); // a zero byte ends each text
    }
    return hash;
}

static void set_token(Identity *identity, uint64_t token) {
    identity->token = token;
    if (!identity->port) identity->port = FIRST_PORT + (int)(token % PORTS);
}

Status identity_draw_token(Identity *identity) {
    uint64_t token;
    if (getrandom(&token, sizeof token, 0) != sizeof token)
        return fail(ERROR_DEVICE, "no random numbers for the run's token: %s", strerror(errno));
    set_token(identity, token);
    return OK;
}

/* ---- a launcher's rank ---- */

static Status read_rank(const Launcher *l, Identity *identity) {
    TRY(number(l->size, 1, RANKS_MOST, &identity->size));
    TRY(number(l->rank, 0, RANKS_MOST, &identity->rank));
    if (identity->rank >= identity->size)
        return fail(ERROR_USAGE, "%s=%d, but %s=%d: ranks are numbered from 0", l->rank, identity->rank,
                    l->size, identity->size);
    return number(l->local, 0, RANKS_MOST, &identity->local_rank);
}

static Status read_host(const Launcher *l, Identity *identity) {
    const char *here = variable(l->here), *master = variable("MASTER_ADDR"),
               *list = variable("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    if (l == &launchers[TORCHRUN] && !master) return fail(ERROR_USAGE, "MASTER_ADDR is not set");
    if (here && strcmp(here, variable(l->size)) == 0) master = HOST_LOCAL;
    if (master && strlen(master) >= sizeof identity->host)
        return fail(ERROR_USAGE, "MASTER_ADDR=%s: this is too long for a host's name", master);
    if (master) snprintf(identity->host, sizeof identity->host, "%s", master);
    if (master || l != &launchers[SLURM]) return OK;
    if (!variable(list)) return fail(ERROR_USAGE, "%s is not set", list);
    return fail_at(nodelist_first(variable(list), identity->host), "%s", list);
}

static Status read_port(const Launcher *l, Identity *identity) {
    const bool next = l == &launchers[TORCHRUN];
    if (next || variable("MASTER_PORT")) TRY(number("MASTER_PORT", 1, PORT_MOST, &identity->port));
    identity->port += next;
    if (identity->port <= PORT_MOST) return OK;
    return fail(ERROR_USAGE, "MASTER_PORT=%d: the port above it is needed", PORT_MOST);
}

static Status read_launcher(const Launcher *l, Identity *identity) {
    const char *const names[] = {l->run, l->part, l->restarts, "FUSEBOX_TOKEN"};
    identity->starter = l->name;
    identity->mpi = l == &launchers[OPEN_MPI] || l == &launchers[PMI];
    TRY(read_rank(l, identity));
    TRY(read_host(l, identity));
    TRY(read_port(l, identity));
    if (!identity->mpi) set_token(identity, hash_of(names, sizeof names / sizeof *names));
    return OK;
}

Status identity_read(Identity *identity) {
    *identity = (Identity){.size = 1};
    for (const Launcher *l = launchers; l < launchers + LAUNCHERS; l++)
        if (variable(l->rank) && variable(l->with))
            return fail_at(read_launcher(l, identity), "%s is set, as by %s", l->rank, l->name);
    if (variable("PMIX_RANK"))
        return fail(
            ERROR_USAGE,
            "PMIX_RANK is set, but nothing says how many ranks there are: start them with mpirun or srun");
    return OK;
}
