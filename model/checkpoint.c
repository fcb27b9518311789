#include "model/checkpoint.h"

#include "base/directories.h"
#include "base/memory.h"
#include "comm/rendezvous.h"
#include "data/end_tokens.h"
#include "data/safetensors.h"
#include "model/checkpoint_internal.h"
#include "model/config_file.h"
#include "model/shards.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char config_name[] = "config.json", weights_name[] = "model.safetensors",
                  index_name[] = "model.safetensors.index.json", state_name[] = "training_state.safetensors";

/* ---- a folder ---- */

static Status write_config(const char *folder, const Config *config, const Tokenizer *tokenizer) {
    OWNED char *path = path_join(folder, config_name);
    return config_write(path, config, tokenizer ? tokenizer_end_of_text(tokenizer) : -1);
}

static Status write_weights(Ctx *ctx, const char *folder, const Parameters *parameters) {
    OWNED char *path = path_join(folder, weights_name);
    return weights_save(ctx, path, parameters);
}

static Status write_state(Ctx *ctx, const char *folder, const Parameters *parameters,
                          const TrainingState *state) {
    OWNED char *path = path_join(folder, state_name);
    return training_state_save(ctx, path, parameters, state);
}

/* The part of ranks other than 0: they write tensors to the files that rank 0 opens. */
static Status write_tensors(Ctx *ctx, const Parameters *parameters, const TrainingState *state) {
    TRY(weights_save(ctx, weights_name, parameters));
    return state ? training_state_save(ctx, state_name, parameters, state) : OK;
}

static Status write_folder(Ctx *ctx, const char *folder, const Config *config, const Parameters *parameters,
                           const Tokenizer *tokenizer, const TrainingState *state) {
    TRY(write_config(folder, config, tokenizer));
    TRY(end_tokens_write(folder, &config->ends));
    TRY(write_weights(ctx, folder, parameters));
    if (tokenizer) TRY(tokenizer_save(tokenizer, folder));
    if (config->architecture->patches) TRY(processor_write(folder, &config->processor));
    return state ? write_state(ctx, folder, parameters, state) : OK;
}

Status checkpoint_save(Ctx *ctx, const char *folder, const Config *config, const Parameters *parameters,
                       const Tokenizer *tokenizer, const TrainingState *state) {
    OWNED char *stage = NULL;
    if (parameters->rank > 0) return write_tensors(ctx, parameters, state);
    TRY(directory_stage(folder, &stage));
    Status status = write_folder(ctx, stage, config, parameters, tokenizer, state);
    if (!status) status = directory_publish(stage, folder);
    if (status) status_free(directory_remove(stage)); // the first error is reported
    return status;
}

/* Reads how pictures are preprocessed. By default they are scaled to the model's size. */
static Status read_processor(const char *folder, Config *c) {
    bool found;
    ImageProcessor *p = &c->processor;
    if (!c->architecture->patches) return OK;
    p->height = p->width = p->scaled_height = p->scaled_width = c->image;
    TRY(processor_read(folder, p, &found));
    p->channels = c->channels;
    if (p->height == c->image && p->width == c->image) return OK;
    return fail(
        ERROR_FORMAT,
        "%s: preprocessor_config.json makes pictures of %lld x %lld pixels, config.json takes %lld x %lld",
        folder, (long long)p->width, (long long)p->height, (long long)c->image, (long long)c->image);
}

Status checkpoint_config(const char *folder, Config *config) {
    OWNED char *path = path_join(folder, config_name);
    TRY(config_read(path, config));
    weights_heads(folder, config);
    TRY(read_processor(folder, config));
    return config->architecture->end_tokens ? end_tokens_read(folder, &config->ends) : OK;
}

Status checkpoint_check(const char *folder, const Config *config) {
    return weights_check(folder, config);
}

Status checkpoint_load(Ctx *ctx, const char *folder, Parameters *parameters) {
    return weights_load(ctx, folder, parameters);
}

Status checkpoint_load_state(Ctx *ctx, const char *folder, Parameters *parameters, TrainingState *state) {
    OWNED char *path = path_join(folder, state_name);
    return training_state_load(ctx, path, parameters, state);
}

/* ---- the step folders of a run ---- */

char *checkpoint_step_folder(const char *out, int64_t step) {
    char name[40];
    snprintf(name, sizeof name, "step-%08" PRId64, step);
    return path_join(out, name);
}

/* The step in ".../step-00000100" followed by `ending`, or -1. */
static int64_t step_of(const char *path, const char *ending) {
    const char *name = path_name(path);
    if (strncmp(name, "step-", 5) != 0) return -1;
    size_t digits = strspn(name + 5, "0123456789");
    if (digits < 8 || digits > 18 || strcmp(name + 5 + digits, ending) != 0) return -1;
    return strtoll(name + 5, NULL, 10);
}

int64_t checkpoint_step(const char *folder) {
    return step_of(folder, "");
}

static Status holds(const char *folder, const char *name, bool *there) {
    OWNED char *path = path_join(folder, name);
    PathKind kind;
    TRY(path_kind(path, &kind));
    *there = kind != PATH_ABSENT;
    return OK;
}

/* Whether a step folder is complete. A folder that cannot be read is an error, because it may be complete. */
static Status complete(const char *folder, bool *whole) {
    TRY(holds(folder, config_name, whole));
    if (!*whole) return OK;
    TRY(holds(folder, weights_name, whole));
    return *whole ? OK : holds(folder, index_name, whole);
}

static int later_first(const void *a, const void *b) {
    int64_t x = checkpoint_step(*(char *const *)a), y = checkpoint_step(*(char *const *)b);
    return (x < y) - (x > y);
}

/* All entries of a run's folder, latest step first, then everything else; empty without a folder. */
static Status list_later_first(const char *out, PathList *list) {
    PathKind kind;
    *list = (PathList){0};
    TRY(path_kind(out, &kind));
    if (kind == PATH_ABSENT) return OK;
    TRY(directory_list(out, list));
    if (list->count) qsort(list->paths, (size_t)list->count, sizeof *list->paths, later_first);
    return OK;
}

Status checkpoint_latest(const char *out, char **folder) {
    PathList list;
    *folder = NULL;
    TRY(list_later_first(out, &list));
    Status status = OK;
    bool whole = false;
    int64_t i = 0;
    for (; !status && !whole && i < list.count && checkpoint_step(list.paths[i]) >= 0; i++)
        status = complete(list.paths[i], &whole);
    if (!status && whole) *folder = memory_text(list.paths[i - 1]);
    path_list_free(&list);
    return status;
}

static Status verify_tokenizer(const char *folder) {
    Tokenizer *tokenizer = NULL;
    bool there;
    TRY(tokenizer_present(folder, &there));
    if (there) TRY(tokenizer_open(folder, &tokenizer));
    tokenizer_free(tokenizer);
    return OK;
}

/* ERROR_FORMAT if a file does not match its digests. */
static Status verify(const char *folder) {
    OWNED char *path = path_join(folder, state_name);
    CLOSED_BY(safetensors_release) Safetensors *weights = NULL;
    CLOSED_BY(safetensors_release) Safetensors *state = NULL;
    Config config;
    bool there;
    TRY(checkpoint_config(folder, &config));
    TRY(checkpoint_check(folder, &config));
    TRY(verify_tokenizer(folder));
    TRY(holds(folder, state_name, &there));
    if (!there) return fail(ERROR_FORMAT, "there is no %s", state_name);
    TRY(safetensors_open_folder(folder, &weights));
    TRY(fail_at(safetensors_verify_all(weights), "%s", weights_name));
    TRY(safetensors_open(path, &state));
    return fail_at(safetensors_verify_all(state), "%s", state_name);
}

static Status try_folder(const char *folder, bool *found, PathList *passed) {
    TRY(complete(folder, found));
    if (!*found) return OK;
    Status status = verify(folder);
    *found = !status;
    if (status_code(status) != ERROR_FORMAT) return status;
    status = fail_at(status, "%s is damaged and passed over", path_name(folder));
    path_list_add(passed, memory_text(status_message(status)));
    status_free(status);
    return OK;
}

Status checkpoint_latest_whole(const char *out, char **folder, PathList *passed) {
    PathList list;
    *folder = NULL;
    TRY(list_later_first(out, &list));
    Status status = OK;
    for (int64_t i = 0; !status && !*folder && i < list.count && checkpoint_step(list.paths[i]) >= 0; i++) {
        bool found = false;
        status = try_folder(list.paths[i], &found, passed);
        if (found) *folder = memory_text(list.paths[i]);
    }
    path_list_free(&list);
    return status;
}

/* Whether a path is a leftover of an interrupted directory_publish. An old folder counts only if the new
 * one has replaced it. */
static Status is_leftover(const char *out, const char *path, bool *leftover) {
    *leftover = step_of(path, ".tmp") >= 0;
    int64_t step = step_of(path, ".old");
    if (step < 0) return OK;
    char *target = checkpoint_step_folder(out, step);
    Status status = complete(target, leftover);
    memory_free(target);
    return status;
}

static Status remove_leftovers(const char *out, const PathList *list) {
    for (int64_t i = 0; i < list->count; i++) {
        bool leftover;
        TRY(is_leftover(out, list->paths[i], &leftover));
        if (leftover) TRY(directory_remove(list->paths[i]));
    }
    return OK;
}

static Status prune(const PathList *list, int64_t first, int64_t last, int64_t keep) {
    for (int64_t i = 0; i < list->count && checkpoint_step(list->paths[i]) >= first; i++) {
        if (checkpoint_step(list->paths[i]) > last) continue;
        bool whole;
        TRY(complete(list->paths[i], &whole));
        if (keep > 0 && whole)
            keep--;
        else
            TRY(directory_discard(list->paths[i]));
    }
    return OK;
}

Status checkpoint_prune(const char *out, int64_t first, int64_t last, int64_t keep) {
    PathList list;
    TRY(list_later_first(out, &list));
    Status status = remove_leftovers(out, &list);
    if (!status && keep > 0) status = prune(&list, first, last, keep);
    path_list_free(&list);
    return status;
}

Status checkpoint_remove_after(const char *out, int64_t step) {
    PathList list;
    Status status = OK;
    TRY(list_later_first(out, &list));
    for (int64_t i = 0; !status && i < list.count && checkpoint_step(list.paths[i]) > step; i++)
        status = directory_discard(list.paths[i]);
    path_list_free(&list);
    return status;
}

/* ---- a file by all ranks ---- */

/* One safetensors file written by all ranks on rank 0's host. Each rank writes whole tensors, about equal
 * numbers of bytes, so that it can compute their digests. */

static Rendezvous *ranks_of(const Parameters *p) {
    return p->shards && p->ranks > 1 ? p->shards->comm->rendezvous : NULL;
}

/* Assigns each entry to the writer whose share of all bytes contains the entry's middle. `writes` (size)
 * marks the ranks that write. */
static void share_out(RankFile *f, const char *writes, int size, const SafetensorsEntry *entries) {
    int writers = 0;
    OWNED int *ranks = memory_array((size_t)size, sizeof *ranks);
    double total = 0, before = 0;
    for (int rank = 0; rank < size; rank++)
        if (writes[rank]) ranks[writers++] = rank;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < f->count; i++) {
            double elements = 1; // avoids a total of zero
            for (int axis = 0; axis < entries[i].rank; axis++) elements *= (double)entries[i].d[axis];
            if (pass) f->owner[i] = ranks[(int)((before + elements / 2) / total * writers)];
            if (pass) before += elements;
            if (!pass) total += elements;
        }
}

/* Collective: announces where rank 0's writer has opened the file. */
static Status tell_place(Rendezvous *r, const SafetensorsWriter *writer, char path[PATH_MAX], int64_t *base) {
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
            *mine.path = 0; // other ranks may have another working directory
    }
    TRY(rendezvous_gather(r, &mine, sizeof mine, all));
    memcpy(path, all[0].path, PATH_MAX);
    *base = all[0].base;
    return OK;
}

/* Ranks that can open the file on rank 0's host write to it. On another host the path might lead to
 * another file, or to a file system that rank 0 cannot flush. */
static Status join(RankFile *f, Rendezvous *r, const SafetensorsEntry *entries) {
    char path[PATH_MAX], can = r->rank == 0;
    OWNED char *all = memory_allocate((size_t)r->size);
    int64_t base = 0;
    TRY(tell_place(r, f->writer, path, &base));
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

/* Rank 0 collects the digests of the other ranks' tensors. */
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
