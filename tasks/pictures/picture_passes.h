/* picture_passes: a model run over all pictures of a source, a batch at a time, which the loader's workers
 * have decoded meanwhile. */
#pragma once

#include "tasks/pictures/pictures.h"
#include "run/infer_options.h"
#include "run/session.h"
#include "run/inference.h"

typedef struct {
    Inference inference;
    const ImageSource *source;
    BrokenPictures *broken; // NULL: a broken picture is an error
    Loader *loader;
    int64_t first, count; // pictures of the batch at hand
    int64_t columns;      // values of each: logits of the classes with their padding, or hidden states
    float *rows;          // (count, columns)
    Batch batch;          // its targets are the classes; -1: a broken picture
} PicturePasses;

/* Memory and weights. `use` is INFERENCE_LOGITS or INFERENCE_HIDDEN; `mapped`: with the attention map.
 * Close it also after an error. It must stay where it is. */
CHECKED Status picture_passes_open(const Session *session, const InferOptions *options, const OptionSet *set,
                                   const ImageSource *source, InferenceUse use, bool mapped,
                                   PicturePasses *passes);
void picture_passes_close(PicturePasses *passes);

/* Before the first batch: it begins behind `count` pictures. */
CHECKED Status picture_passes_skip(PicturePasses *passes, int64_t count);

/* The next batch; *more is false behind the last. */
CHECKED Status picture_passes_next(PicturePasses *passes, bool *more);
