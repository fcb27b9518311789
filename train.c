/* train: trains a Transformer; a step is in run/trainer.c. */
#define _GNU_SOURCE
#include "base/cores.h"
#include "base/memory.h"
#include "kernels/guard.h"
#include "run/compare_run.h"
#include "run/fit.h"
#include "run/output_folder.h"
#include "run/profiling.h"
#include "run/profiling_sweep.h"
#include "run/report.h"
#include "run/signals.h"
#include "tasks/text/train.h"
#include "tasks/task.h"

#include <inttypes.h>
#include <errno.h>
#include <string.h>

enum { SKIPS_ALLOWED = 5 }; // consecutive skipped updates before the run is aborted

typedef struct {
    TrainOptions options;
    OptionSet set;
    World world; // the ranks of the run
    OutputFolder output;
    Session session;
    const TaskRow *task;
    Feed feed;
    Batches batches;
    Trainer trainer;
    size_t bytes[COMPARE_PATHS]; // memory of each compared path
    Report report;
    Profiling *profiling;
    const char *suffix; // suffix of the profile's files in a sweep
    FILE *hash_trace;
    char *resume;         // the checkpoint to resume from, or NULL
    TrainingState state;  // its position
    bool whole;           // weights and state are those after state.step, not in the middle of a step
    double learning_rate; // learning rate of the current step
    StepResult result;    // result of the current step
    int64_t sample_every; // steps; 0: never
    int skips;            // consecutive skipped updates
    bool stop;            // stop after a signal; all ranks know of the signal
} Run;

/* ---- setting up ---- */

static Status open_session(Run *run) {
    TrainOptions *o = &run->options;
    if (*run->world.device) o->compute.device = run->world.device;
    if (run->resume) o->sizes.new_head = false; // the checkpoint has the new head
    profiling_prepare(&o->profiling);
    const char *tokenizer = run->resume && !options_given(&run->set, "tokenizer") ? "" : o->tokenizer;
    TRY(session_open(&run->session, run->resume ? run->resume : o->model, &o->sizes, tokenizer, &o->compute));
    if (run->session.folder) TRY(checkpoint_expect(run->session.folder, run->session.stored, F32));
    TRY(profiling_options_device(&o->profiling, run->session.device));
    if (run->resume && options_given(&run->set, "model"))
        TRY(session_expect(&run->session, o->model, &o->sizes));
    TRY(task_find(&run->session.config, o, &run->set, &run->task));
    run->feed.batches = &run->task->batches;
    if (run->task->begin) TRY(run->task->begin(o, &run->set, &run->session, &run->feed));
    return train_options_settle(o, &run->session.config);
}

static Status open_trainer(Run *run) {
    TrainOptions *o = &run->options;
    Trainer *t = &run->trainer;
    TRY(trainer_open(t, &run->session, run->world.comm));
    t->ctx.check = o->check;
    t->serial = *o->hash_trace;
    if (o->recompute != RECOMPUTE_AUTO) t->model.recompute = o->recompute;
    t->model.parameters.narrow_moments = o->moments == MOMENTS_BF16;
    t->batch = o->batch;
    t->seq = o->seq;
    t->accum = o->accum;
    t->smoothing = o->label_smoothing;
    t->dropout = o->dropout;
    t->depth = o->stochastic_depth;
    t->seed = (uint64_t)o->seed;
    t->counts = run->task->batches.varied;
    const Session *session = &run->session;
    if (run->task->samples && !o->compare && !o->profiling.sweep)
        TRY(run->task->samples->plan(&run->set, session, &run->sample_every, &t->generator.window));
    t->samples = run->sample_every > 0;
    t->update = (UpdateOptions){o->beta1, o->beta2, o->eps, o->weight_decay, o->clip};
    if (run->world.rank == 0)
        return compute_options_peaks(&o->compute, &run->set, &t->ctx, &run->report.peaks);
    peaks_remember(&t->ctx, &run->report.peaks);
    return OK;
}

static Status open_observers(Run *run) {
    TrainOptions *o = &run->options;
    if (*o->profiling.window && !o->compare) {
        const TraceRun facts =
            profiling_facts(&run->session, "train", &run->report.peaks, o->batch, o->seq, o->accum);
        TRY(profiling_open(&o->profiling, &run->trainer.ctx, &facts, run->suffix, o->quiet ? NULL : stdout,
                           &run->profiling));
        profiling_share(run->profiling, run->world.comm);
    }
    if (!*o->hash_trace || run->world.rank > 0) return OK;
    run->hash_trace = fopen(o->hash_trace, "w");
    if (!run->hash_trace) return fail_file("write --hash-trace to", o->hash_trace);
    run->trainer.ctx.observe = guard_hash;
    run->trainer.ctx.observer = run->hash_trace;
    return OK;
}

/* Weights and state: from a checkpoint, a folder of weights, or new. */
static Status start_state(Run *run) {
    Trainer *t = &run->trainer;
    TrainingState *s = &run->state;
    if (run->resume) {
        TRY(checkpoint_load(&t->ctx, run->resume, &t->model.parameters));
        TRY(checkpoint_load_state(&t->ctx, run->resume, &t->model.parameters, s));
        float state[ADAMW_STATE_SIZE] = {[ADAMW_UPDATES] = (float)s->updates};
        TRY(trainer_write_state(t, state));
        run->output.begun = run->output.saved = s->step;
        return loader_seek(run->feed.train, s->position);
    }
    s->seed = (uint64_t)run->options.seed;
    return session_load(&run->session, &t->ctx, &t->model.parameters, s->seed);
}

static Status start_report(Run *run) {
    TrainOptions *o = &run->options;
    int64_t steps = o->compare ? 2 * COMPARE_ROUNDS : o->steps;
    TRY(tensorboard_open(o->tensorboard, &run->report.board));
    TRY(report_open(&run->report, o->log, run->resume != NULL, run->state.step, steps, o->quiet));
    OWNED char *json = options_json(&run->set, false);
    return report_start(&run->report, &run->session, &run->trainer, &run->feed, json, o->quiet);
}

/* ---- during the run ---- */

static Status save(Run *run) {
    OWNED char *checkpoint = NULL;
    if (!*run->options.out) return OK;
    heartbeat_other(run->world.rendezvous, "a checkpoint");
    TRY(trainer_settle(&run->trainer));
    TRY(output_folder_save(&run->output, &run->trainer, run->session.tokenizer, &run->state, &checkpoint));
    return report_save(&run->report, run->state.step, checkpoint);
}

static Status sample(Run *run) {
    Trainer *t = &run->trainer;
    OWNED char *text = NULL;
    int64_t length;
    heartbeat_other(run->world.rendezvous, "a sample");
    TRY(trainer_settle(&run->trainer));
    if (run->world.rank > 0) return OK;
    TRY(run->task->samples->write(&run->set, &run->session, t, run->state.step, &text, &length));
    return report_sample(&run->report, run->state.step, text, length);
}

static Status validate(Run *run) {
    Validation result;
    int64_t first;
    heartbeat_other(run->world.rendezvous, "validation");
    (void)trainer_share(&run->trainer, run->options.val_steps, &first);
    TRY(loader_seek(run->feed.val, first * run->options.batch));
    TRY(trainer_evaluate(&run->trainer, batches_validate, &run->batches, run->options.val_steps, &result));
    profiling_validated(run->profiling,
                        (TraceValidation){run->state.step, result.loss, result.top1, result.top5});
    return report_validation(&run->report, run->state.step, &result);
}

static bool every(int64_t step, int64_t period) {
    return period > 0 && step % period == 0;
}

static Status train_step(Ctx *ctx, void *program, StepCost *cost) {
    Run *run = program;
    Trainer *t = &run->trainer;
    double waited = loader_waited_ms(run->feed.train);
    (void)ctx;
    TRY(trainer_step(t, batches_train, &run->batches, run->learning_rate, &run->result));
    cost->reader_ms = loader_waited_ms(run->feed.train) - waited;
    cost->tokens = t->tokens;
    return OK;
}

/* Whether a signal asked this rank to end, or its output can no longer be written. */
static Status wants_to_stop(Run *run, bool *wants) {
    bool exists;
    TRY(output_folder_exists(&run->output, &exists));
    *wants = signals_caught() || ferror(stdout) || !exists;
    return OK;
}

static Status one_step(Run *run) {
    Trainer *t = &run->trainer;
    Schedule schedule = train_options_schedule(&run->options);
    StepCost cost;
    run->learning_rate = schedule_rate(&schedule, run->state.step);
    TRY(wants_to_stop(run, &run->trainer.stop));
    heartbeat_step(run->world.rendezvous, run->state.step + 1);
    if (run->profiling) progress_hide(run->report.progress);
    run->whole = false;
    TRY(profiling_step(run->profiling, &t->ctx, run->state.step + 1, train_step, run, &cost));
    run->whole = true;
    run->state.step++;
    run->state.position = loader_position(run->feed.train);
    run->state.tokens += cost.tokens;
    run->skips = run->result.skipped ? run->skips + 1 : 0;
    run->stop = run->result.stop;
    if (run->world.size == 1) TRY(wants_to_stop(run, &run->stop));
    TRY(report_passed(&run->report, run->state.step, &run->feed));
    return report_step(&run->report, t, run->state.step, &run->result, run->learning_rate, &cost);
}

static Status loop(Run *run, const char **reason) {
    const TrainOptions *o = &run->options;
    *reason = "done";
    while (run->state.step < o->steps) {
        TRY(one_step(run));
        bool last = run->state.step == o->steps, lost = run->skips == SKIPS_ALLOWED;
        *reason = run->stop && !lost ? "interrupted" : run->skips ? "diverged" : "done";
        if (lost) return OK;
        if (run->stop) return save(run);
        if (run->skips) continue; // a possibly damaged state does not replace a good checkpoint
        if (run->feed.val && (every(run->state.step, o->val_every) || last)) TRY(validate(run));
        if (run->trainer.samples && (every(run->state.step, run->sample_every) || last)) TRY(sample(run));
        if (every(run->state.step, o->save_every) || last) TRY(save(run));
    }
    return run->skips ? save(run) : OK; // save anyway: a single bad batch at the end does no harm
}

/* If only a file failed, such as the log, the model is sound and is saved. Takes ownership of `status`, the
 * error to report. */
static Status save_after(Run *run, Status status) {
    bool exists = true;
    if (status_code(status) != ERROR_FILE || !run->whole || run->world.size > 1) return status;
    status_free(output_folder_exists(&run->output, &exists));
    if (run->state.step > run->output.saved || !exists) status_free(save(run));
    return status;
}

static Status train(Run *run) {
    const char *reason, *out = run->options.out;
    signals_catch();
    signals_ignore_pipe();
    if (!*out) progress_line(run->report.progress, "nothing will be saved without --out=FOLDER");
    if (run->options.profile_ends)
        progress_line(run->report.progress,
                      "the run ends with its profile, after %" PRId64 " steps; --steps=N continues training",
                      run->options.steps);
    Status status = save_after(run, loop(run, &reason));
    if (run->output.removed) {
        status_free(status);
        status = fail(ERROR_FILE,
                      "--out=%s was removed or moved during the run; its last state is in a new one", out);
    }
    TRY(status);
    heartbeat_other(run->world.rendezvous, "the report");
    TRY(report_end(&run->report, run->state.step, reason));
    if (run->stop && *out)
        progress_line(run->report.progress, "continue with: %s --resume --out=%s", run->set.called, out);
    if (!*out) progress_line(run->report.progress, "nothing was saved; --out=FOLDER saves checkpoints");
    TRY(profiling_finish(run->profiling, &run->trainer.ctx));
    run->world.agreed = strcmp(reason, "diverged") == 0; // all ranks know that the run diverged
    if (!run->world.agreed) return OK;
    return fail(ERROR_NONFINITE,
                "loss or gradient of the last %d step%s is not finite; lower --lr, or try --check",
                run->skips, run->skips == 1 ? "" : "s");
}

static Status compare(Run *run) {
    const TrainOptions *o = &run->options;
    const CompareOptions options = {.session = &run->session,
                                    .peaks = &run->report.peaks,
                                    .bytes = run->bytes,
                                    .learning_rate = o->lr,
                                    .fetch = batches_train_at,
                                    .source = &run->batches,
                                    .profiling = &o->profiling,
                                    .suffix = run->suffix,
                                    .folder = run->world.rank == 0 ? o->out : "",
                                    .progress = run->report.progress,
                                    .file = o->quiet ? NULL : stdout};
    return compare_report(&run->trainer, &options);
}

static Status prepare(Run *run) {
    run->output = (OutputFolder){.options = &run->options, .set = &run->set, .first = run->world.rank == 0};
    TRY(output_folder_take(&run->output)); // before the folder is read
    TRY(train_options_resume(&run->options, &run->set, run->output.first, &run->resume));
    TRY(open_session(run));
    return output_folder_rehearse(&run->output, &run->session);
}

static Status open_all(Run *run) {
    TRY(open_trainer(run));
    return open_observers(run);
}

static Status measure(void *user) {
    Run *run = user;
    Trainer *t = &run->trainer;
    return run->options.compare ? compare_run_measure(t, run->session.fuses, run->bytes)
                                : trainer_measure(t, NULL);
}

static Status set_up(Run *run) {
    Trainer *t = &run->trainer;
    if (run->options.recompute == RECOMPUTE_AUTO) TRY(fit_choose(t, measure, run));
    TRY(measure(run));
    TRY(fit_advise(t, measure, run, stderr));
    t->model.parameters.whole = run->options.compare;
    return trainer_allocate(t);
}

static Status check_start(Run *run) {
    WorldStart start = {0, run->trainer.model.parameters.size, run->state.step, run->state.position};
    TRY(feed_fingerprint(&run->feed, &start.data));
    TRY(world_compare(&run->world, &start));
    return output_folder_expect(&run->output, run->world.size, start.data, &run->state);
}

static Status run_once(Run *run) {
    World *w = &run->world;
    TRY(world_agree(w, prepare(run)));
    TRY(world_connect(w, &run->options, run->session.device));
    TRY(peaks_link(w->comm, run->options.compute.peaks && *run->options.profiling.window,
                   &run->report.peaks));
    TRY(world_agree(w, open_all(run)));
    TRY(world_agree(w, set_up(run)));
    /* After the plan, so that batches too large for memory are not pinned first. */
    TRY(feed_open(&run->options, &run->set, &run->session, w, &run->feed));
    run->batches =
        (Batches){&run->feed, run->session.device, run->options.batch, run->options.accum, w->size, 0};
    profiling_read_ahead(run->profiling, run->feed.train);
    TRY(world_agree(w, start_state(run)));
    TRY(check_start(run));
    TRY(output_folder_write_options(&run->output)); // replaces the first run's options once this run can
                                                    // continue
    TRY(start_report(run));
    TRY(run->options.compare ? compare(run) : train(run));
    TRY(trainer_unshare(&run->trainer));
    return world_part(w);
}

/* Frees everything but the options, for another run. */
static void close_run(Run *run) {
    report_close(&run->report);
    profiling_close(run->profiling);
    if (run->hash_trace) fclose(run->hash_trace);
    trainer_close(&run->trainer);
    feed_close(&run->feed);
    session_close(&run->session);
    memory_free(run->resume);
    output_folder_close(&run->output);
    *run = (Run){.options = run->options, .set = run->set, .world = run->world, .suffix = ""};
}

static Status run_size(void *context, int64_t batch, int64_t size, const char *suffix) {
    Run *run = context;
    run->options.batch = batch;
    *train_options_swept(&run->options, NULL) = size;
    run->suffix = suffix;
    Status status = run_once(run);
    close_run(run);
    return status;
}

/* Checks all sizes before the first is run. */
static Status check_sizes(Run *run, OptionList sizes) {
    Status status = OK;
    for (int64_t i = 0; (i == 0 || i < sizes.count) && !status; i++) {
        if (sizes.count) *train_options_swept(&run->options, NULL) = sizes.values[i];
        status = open_session(run);
        close_run(run);
    }
    return status;
}

static Status sweep(Run *run) {
    TrainOptions *o = &run->options;
    FILE *file = o->quiet ? NULL : stdout;
    OptionList list;
    const int64_t *size = train_options_swept(o, &list);
    TRY(profiling_options_steps(&o->profiling, &o->steps));
    TRY(check_sizes(run, list));
    const SweepSizes sizes = {o->batch_sizes, list, o->batch, *size, o->image_sizes.count > 0};
    o->val_every = 0;
    o->quiet = true; // only the comparison is printed
    return profiling_sweep(&o->profiling, &sizes, run_size, run, file);
}

static Status run_all(Run *run, int argc, char **argv, int *code) {
    bool done = false;
    run->suffix = "";
    run->world.size = 1;
    TRY(task_read_train(argc, argv, &run->options, &run->set, &done));
    if (!done) TRY(world_open(&run->world, &run->options, &run->set, &done, code));
    if (done) return OK;
    if (run->world.rank > 0) train_options_silence(&run->options, run->world.rank);
    if (run->options.train_tokenizer) return train_tokenizer(&run->options);
    if (run->options.profiling.sweep) return sweep(run);
    return run_once(run);
}

int main(int argc, char **argv) {
    cores_share(argv);
    static Run run; // static: zeroed, and too large for some stacks
    int code = 0;
    signals_prepare();
    Status status = run_all(&run, argc, argv, &code);
    world_fail(&run.world, status);
    close_run(&run);
    world_close(&run.world);
    options_close(&run.set);
    int ended = status_exit(status, program_invocation_short_name);
    return ended ? ended : code;
}
