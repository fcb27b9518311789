/* pictures: batches of pictures for a class task (tasks/pictures/images/images.h), on the loader's terms: a row is a
 * picture, and seq is 1. What a row holds follows from the seed and its position alone. */
#pragma once

#include "tasks/pictures/images/images.h"
#include "tasks/pictures/images/transform.h"
#include "data/loader.h"

/* Pictures that could not be read and were passed over: each is told once. */
typedef struct BrokenPictures BrokenPictures;
BrokenPictures *broken_open(int64_t pictures); // that there are
void broken_close(BrokenPictures *broken);     // NULL is fine
int64_t broken_count(BrokenPictures *broken);
/* The message about the picture that was found broken as number `index` of them; the caller frees it. */
char *broken_message(BrokenPictures *broken, int64_t index);

typedef struct {
    const ImageSource *source; // outlives the loader
    ImageProcessor processor;
    const Augmentation *augmentation; // outlives the loader; NULL: none, as in validation
    /* The first pictures of the source in an order that is shuffled once and for all: so that the last tenth
     * of a folder is not its last classes. Without, all are in their order. */
    bool mixed;
    bool once;              // pictures beyond the end of the first epoch do not count: their class is -1
    BrokenPictures *broken; // outlives the loader; NULL: a broken picture is an error
} PictureOptions;

/* options->first and length are pictures. In the place of a broken picture that is passed over, training gets
 * the one behind it; in validation it does not count. */
CHECKED Status loader_open_pictures(const LoaderOptions *options, const PictureOptions *pictures,
                                    Loader **loader);

/* Pictures with their classes that need no data: what a class looks like is drawn, and so is the noise over
 * it. There are DRAWN_PICTURES of them, of which first and length choose a part. */
enum { DRAWN_PICTURES = 1 << 16 };
typedef struct {
    int64_t side, channels, classes;
    uint64_t seed; // of the pictures
} DrawnPictures;
CHECKED Status loader_open_drawn(const LoaderOptions *options, const DrawnPictures *what, Loader **loader);
