#include "run/infer_compare.h"

#include "base/cores.h"
#include "base/memory.h"

typedef struct {
    Inference *in;
    const Session *session;
    const BenchmarkSize *size;
    Recorder *recorders[FORM_COUNT]; // recorders of operations; NULL: whole passes are timed
    double *ms[FORM_COUNT];          // (repeats) times of whole passes
    Work work[FORM_COUNT];
} Turns;

static void choose_form(Turns *t, int form) {
    t->in->ctx.fuses = form == FORM_NAIVE ? 0 : t->session->fuses;
}

/* Rounds before 0 are warm-up. */
static Status run_pass(Turns *t, int form, int64_t round, bool first) {
    Inference *in = t->in;
    Recorder *recorder = t->recorders[form];
    choose_form(t, form);
    in->ctx.recorder = recorder;
    in->ctx.step = round;
    double start = device_clock();
    Status status =
        inference_logits(in, first || recorder ? t->size->tokens : NULL, t->size->batch, t->size->seq);
    if (!status) status = in->ctx.device->synchronize(in->ctx.device);
    if (!recorder && round >= 0) t->ms[form][round] = 1e3 * (device_clock() - start);
    in->ctx.recorder = NULL;
    t->work[form] = in->work;
    return status;
}

/* Every second round begins with the fused form. */
static Status rounds(Turns *t, int64_t warmup, int64_t repeats) {
    for (int64_t round = -warmup; round < repeats; round++)
        for (int turn = 0; turn < FORM_COUNT; turn++)
            TRY(run_pass(t, round % 2 ? FORM_COUNT - 1 - turn : turn, round, round == -warmup && !turn));
    return OK;
}

static Status time_operations(Turns *t, int64_t repeats, const Peaks *peaks, BenchmarkResult *results) {
    const RecorderOptions options = {.primitives = true, .timed = true};
    for (int form = 0; form < FORM_COUNT; form++)
        t->recorders[form] = recorder_open(t->in->ctx.device, &options);
    Status status = rounds(t, 0, repeats);
    for (int form = 0; form < FORM_COUNT && !status; form++)
        status = timed_operations_read(t->recorders[form], peaks, "--repeats", &results[form].operations);
    for (int form = 0; form < FORM_COUNT; form++) recorder_close(t->recorders[form]);
    return status;
}

static Status measure(Turns *t, int64_t warmup, int64_t repeats, const Peaks *peaks,
                      BenchmarkResult *results) {
    const CoreTimes cores = cores_read();
    BenchmarkResult *fused = &results[FORM_FUSED];
    TRY(rounds(t, warmup, repeats));
    fused->pairs = pairs_ratio(t->ms[FORM_NAIVE], t->ms[FORM_FUSED], repeats);
    for (int form = 0; form < FORM_COUNT; form++) {
        results[form].ms = stats_make(t->ms[form], repeats);
        results[form].work = t->work[form];
        results[form].cores_waited = cores_waited(cores);
    }
    TRY(time_operations(t, repeats, peaks, results));
    return infer_benchmark_differences(t->in, t->size, t->session->fuses, &fused->differences,
                                       &fused->difference_count);
}

/* The planned memory is that of the largest pass, so it is not printed for others. */
static void print(const Turns *t, const BenchmarkResult *results, const Peaks *peaks, FILE *file) {
    const Inference *in = t->in;
    const BenchmarkResult *fused = &results[FORM_FUSED];
    Comparison c = {.what = "pass",
                    .device = t->session->device->name,
                    .library = t->session->device->library,
                    .dtype = session_dtype_name(t->session),
                    .model = session_model_name(t->session),
                    .batch = fused->batch,
                    .seq = fused->seq,
                    .rounds = fused->repeats,
                    .peaks = *peaks,
                    .cores_waited = fused->cores_waited,
                    .path_count = FORM_COUNT};
    for (int form = 0; form < FORM_COUNT; form++)
        c.paths[form] =
            (PathTimes){.operations = results[form].operations,
                        .step = results[form].ms,
                        .peak_bytes = in->batch == c.batch && in->seq == c.seq ? in->bytes[form] : 0,
                        .pairs = results[form].pairs,
                        .differences = results[form].differences,
                        .difference_count = results[form].difference_count};
    fprintf(file, "\n");
    compare_print(&c, file);
}

Status infer_compare(Inference *in, const Session *session, const BenchmarkSize *size, int64_t warmup,
                     int64_t repeats, Benchmark *report, FILE *file) {
    OWNED double *ms = memory_array((size_t)repeats * FORM_COUNT, sizeof *ms);
    Turns t = {.in = in, .session = session, .size = size, .ms = {ms, ms + repeats}};
    report->profiles =
        memory_grow(report->profiles, &report->room, report->count + FORM_COUNT, sizeof *report->profiles);
    BenchmarkResult *results = &report->profiles[report->count];
    for (int form = 0; form < FORM_COUNT; form++)
        results[form] = (BenchmarkResult){
            .label = form_name(form), .batch = size->batch, .seq = size->seq, .repeats = repeats};
    report->count += FORM_COUNT;
    TRY(measure(&t, warmup, repeats, &report->peaks, results));
    choose_form(&t, FORM_FUSED);
    if (file) print(&t, results, &report->peaks, file);
    return OK;
}
