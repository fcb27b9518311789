/* One safetensors file, written by all ranks on rank 0's host. */
#include "base/memory.h"
#include "comm/rendezvous.h"
#include "model/checkpoint_internal.h"
#include "model/shards.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Each rank writes whole tensors, so that it knows their digests, and about as many bytes as every other
 * rank. */

static Rendezvous *ranks_of(const Parameters *p) {
    return p->shards && p->ranks > 1 ? p->shards->comm->rendezvous : NULL;
}

/* Divides all bytes equally among the writers; entry i goes to the writer whose part contains its middle.
 * `writes` (size): whether each rank writes. */
static void share_out(RankFile *f, const char *writes, int size, const SafetensorsEntry *entries) {
    int writers = 0;
    OWNED int *ranks = memory_array((size_t)size, sizeof *ranks);
    double total = 0, before = 0;
    for (int rank = 0; rank < size; rank++)
        if (writes[rank]) ranks[writers++] = rank;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < f->count; i++) {
            double elements = 1;
            for (int axis = 0; axis < entries[i].rank; axis++) elements *= (double)entries[i].d[axis];
            if (pass) f->owner[i] = ranks[(int)((before + elements / 2) / total * writers)];
            if (pass) before += elements;
            if (!pass) total += elements;
        }
}

/* Collective: the path under which rank 0's writer has opened the file. */
static Status share_path(Rendezvous *r, const SafetensorsWriter *writer, char path[PATH_MAX], int64_t *base) {
    typedef struct {
        char path[PATH_MAX];
        int64_t base;
    } Place;
    Place mine = {0};
    OWNED Place *all = memory_array((size_t)r->size, sizeof *all);
    if (writer) {
        const SafetensorsShare share = safetensors_writer_share(writer);
        mine.base = share.base;
        if (share.path && !realpath(share.path, mine.path))
            *mine.path = 0; // unresolved: other ranks cannot open it
    }
    TRY(rendezvous_gather(r, &mine, sizeof mine, all));
    memcpy(path, all[0].path, PATH_MAX);
    *base = all[0].base;
    return OK;
}

/* Ranks on rank 0's host that can open the file write. On another host the path might name a different file,
 * or one on a file system that rank 0 cannot flush. */
static Status join(RankFile *f, Rendezvous *r, const SafetensorsEntry *entries) {
    char path[PATH_MAX], can = r->rank == 0;
    OWNED char *all = memory_allocate((size_t)r->size);
    int64_t base = 0;
    TRY(share_path(r, f->writer, path, &base));
    if (!can && *path && strcmp(r->hosts[r->rank], r->hosts[0]) == 0) {
        Status joined =
            safetensors_writer_join((SafetensorsShare){path, base}, entries, f->count, &f->writer);
        can = joined == OK;
        status_free(joined);
    }
    TRY(rendezvous_gather(r, &can, 1, all));
    share_out(f, all, r->size, entries);
    return OK;
}

Status rank_file_open(const Parameters *p, const char *path, const SafetensorsEntry *entries, int64_t count,
                      const SafetensorsNote *notes, int64_t note_count, RankFile *file) {
    Rendezvous *r = ranks_of(p);
    *file = (RankFile){.ranks = r, .rank = p->rank, .count = count};
    file->owner = memory_array((size_t)count + 1, sizeof *file->owner);
    Status status = OK;
    if (p->rank == 0)
        status = safetensors_writer_open(path, entries, count, notes, note_count, &file->writer);
    if (r) status = rendezvous_agree(r, status);
    if (!status && r) status = join(file, r, entries);
    if (!status) return OK;
    safetensors_writer_abandon(file->writer);
    memory_free(file->owner);
    return status;
}

bool rank_file_mine(RankFile *f, int64_t entry) {
    if (f->owner[entry] != f->rank) return false;
    safetensors_writer_go(f->writer, entry);
    return true;
}

/* Rank 0 receives the digests of the entries that the other ranks have written. */
static Status take_digests(const RankFile *f) {
    OWNED uint64_t *own = memory_array((size_t)f->count + 1, sizeof *own);
    OWNED uint64_t *all = memory_array((size_t)(f->count + 1) * (size_t)f->ranks->size, sizeof *all);
    for (int64_t i = 0; i < f->count; i++)
        if (f->owner[i] == f->rank) (void)safetensors_writer_wrote(f->writer, i, &own[i]);
    TRY(rendezvous_gather(f->ranks, own, (size_t)f->count * sizeof *own, all));
    for (int64_t i = 0; i < f->count && f->rank == 0; i++)
        if (f->owner[i] > 0) safetensors_writer_accept(f->writer, i, all[f->owner[i] * f->count + i]);
    return OK;
}

Status rank_file_close(RankFile *f, Status status) {
    if (f->ranks) status = rendezvous_agree(f->ranks, status);
    if (f->ranks && !status) status = take_digests(f);
    memory_free(f->owner);
    if (!status && f->rank == 0) return safetensors_writer_close(f->writer);
    safetensors_writer_abandon(f->writer);
    return status;
}
