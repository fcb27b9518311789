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

/* If the config has no end token, the tokenizer's is written: a resumed run reads it from config.json, and
 * its checkpoints must equal those of an uninterrupted run. */
static Status write_end_tokens(const char *folder, const Config *config, const Tokenizer *tokenizer) {
    EndTokens ends = config->ends;
    const int32_t end = tokenizer ? tokenizer_end_of_text(tokenizer) : -1;
    if (config->architecture->end_tokens && !ends.count && end >= 0) ends = (EndTokens){{end}, 1};
    return end_tokens_write(folder, &ends, config->kept ? config->kept->generation : NULL);
}

/* Writes everything but the tensors. */
static Status write_description(const char *folder, const Config *config, const Tokenizer *tokenizer) {
    TRY(write_config(folder, config, tokenizer));
    TRY(write_end_tokens(folder, config, tokenizer));
    if (tokenizer) TRY(tokenizer_save(tokenizer, folder));
    return config->architecture->patches ? processor_write(folder, &config->processor) : OK;
}

static Status write_folder(Ctx *ctx, const char *folder, const Config *config, const Parameters *parameters,
                           const Tokenizer *tokenizer, const TrainingState *state) {
    TRY(write_description(folder, config, tokenizer));
    TRY(write_weights(ctx, folder, parameters));
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

Status checkpoint_check(const char *folder, const Config *config, Dtype *packed) {
    return weights_check(folder, config, packed);
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

static Status holds(const char *folder, const char *name, bool *exists) {
    OWNED char *path = path_join(folder, name);
    PathKind kind;
    TRY(path_kind(path, &kind));
    *exists = kind != PATH_ABSENT;
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
    CLOSED_BY(path_list_free) PathList list = {0};
    bool whole = false;
    *folder = NULL;
    TRY(list_later_first(out, &list));
    for (int64_t i = 0; !whole && i < list.count && checkpoint_step(list.paths[i]) >= 0; i++) {
        TRY(complete(list.paths[i], &whole));
        if (whole) *folder = memory_text(list.paths[i]);
    }
    return OK;
}

static Status verify_tokenizer(const char *folder) {
    CLOSED_BY(tokenizer_release) Tokenizer *tokenizer = NULL;
    bool exists;
    TRY(tokenizer_present(folder, &exists));
    return exists ? tokenizer_open(folder, &tokenizer) : OK;
}

static Status rehearse(const char *stage, const Config *config, const Tokenizer *tokenizer) {
    Config again;
    TRY(write_description(stage, config, tokenizer));
    TRY(checkpoint_config(stage, &again));
    return verify_tokenizer(stage);
}

Status checkpoint_rehearse(const char *out, const Config *config, const Tokenizer *tokenizer) {
    OWNED char *folder = checkpoint_step_folder(out, 0);
    OWNED char *stage = NULL;
    TRY(directory_stage(folder, &stage));
    Status status = rehearse(stage, config, tokenizer);
    Status removed = directory_remove(stage);
    if (!status) return removed;
    status_free(removed);
    return fail_at(status, "this run could not be saved");
}

/* ERROR_FORMAT if the folder's files exist but differ from what was saved. */
static Status verify(const char *folder) {
    OWNED char *path = path_join(folder, state_name);
    CLOSED_BY(safetensors_release) Safetensors *weights = NULL;
    CLOSED_BY(safetensors_release) Safetensors *state = NULL;
    Config config;
    Dtype packed;
    bool exists;
    TRY(checkpoint_config(folder, &config));
    TRY(checkpoint_check(folder, &config, &packed));
    TRY(verify_tokenizer(folder));
    TRY(holds(folder, state_name, &exists));
    if (!exists) return fail(ERROR_FORMAT, "there is no %s", state_name);
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
    status = fail_at(status, "%s is damaged and skipped", path_name(folder));
    path_list_add(passed, memory_text(status_message(status)));
    status_free(status);
    return OK;
}

Status checkpoint_latest_intact(const char *out, char **folder, PathList *passed) {
    CLOSED_BY(path_list_free) PathList list = {0};
    *folder = NULL;
    TRY(list_later_first(out, &list));
    for (int64_t i = 0; !*folder && i < list.count && checkpoint_step(list.paths[i]) >= 0; i++) {
        bool found = false;
        TRY(try_folder(list.paths[i], &found, passed));
        if (found) *folder = memory_text(list.paths[i]);
    }
    return OK;
}

/* Whether a path is a leftover of an interrupted directory_publish. An old folder counts only if the new
 * one has replaced it. */
static Status is_leftover(const char *out, const char *path, bool *leftover) {
    *leftover = step_of(path, ".tmp") >= 0;
    int64_t step = step_of(path, ".old");
    if (step < 0) return OK;
    OWNED char *target = checkpoint_step_folder(out, step);
    return complete(target, leftover);
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
    CLOSED_BY(path_list_free) PathList list = {0};
    TRY(list_later_first(out, &list));
    TRY(remove_leftovers(out, &list));
    return keep > 0 ? prune(&list, first, last, keep) : OK;
}

Status checkpoint_remove_after(const char *out, int64_t step) {
    CLOSED_BY(path_list_free) PathList list = {0};
    TRY(list_later_first(out, &list));
    for (int64_t i = 0; i < list.count && checkpoint_step(list.paths[i]) > step; i++)
        TRY(directory_discard(list.paths[i]));
    return OK;
}
