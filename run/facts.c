#include "run/facts.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static const char *next_line(const char *line) {
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* A line of `mine` that `theirs` lacks, or has with another value. */
static Status facts_lacking(const char *mine, const char *theirs, const char *me, const char *them) {
    for (const char *line = mine; *line; line = next_line(line)) {
        const int key = (int)strcspn(line, "=\n"), length = (int)strcspn(line, "\n");
        const char *other = theirs;
        while (*other && strncmp(other, line, (size_t)key + 1) != 0) other = next_line(other);
        const int other_length = (int)strcspn(other, "\n");
        if (!*other)
            return fail(ERROR_USAGE, "%s has %.*s, and %s has no %.*s", me, length, line, them, key, line);
        if (length != other_length || strncmp(line, other, (size_t)length) != 0)
            return fail(ERROR_USAGE, "%s has %.*s, and %s has %.*s: all ranks need the same", me, length,
                        line, them, other_length, other);
    }
    return OK;
}

Status facts_compare(Rendezvous *r, const char *facts) {
    OWNED RankPart *parts = memory_array((size_t)r->size, sizeof *parts);
    const RankPart mine = {.data = (void *)(uintptr_t)facts, .bytes = strlen(facts)};
    Status status = rendezvous_collect(r, mine, parts);
    for (int rank = 1; rank < r->size; rank++) {
        char who[RANK_HOST + 32];
        snprintf(who, sizeof who, "rank %d on %s", rank, r->hosts[rank]);
        if (!status && r->rank == 0) status = facts_lacking(facts, parts[rank].data, "rank 0", who);
        if (!status && r->rank == 0) status = facts_lacking(parts[rank].data, facts, who, "rank 0");
        memory_free(parts[rank].data);
    }
    return rendezvous_agree(r, status);
}
