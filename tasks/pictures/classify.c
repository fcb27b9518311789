#include "tasks/pictures/infer.h"

#include "base/json_writer.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "tasks/pictures/attention_map.h"
#include "tasks/pictures/picture_passes.h"
#include "run/ranking.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LIKELIEST = 5 };

typedef struct {
    const Session *session;
    const InferOptions *options;
    const OptionSet *set;
    const PicturesInfer *own;
    PicturePasses passes;
    JsonWriter json;
} Job;

static void print_classes(const Session *s, const char *name, const RankedClass *first, int64_t count) {
    char text[LABEL_TEXT];
    printf("%s\n", name);
    for (int64_t i = 0; i < count; i++)
        printf("  %6.2f%%  %s\n", 100 * first[i].probability,
               labels_name(s->config.labels, first[i].label, text));
}

static void write_classes(Job *job, const char *name, const RankedClass *first, int64_t count) {
    JsonWriter *w = &job->json;
    char text[LABEL_TEXT];
    json_write_line(w, 2, true);
    json_write_open(w, '{');
    json_member_text(w, "file", name);
    json_member_open(w, "classes", '[');
    for (int64_t i = 0; i < count; i++) {
        json_write_open(w, '{');
        json_member_integer(w, "label", first[i].label);
        json_member_text(w, "class", labels_name(job->session->config.labels, first[i].label, text));
        json_member_number(w, "probability", first[i].probability);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
    json_write_close(w, '}');
}

/* Reports one row of the current batch. */
static void report_picture(Job *job, int64_t row) {
    PicturePasses *p = &job->passes;
    RankedClass first[LIKELIEST];
    int64_t classes = job->session->config.vocab, count = classes < LIKELIEST ? classes : LIKELIEST;
    char *name = images_name(p->source, p->first + row);
    if (p->batch.targets[row] >= 0) {
        ranking_first(p->rows + row * p->columns, classes, first, count);
        write_classes(job, name, first, count);
        utf8_tame(name, (int64_t)strlen(name), false);
        print_classes(job->session, name, first, count);
    }
    memory_free(name);
}

static void report_broken(PicturePasses *p) {
    for (int64_t i = 0; p->broken && i < broken_count(p->broken); i++) {
        char *message = broken_message(p->broken, i);
        fprintf(stderr, "skipped %s\n", message);
        memory_free(message);
    }
}

static Status map_attention(const Job *job) {
    const Config *c = &job->session->config;
    const char *path = job->own->attention_map;
    double largest;
    TRY(attention_map_write(path, &job->passes, &largest));
    if (!job->options->quiet)
        printf("attention map in %s: black is 0%%, white %.2f%% of the class token's attention (evenly: "
               "%.2f%%)\n",
               path, 100 * largest, 100 / (double)c->context);
    return OK;
}

static Status run_passes(Job *job) {
    bool more;
    PicturePasses *p = &job->passes;
    json_write_open(&job->json, '{');
    json_member_text(&job->json, "model", job->options->model);
    json_member_open(&job->json, "pictures", '[');
    for (;;) {
        TRY(picture_passes_next(p, &more));
        if (!more) break;
        for (int64_t row = 0; row < p->count; row++) report_picture(job, row);
        if (*job->own->attention_map) TRY(map_attention(job));
    }
    json_write_close(&job->json, ']');
    json_write_close(&job->json, '}');
    report_broken(p);
    return *job->options->json ? json_writer_save(&job->json, job->options->json) : OK;
}

static void job_close(Job *job) {
    picture_passes_close(&job->passes);
    json_writer_free(&job->json);
}

Status classify_pictures(Session *session, const InferOptions *options, const OptionSet *set) {
    const Config *c = &session->config;
    CLOSED_BY(images_release) ImageSource *source = NULL;
    CLOSED_BY(job_close)
    Job job = {
        .session = session, .options = options, .set = set, .own = options_values(set, &pictures_infer)};
    bool mapped = *job.own->attention_map;
    if (!c->class_head)
        return fail(ERROR_USAGE, "--classify needs a vision Transformer with a head, but %s has none",
                    options->model);
    TRY(images_open_files(job.own->classify, &source));
    if (mapped && (images_count(source) != 1 || !c->class_token))
        return fail(ERROR_USAGE, "--attention-map needs one picture, and a model with a class token");
    TRY(picture_passes_open(session, options, set, source, INFERENCE_LOGITS, mapped, &job.passes));
    return run_passes(&job);
}
