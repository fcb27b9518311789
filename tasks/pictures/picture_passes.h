/* picture_passes: runs a model over all pictures of a source, batch by batch, prefetched by the loader's
 * workers. */
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
    int64_t first, count; // pictures of the current batch
    int64_t columns;      // values per picture: logits including padding, or hidden states
    float *rows;          // (count, columns)
    Batch batch;          // its targets are the classes; -1: a broken picture
} PicturePasses;

/* Allocates memory and loads weights. `use` is INFERENCE_LOGITS or INFERENCE_HIDDEN; `mapped`: with the
 * attention map. Close it also after an error. It must not move. */
CHECKED Status picture_passes_open(const Session *session, const InferOptions *options, const OptionSet *set,
                                   const ImageSource *source, InferenceUse use, bool mapped,
                                   PicturePasses *passes);
void picture_passes_close(PicturePasses *passes);

/* Call before the first batch: it begins after `count` pictures. */
CHECKED Status picture_passes_skip(PicturePasses *passes, int64_t count);

/* The next batch; *more is false after the last. */
CHECKED Status picture_passes_next(PicturePasses *passes, bool *more);
