#include "comm/identity.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; text && *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u; // between one text and the next
}

/* What tells one run from another: the named variables, and one that a user may set. */
static uint64_t token_of(const Identity *identity, const char *const *names) {
    uint64_t hash = hash_text(0xcbf29ce484222325u, identity->starter);
    for (; *names; names++) hash = hash_text(hash, variable(*names));
    return hash_text(hash, variable("FUSEBOX_TOKEN"));
}

static Status set_host(Identity *identity, const char *name, const char *text) {
    size_t length = strlen(text);
    if (length >= sizeof identity->host)
        return fail(ERROR_USAGE, "%s=%s: this is too long for a host's name", name, text);
    memcpy(identity->host, text, length + 1);
    return OK;
}

/* MASTER_ADDR and MASTER_PORT where the starter does not set them, but a user may. Without a port one follows
 * from the token. */
static Status read_master(Identity *identity) {
    if (variable("MASTER_ADDR")) TRY(set_host(identity, "MASTER_ADDR", variable("MASTER_ADDR")));
    identity->port = FIRST_PORT + (int)(identity->token % PORTS);
    return variable("MASTER_PORT") ? number("MASTER_PORT", 1, PORT_MOST, &identity->port) : OK;
}

static Status read_rank(Identity *identity, const char *rank, const char *size, const char *local) {
    TRY(number(size, 1, RANKS_MOST, &identity->size));
    TRY(number(rank, 0, RANKS_MOST, &identity->rank));
    if (identity->rank >= identity->size)
        return fail(ERROR_USAGE, "%s=%d, but %s=%d: ranks are numbered from 0", rank, identity->rank, size,
                    identity->size);
    return number(local, 0, RANKS_MOST, &identity->local_rank);
}

/* ---- who started it ---- */

static Status from_fusebox(Identity *identity) {
    static const char *const token[] = {NULL};
    TRY(read_rank(identity, "FUSEBOX_RANK", "FUSEBOX_RANKS", "FUSEBOX_RANK"));
    TRY(number("FUSEBOX_PORT", 1, PORT_MOST, &identity->port));
    if (identity->rank == 0) TRY(number("FUSEBOX_LISTENER", 0, 1 << 20, &identity->listener));
    identity->token = token_of(identity, token);
    return set_host(identity, "", "127.0.0.1");
}

static Status from_torchrun(Identity *identity) {
    static const char *const token[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                        "MASTER_ADDR",         "MASTER_PORT",
                                        "WORLD_SIZE",          NULL};
    TRY(read_rank(identity, "RANK", "WORLD_SIZE", "LOCAL_RANK"));
    identity->token = token_of(identity, token);
    if (!variable("MASTER_ADDR")) return fail(ERROR_USAGE, "MASTER_ADDR is not set");
    if (!variable("MASTER_PORT")) return fail(ERROR_USAGE, "MASTER_PORT is not set");
    TRY(read_master(identity));
    identity->port++; // torchrun itself listens on MASTER_PORT
    return identity->port <= PORT_MOST
               ? OK
               : fail(ERROR_USAGE, "MASTER_PORT=%d: the port above it is needed", PORT_MOST);
}

/* MPI's starters do not say where rank 0 is. Where all ranks are on one host it is here. */
static Status from_mpi(Identity *identity, const char *local_size, const char *const *token) {
    int here = 0;
    identity->token = token_of(identity, token);
    TRY(read_master(identity));
    if (*identity->host) return OK;
    if (variable(local_size)) TRY(number(local_size, 1, RANKS_MOST, &here));
    if (here == identity->size) return set_host(identity, "", "127.0.0.1");
    return fail(ERROR_USAGE, "nothing says on which of several hosts rank 0 is: set MASTER_ADDR to it, as by "
                             "mpirun -x MASTER_ADDR=HOST");
}

static Status from_open_mpi(Identity *identity) {
    static const char *const token[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_SIZE",
                                        NULL};
    TRY(read_rank(identity, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"));
    return from_mpi(identity, "OMPI_COMM_WORLD_LOCAL_SIZE", token);
}

static Status from_pmi(Identity *identity) {
    static const char *const token[] = {"PMI_JOBID", "PMI_SIZE", NULL};
    TRY(read_rank(identity, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"));
    return from_mpi(identity, "MPI_LOCALNRANKS", token);
}

static Status from_slurm(Identity *identity) {
    static const char *const token[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NTASKS",
                                        "SLURM_RESTART_COUNT", NULL};
    const char *name = variable("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    TRY(read_rank(identity, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"));
    identity->token = token_of(identity, token);
    TRY(read_master(identity));
    if (*identity->host) return OK;
    if (!variable(name)) return fail(ERROR_USAGE, "%s is not set", name);
    return fail_at(nodelist_first(variable(name), identity->host), "%s", name);
}

Status identity_read(Identity *identity) {
    static const struct {
        const char *starter, *variable, *with; // `with`: counts only where that is set too
        Status (*read)(Identity *identity);
    } starters[] = {
        {"train --gpus", "FUSEBOX_RANK", NULL, from_fusebox},
        {"torchrun", "RANK", NULL, from_torchrun},
        {"Open MPI", "OMPI_COMM_WORLD_RANK", NULL, from_open_mpi},
        {"PMI", "PMI_RANK", NULL, from_pmi},
        /* A batch script itself is told of all tasks of its job, and is none of them: it is in no step. */
        {"Slurm", "SLURM_PROCID", "SLURM_STEP_ID", from_slurm},
    };
    *identity = (Identity){.size = 1, .listener = -1};
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++) {
        if (!variable(starters[i].variable) || (starters[i].with && !variable(starters[i].with))) continue;
        identity->starter = starters[i].starter;
        return fail_at(starters[i].read(identity), "%s is set, as by %s", starters[i].variable,
                       starters[i].starter);
    }
    if (variable("PMIX_RANK"))
        return fail(
            ERROR_USAGE,
            "PMIX_RANK is set, but nothing says how many ranks there are: start them with mpirun or srun");
    return OK;
}
