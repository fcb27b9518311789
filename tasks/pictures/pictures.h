/* pictures: batches of pictures for classification (tasks/pictures/images/images.h), in the loader's terms: a
 * row is a picture, and seq is 1. A row's content depends only on the seed and its position. */
#pragma once

#include "tasks/pictures/images/images.h"
#include "tasks/pictures/images/transform.h"
#include "data/loader.h"

/* Pictures that could not be read and were skipped: each is reported once. */
typedef struct BrokenPictures BrokenPictures;
BrokenPictures *broken_open(int64_t pictures); // the total number of pictures
void broken_close(BrokenPictures *broken);     // accepts NULL
int64_t broken_count(BrokenPictures *broken);
/* The message about the index-th broken picture; the caller frees it. */
char *broken_message(BrokenPictures *broken, int64_t index);

typedef struct {
    const ImageSource *source; // outlives the loader
    ImageProcessor processor;
    const Augmentation *augmentation; // outlives the loader; NULL: none, as in validation
    /* Shuffles the source once, so that the last tenth of a folder is not its last classes. Otherwise
     * pictures are in order. */
    bool mixed;
    bool once;              // pictures after the end of the first epoch are ignored: their class is -1
    BrokenPictures *broken; // outlives the loader; NULL: a broken picture is an error
} PictureOptions;

/* options->first and length count pictures. A broken picture that is skipped is replaced by the next one in
 * training, and ignored in validation. */
CHECKED Status loader_open_pictures(const LoaderOptions *options, const PictureOptions *pictures,
                                    Loader **loader);

/* Synthetic pictures with classes: each class is a random pattern, with noise added. There are DRAWN_PICTURES
 * of them, of which first and length select a part. */
enum { DRAWN_PICTURES = 1 << 16 };
typedef struct {
    int64_t side, channels, classes;
    uint64_t seed; // seed of the pictures
} DrawnPictures;
CHECKED Status loader_open_drawn(const LoaderOptions *options, const DrawnPictures *what, Loader **loader);
