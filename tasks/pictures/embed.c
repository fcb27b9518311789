#include "base/memory.h"
#include "run/answers.h"
#include "run/signals.h"
#include "tasks/masked/infer.h"
#include "tasks/pictures/infer.h"
#include "tasks/pictures/picture_passes.h"

#include <inttypes.h>
#include <stdio.h>

/* The mean of a picture's rows of hidden states, or the first row. */
static void pool(const float *hidden, int64_t rows, int64_t width, float *out) {
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t row = 0; row < rows; row++) sum += (double)hidden[row * width + c];
        out[c] = (float)(sum / (double)rows);
    }
}

static Status embed(PicturePasses *p, Pooling pooling, Answers *answers) {
    int64_t width = p->inference.model.config.width;
    OWNED float *row = memory_array((size_t)width, sizeof *row);
    bool more = true;
    while (!signals_caught()) {
        TRY(picture_passes_next(p, &more));
        if (!more) break;
        int64_t rows = pooling == POOLING_MEAN ? p->columns / width : 1;
        for (int64_t i = 0; i < p->count; i++) {
            pool(p->rows + i * p->columns, rows, width, row);
            TRY(answers_add(answers, p->first + i, row, width * (int64_t)sizeof *row));
        }
    }
    return OK;
}

static Status publish(void *context, const char *path, const void *bytes) {
    const PicturePasses *p = context;
    return embeddings_write(path, bytes, images_count(p->source), p->inference.model.config.width);
}

Status embed_pictures(Session *session, const InferOptions *o, const OptionSet *set) {
    const MaskedInfer *own = options_values(set, &masked_infer);
    CLOSED_BY(images_release) ImageSource *source = NULL;
    CLOSED_BY(picture_passes_close) PicturePasses passes = {0};
    CLOSED_BY(answers_release) Answers *answers = NULL;
    bool whole;
    if (own->pooling == POOLING_POOLER)
        return fail(ERROR_USAGE, "--pooling=pooler is for a BERT; --pooling=first gives the class token's");
    TRY(images_open_files(own->embed, &source));
    const AnswersOptions options = {.session = session,
                                    .options = o,
                                    .set = set,
                                    .total = images_count(source),
                                    .record = session->config.width * (int64_t)sizeof(float),
                                    .context = &passes,
                                    .publish = publish};
    TRY(answers_open(&options, &answers));
    TRY(picture_passes_open(session, o, set, source, INFERENCE_HIDDEN, false, &passes));
    TRY(picture_passes_skip(&passes, answers_kept(answers)));
    double start = device_clock();
    TRY(embed(&passes, own->pooling, answers));
    TRY(answers_finish(answers, &whole));
    if (whole && !o->quiet)
        printf("%" PRId64 " embeddings of width %" PRId64 " in %s (%.2f s)\n", images_count(source),
               session->config.width, o->output, device_clock() - start);
    return OK;
}
