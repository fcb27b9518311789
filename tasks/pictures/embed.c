#include "base/memory.h"
#include "data/safetensors.h"
#include "tasks/masked/infer.h"
#include "tasks/pictures/infer.h"
#include "tasks/pictures/picture_passes.h"

#include <inttypes.h>
#include <stdio.h>

/* The mean of a picture's rows of hidden states, or the first of them. */
static void pool(const float *hidden, int64_t rows, int64_t width, float *out) {
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t row = 0; row < rows; row++) sum += (double)hidden[row * width + c];
        out[c] = (float)(sum / (double)rows);
    }
}

static Status embed(PicturePasses *p, Pooling pooling, SafetensorsWriter *writer) {
    int64_t width = p->inference.model.config.width;
    float *row = memory_array((size_t)width, sizeof *row);
    bool more = true;
    Status status = OK;
    while (!status) {
        status = picture_passes_next(p, &more);
        if (status || !more) break;
        int64_t rows = pooling == POOLING_MEAN ? p->columns / width : 1;
        for (int64_t i = 0; i < p->count && !status; i++) {
            pool(p->rows + i * p->columns, rows, width, row);
            status = safetensors_writer_append(writer, row, width * (int64_t)sizeof *row);
        }
    }
    memory_free(row);
    return status;
}

static Status run(PicturePasses *p, const Session *session, const InferOptions *o, const OptionSet *set,
                  const ImageSource *source) {
    const MaskedInfer *own = options_values(set, &masked_infer);
    SafetensorsEntry entry = {.name = "embeddings",
                              .type = SAFE_F32,
                              .rank = 2,
                              .d = {images_count(source), session->config.width}};
    SafetensorsWriter *writer = NULL;
    if (own->pooling == POOLING_POOLER)
        return fail(ERROR_USAGE, "--pooling=pooler is for a BERT; --pooling=first gives the class token's");
    TRY(picture_passes_open(session, o, set, source, INFERENCE_HIDDEN, false, p));
    double start = device_clock();
    TRY(safetensors_writer_open(own->output, &entry, 1, NULL, 0, &writer));
    Status status = embed(p, own->pooling, writer);
    if (status) {
        safetensors_writer_abandon(writer);
        return status;
    }
    TRY(safetensors_writer_close(writer));
    if (!o->quiet)
        printf("%" PRId64 " embeddings of width %" PRId64 " in %s (%.2f s)\n", images_count(source),
               session->config.width, own->output, device_clock() - start);
    return OK;
}

Status embed_pictures(Session *session, const InferOptions *options, const OptionSet *set) {
    const MaskedInfer *own = options_values(set, &masked_infer);
    ImageSource *source = NULL;
    PicturePasses *p = memory_allocate(sizeof *p); /* the model must stay where it is */
    Status status = images_open_files(own->embed, &source);
    if (!status) status = run(p, session, options, set, source);
    picture_passes_close(p);
    memory_free(p);
    images_close(source);
    return status;
}
