#define _GNU_SOURCE
#include "run/world.h"

#include "run/profiling.h"
#include "base/memory.h"
#include "base/version.h"
#include "comm/lanes.h"
#include "comm/launch.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEETING_SECONDS = 60, GRACE = 10, WATCH_SECONDS = 3 };

/* ---- the ranks ---- */

static bool on_cpu(const TrainOptions *o) {
    return strcmp(o->compute.device, "cpu") == 0;
}

/* How many ranks this process must start. */
static Status count_ranks(const TrainOptions *o, int *ranks) {
    int gpus;
    *ranks = (int)o->gpus;
    if (o->gpus == 1) return OK;
    if (on_cpu(o))
        return fail(ERROR_USAGE,
                    "--gpus=%" PRId64 " starts ranks on GPUs; on the CPU mpirun starts "
                    "them: mpirun -n 2 ./train --device=cpu ...",
                    o->gpus);
    if (strcmp(o->compute.device, "auto") != 0 && strcmp(o->compute.device, "cuda") != 0)
        return fail(ERROR_USAGE,
                    "--gpus=%" PRId64 " takes the first GPUs; leave out --device=%s, or choose "
                    "GPUs by CUDA_VISIBLE_DEVICES",
                    o->gpus, o->compute.device);
    TRY(launch_count_gpus(&gpus));
    if (o->gpus == 0) *ranks = gpus;
    if (gpus == 0) return fail(ERROR_DEVICE, "--gpus=%" PRId64 ": no GPU is visible here", o->gpus);
    if (*ranks > gpus && !getenv("FUSEBOX_SHARE_GPU"))
        return fail(ERROR_USAGE, "--gpus=%d, but only %d visible here", *ranks, gpus);
    return OK;
}

static Status check_ranks(const TrainOptions *o, const OptionSet *set, const Identity *identity) {
    if (identity->starter && options_given(set, "gpus") && o->gpus > 0 && o->gpus != identity->size)
        return fail(ERROR_USAGE, "--gpus=%" PRId64 ", but %s has started %d ranks; leave --gpus out", o->gpus,
                    identity->starter, identity->size);
    if (identity->size > 1 && (o->profiling.sweep || o->train_tokenizer))
        return fail(ERROR_USAGE, "--%s is for one rank, but %s has started %d",
                    o->profiling.sweep ? "sweep" : "train-tokenizer", identity->starter, identity->size);
    return OK;
}

/* Starts the ranks unless a launcher has. Returns in each rank and, with `done`, in the process that has
 * started them. */
static Status start_ranks(const TrainOptions *o, Identity *identity, bool *done, int *code) {
    int ranks;
    if (identity->starter) return OK;
    TRY(count_ranks(o, &ranks));
    if (ranks <= 1) return OK;
    if (o->profiling.sweep || o->train_tokenizer)
        return fail(ERROR_USAGE, "--%s cannot be combined with --gpus=%d",
                    o->profiling.sweep ? "sweep" : "train-tokenizer", ranks);
    const Launch how = {.program = "train", .ranks = ranks, .grace = GRACE};
    TRY(launch(&how, identity, code));
    *done = !identity->starter;
    return OK;
}

/* The GPU of this rank, or the CPU if there is none. */
static void choose_device(World *w, const TrainOptions *o, int local_rank) {
    if (strcmp(o->compute.device, "auto") != 0 && strcmp(o->compute.device, "cuda") != 0) return;
    int gpus = gpu_count ? gpu_count() : 0;
    if (gpus == 0) return;
    bool share = getenv("FUSEBOX_SHARE_GPU") != NULL;
    snprintf(w->device, sizeof w->device, "cuda:%d", share ? local_rank % gpus : local_rank);
}

/* ---- facts that ranks must share ---- */

enum { FACTS_BYTES = 4096 };

/* Lines of NAME=VALUE: the options that were given, except those that may differ between ranks. */
static Status list_facts(const OptionSet *set, char facts[FACTS_BYTES]) {
    static const char *const own[] = {"device",      "threads",     "workers",    "reader-delay",
                                      "log",         "tensorboard", "hash-trace", "config",
                                      "profile-out", "quiet",       "log-rank"};
    OWNED char *text = options_json(set, false);
    json_auto_t *values = json_loads(text, 0, NULL);
    int used = snprintf(facts, FACTS_BYTES, "version=%s\n", FUSEBOX_VERSION);
    for (int i = 0; i < set->count && used < FACTS_BYTES; i++) {
        const Option *option = &set->table[i];
        bool counts = option->kind != OPTION_HEADING && options_given(set, option->name);
        for (size_t k = 0; counts && k < sizeof own / sizeof *own; k++)
            counts = strcmp(own[k], option->name) != 0;
        char *value = counts ? json_dumps(json_object_get(values, option->name), JSON_ENCODE_ANY) : NULL;
        if (value)
            used += snprintf(facts + used, (size_t)(FACTS_BYTES - used), "--%s=%s\n", option->name, value);
        free(value);
    }
    return used < FACTS_BYTES ? OK : fail(ERROR_USAGE, "the options of a run of several ranks are too long");
}

/* Runs in the watching thread. The main thread may hang in a library, so nothing waits for it. */
static void lost(void *user, Status status) {
    World *w = user;
    fprintf(stderr, "train: %s\n", status_message(status));
    if (w->comm) comm_abort(w->comm);
    _exit(ERROR_DEVICE);
}

/* Collective. */
static Status compare(World *w, const char *facts) {
    Status status = rendezvous_compare(w->rendezvous, facts);
    w->agreed = status != OK;
    return status;
}

static Status meet(World *w, const TrainOptions *o, const OptionSet *set, const Identity *identity) {
    char facts[FACTS_BYTES];
    TRY(list_facts(set, facts));
    TRY(rendezvous_open(identity, MEETING_SECONDS, &w->agreed, &w->rendezvous));
    /* A profile's report is made within a step, and may take much longer than a step. */
    double timeout = o->comm_timeout == 0 && *o->profiling.window ? HEARTBEAT_START : o->comm_timeout;
    heartbeat_begin(w->rendezvous, &(HeartbeatSetup){.timeout = timeout, .lost = lost, .user = w});
    heartbeat_other(w->rendezvous, "the start");
    return compare(w, facts);
}

Status world_open(World *w, const TrainOptions *o, const OptionSet *set, bool *done, int *code) {
    Identity identity;
    *w = (World){.size = 1};
    *done = false;
    TRY(identity_read(&identity));
    TRY(check_ranks(o, set, &identity));
    TRY(start_ranks(o, &identity, done, code));
    if (*done || !identity.starter) return OK;
    w->rank = identity.rank;
    w->size = identity.size;
    profiling_prepare(&o->profiling); // before MPI, which may initialize CUDA, and before GPUs are counted,
                                      // which initializes CUDA
    if (w->size > 1) TRY(meet(w, o, set, &identity));
    choose_device(w, o, identity.local_rank);
    return OK;
}

Status world_agree(World *w, Status mine) {
    if (w->size == 1) return mine;
    Status status = rendezvous_agree(w->rendezvous, mine);
    w->agreed = status != OK;
    return status;
}

Status world_connect(World *w, const TrainOptions *o, Device *device) {
    if (w->size == 1) return OK;
    const CommSetup setup = {.device = device,
                             .rendezvous = w->rendezvous,
                             .engine = o->engine,
                             .share_gpu = getenv("FUSEBOX_SHARE_GPU") != NULL};
    return world_agree(w, comm_open(&setup, &w->comm));
}

Status world_compare(World *w, const WorldStart *start) {
    char facts[FACTS_BYTES];
    if (w->size == 1) return OK;
    snprintf(facts, sizeof facts,
             "the data's fingerprint=%016" PRIx64 "\nthe model's parameters=%" PRId64
             "\nthe checkpoint's step=%" PRId64 "\nthe checkpoint's position=%" PRId64 "\n",
             start->data, start->parameters, start->step, start->position);
    return compare(w, facts);
}

Status world_part(World *w) {
    if (w->size == 1) return OK;
    TRY(comm_barrier(w->comm));
    comm_close(w->comm);
    w->comm = NULL;
    return OK;
}

void world_fail(World *w, Status status) {
    if (w->size == 1 || !status) return;
    int code = (int)status_code(status);
    /* The loss of a rank may first appear as a failed exchange: the watcher knows what the lost rank did
     * last. */
    if (!w->agreed && code == ERROR_DEVICE && w->rendezvous) sleep(WATCH_SECONDS);
    if (!w->agreed || w->rank == 0) fprintf(stderr, "train: %s\n", status_message(status));
    rendezvous_close(w->rendezvous, w->agreed ? OK : status);
    fflush(NULL);
    _exit(code); // exit() would wait for collectives in progress
}

void world_close(World *w) {
    rendezvous_close(w->rendezvous, OK);
}
