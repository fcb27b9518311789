#include "base/json_writer.h"
#include "base/memory.h"
#include "tasks/pictures/infer.h"
#include "tasks/text/infer.h"
#include "tasks/pictures/picture_passes.h"
#include "run/print_text.h"
#include "run/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TABLE_CLASSES = 12, MISTAKES = 20, NAME_WIDTH = 14 };

typedef struct {
    const Session *session;
    const InferOptions *options;
    const OptionSet *set;
    const char *data;
    ImageSource *source;
    PicturePasses passes;
    int64_t classes; // classes of the model
    const Labels *names;
    int32_t *labels;    // (classes of the source) the model's class for each
    int64_t *confusion; // (classes, classes) pictures of one class predicted as another
    int64_t count, top1, top5;
    double loss; // sum of the losses
} Job;

/* Reports the names that differ, if the model has any. */
static void report_names(const Job *job) {
    char text[LABEL_TEXT];
    for (int64_t i = 0; i < images_classes(job->source) && job->names->count; i++) {
        const char *name = images_class_name(job->source, i), *own = labels_name(job->names, i, text);
        if (strcmp(name, own) == 0) continue;
        fprintf(stderr, "infer: classes are matched by their order: \"%s\" of --eval is the model's \"%s\"\n",
                name, own);
        return;
    }
}

/* Matches classes by name if the model knows all names, else by number. */
static Status match_classes(Job *job) {
    int64_t count = images_classes(job->source), found = 0;
    char text[LABEL_TEXT];
    job->labels = memory_array((size_t)count, sizeof *job->labels);
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < job->classes; c++)
            if (strcmp(images_class_name(job->source, i), labels_name(job->names, c, text)) == 0) {
                job->labels[i] = (int32_t)c;
                found++;
                break;
            }
    if (found == count) return OK;
    if (count > job->classes)
        return fail(ERROR_USAGE, "--eval: %" PRId64 " classes, but the model has %" PRId64, count,
                    job->classes);
    for (int64_t i = 0; i < count; i++) job->labels[i] = (int32_t)i;
    if (!job->options->quiet) report_names(job);
    return OK;
}

static void judge(Job *job, int64_t row) {
    const PicturePasses *p = &job->passes;
    const float *logits = p->rows + row * p->columns;
    RankedClass first;
    if (p->batch.targets[row] < 0) return;
    int64_t label = job->labels[p->batch.targets[row]], rank = ranking_of(logits, job->classes, label);
    ranking_first(logits, job->classes, &first, 1);
    job->confusion[label * job->classes + first.label]++;
    job->count++;
    job->top1 += rank < 1;
    job->top5 += rank < 5;
    job->loss += (double)logits[first.label] - logits[label] - log(first.probability);
}

/* ---- the report ---- */

static void print_table(const Job *job) {
    char text[LABEL_TEXT];
    printf("\n%-*s", NAME_WIDTH, "is \\ taken for");
    for (int64_t c = 0; c < job->classes; c++) printf(" %6.6s", labels_name(job->names, c, text));
    printf("\n");
    for (int64_t r = 0; r < job->classes; r++) {
        printf("%-*.*s", NAME_WIDTH, NAME_WIDTH, labels_name(job->names, r, text));
        for (int64_t c = 0; c < job->classes; c++) printf(" %6" PRId64, job->confusion[r * job->classes + c]);
        printf("\n");
    }
}

/* For many classes: prints the most frequent mistakes, and removes them from the table. */
static void print_mistakes(Job *job) {
    char is[LABEL_TEXT], taken[LABEL_TEXT];
    printf("\nthe commonest mistakes\n");
    for (int64_t c = 0; c < job->classes; c++) job->confusion[c * job->classes + c] = 0;
    for (int i = 0; i < MISTAKES; i++) {
        int64_t most = 0;
        for (int64_t k = 1; k < job->classes * job->classes; k++)
            if (job->confusion[k] > job->confusion[most]) most = k;
        if (!job->confusion[most]) return;
        printf("%8" PRId64 "  %s taken for %s\n", job->confusion[most],
               labels_name(job->names, most / job->classes, is),
               labels_name(job->names, most % job->classes, taken));
        job->confusion[most] = 0;
    }
}

static Status write_json(const Job *job, double loss, int64_t broken) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    char text[LABEL_TEXT];
    json_write_open(&w, '{');
    json_member_text(&w, "data", job->data);
    json_member_integer(&w, "pictures", job->count);
    json_member_integer(&w, "broken", broken);
    json_member_number(&w, "loss", loss);
    json_member_number(&w, "top1", (double)job->top1 / (double)job->count);
    json_member_number(&w, "top5", (double)job->top5 / (double)job->count);
    json_member_open(&w, "classes", '[');
    for (int64_t c = 0; c < job->classes; c++) json_write_text(&w, labels_name(job->names, c, text));
    json_write_close(&w, ']');
    json_member_open(&w, "confusion", '[');
    for (int64_t r = 0; r < job->classes; r++) {
        json_write_line(&w, 2, true);
        json_write_open(&w, '[');
        for (int64_t c = 0; c < job->classes; c++)
            json_write_integer(&w, job->confusion[r * job->classes + c]);
        json_write_close(&w, ']');
    }
    json_write_close(&w, ']');
    json_write_close(&w, '}');
    return json_writer_save(&w, job->options->json);
}

static Status report(Job *job) {
    double count = (double)job->count, loss = job->loss / count;
    int64_t broken = job->passes.broken ? broken_count(job->passes.broken) : 0;
    if (!job->count) return fail(ERROR_FORMAT, "--eval: none of the pictures can be read");
    print_name(job->data, stdout);
    printf(": %" PRId64 " pictures, accuracy %.2f%%, top 5 %.2f%%, mean loss %.6f", job->count,
           100 * (double)job->top1 / count, 100 * (double)job->top5 / count, loss);
    if (broken) printf(", %" PRId64 " broken", broken);
    printf("\n");
    if (*job->options->json) TRY(write_json(job, loss, broken));
    if (job->classes <= TABLE_CLASSES)
        print_table(job);
    else
        print_mistakes(job);
    return isfinite(loss) ? OK : fail(ERROR_NONFINITE, "the mean loss on %s is not finite", job->data);
}

static void job_close(Job *job) {
    picture_passes_close(&job->passes);
    memory_free(job->labels);
    memory_free(job->confusion);
    images_close(job->source);
}

static Status evaluate(Job *job) {
    bool more;
    const Config *c = &job->session->config;
    TRY(images_open(job->data, IMAGES_TEST, NULL, &job->source));
    if (!c->class_head) return fail(ERROR_USAGE, "--eval: %s has no head for classes", job->options->model);
    job->classes = c->vocab;
    job->names = c->labels;
    TRY(match_classes(job));
    job->confusion = memory_array((size_t)job->classes * (size_t)job->classes, sizeof *job->confusion);
    TRY(picture_passes_open(job->session, job->options, job->set, job->source, INFERENCE_LOGITS, false,
                            &job->passes));
    for (;;) {
        TRY(picture_passes_next(&job->passes, &more));
        if (!more) return report(job);
        for (int64_t row = 0; row < job->passes.count; row++) judge(job, row);
    }
}

Status evaluate_pictures(Session *session, const InferOptions *options, const OptionSet *set) {
    const TextInfer *text = options_values(set, &text_infer);
    CLOSED_BY(job_close)
    Job job = {.session = session, .options = options, .set = set, .data = text->eval};
    return evaluate(&job);
}
