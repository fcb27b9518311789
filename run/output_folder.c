#include "run/output_folder.h"

#include "base/directories.h"
#include "base/files.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static Status refuse_links(const char *folder) {
    CLOSED_BY(path_list_free) PathList list = {0};
    TRY(directory_list(folder, &list));
    for (int64_t i = 0; i < list.count; i++) TRY(path_refuse_link(list.paths[i]));
    return OK;
}

/* The folder may come from someone else: nothing is written through links in it. */
static Status check_links(const char *out) {
    PathKind kind;
    OWNED char *options = path_join(out, "options.json"), *cache = path_join(out, "cache");
    TRY(path_refuse_link(options));
    TRY(path_refuse_link(cache));
    TRY(path_kind(cache, &kind));
    return kind == PATH_FOLDER ? refuse_links(cache) : OK;
}

Status output_folder_take(OutputFolder *f) {
    const char *out = f->options->out;
    if (!*out || !f->first) return OK;
    TRY(directory_make(out));
    TRY(directory_lock(out, &f->lock));
    TRY(check_links(out));
    OWNED char *cache = path_join(out, "cache");
    TRY(directory_clean(cache));
    TRY(directory_clean(out));
    return checkpoint_prune(out, 0, 0, 0); // removes files that an interrupted save has left
}

Status output_folder_rehearse(const OutputFolder *f, const Session *session) {
    if (!*f->options->out || !f->first || f->options->compare) return OK;
    return checkpoint_rehearse(f->options->out, &session->config, session->tokenizer);
}

static Status check_same(const TrainingState *before, const TrainingState *now) {
    if (before->seed != now->seed)
        return fail(ERROR_USAGE,
                    "--resume: the run had --seed=%" PRIu64 ", not %" PRIu64 "; --force allows another",
                    before->seed, now->seed);
    if (before->rows && before->rows != now->rows)
        return fail(ERROR_USAGE,
                    "--resume: a step of the run had %" PRId64
                    " rows, and --batch, --accum and the ranks make %" PRId64 "; --force allows another size",
                    before->rows, now->rows);
    if (before->data && before->data != now->data)
        return fail(ERROR_USAGE, "--resume: --data is not what the run was trained on; --force allows it");
    return OK;
}

Status output_folder_expect(const OutputFolder *f, int ranks, uint64_t data, TrainingState *state) {
    const TrainOptions *o = f->options;
    TrainingState now = *state;
    now.seed = (uint64_t)o->seed;
    now.rows = o->batch * o->accum * ranks;
    now.data = data;
    if (!options_given(f->set, "force")) TRY(check_same(state, &now));
    *state = now;
    return OK;
}

void output_folder_close(OutputFolder *f) {
    if (f->lock > 0) close(f->lock);
    f->lock = 0;
}

Status output_folder_write_options(const OutputFolder *f) {
    if (!*f->options->out || !f->first) return OK;
    OWNED char *path = path_join(f->options->out, "options.json"), *json = options_json(f->set, true);
    return file_write(path, json, (int64_t)strlen(json));
}

Status output_folder_exists(const OutputFolder *f, bool *exists) {
    *exists = true;
    return f->lock > 0 ? directory_held(f->options->out, f->lock, exists) : OK;
}

/* If the folder has been removed or moved away, checkpoints go to a new folder of the same name. */
static Status renew(OutputFolder *f) {
    bool exists;
    OWNED char *latest = NULL;
    TRY(output_folder_exists(f, &exists));
    if (exists) return OK;
    output_folder_close(f);
    TRY(output_folder_take(f));
    TRY(checkpoint_latest(f->options->out, &latest));
    f->removed = !latest;
    if (!latest) return output_folder_write_options(f);
    return fail(ERROR_FILE, "--out=%s is now used by another run; nothing more is saved", f->options->out);
}

static Status complete_state(Trainer *t, const TrainOptions *o, TrainingState *s) {
    float state[ADAMW_STATE_SIZE];
    TRY(trainer_read_state(t, state));
    s->updates = (int64_t)state[ADAMW_UPDATES];
    snprintf(s->schedule, sizeof s->schedule, "%s", schedule_name(o->schedule));
    s->steps = o->steps;
    s->warmup = o->warmup;
    s->learning_rate = o->lr;
    s->min_learning_rate = train_options_schedule(o).minimum;
    return OK;
}

Status output_folder_save(OutputFolder *f, Trainer *t, const Tokenizer *tokenizer, TrainingState *s,
                          char **checkpoint) {
    TrainOptions *o = f->options;
    *checkpoint = NULL;
    f->saved = s->step;
    TRY(renew(f));
    TRY(complete_state(t, o, s));
    if (o->force && f->first) TRY(checkpoint_remove_after(o->out, f->begun));
    o->force = false; // only once, because later checkpoints are this run's own
    *checkpoint = checkpoint_step_folder(o->out, s->step);
    TRY(checkpoint_save(&t->ctx, *checkpoint, &t->model.config, &t->model.parameters, tokenizer, s));
    /* Checkpoints from before this run are not removed, unless --keep asks for it. */
    int64_t first = options_given(f->set, "keep") ? 0 : f->begun + 1;
    return f->first ? checkpoint_prune(o->out, first, s->step, o->keep) : OK;
}
