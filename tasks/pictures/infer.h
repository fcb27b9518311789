/* infer: the options and commands of ./infer for pictures. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

typedef struct {
    const char *classify;      // a picture, a pattern or a folder
    const char *attention_map; // PNG file to draw; "": none
    bool skip_broken;          // skip pictures that cannot be read
    int64_t workers;           // threads that decode pictures
} PicturesInfer;

extern const OptionTable pictures_infer;

/* --classify: prints the likeliest classes of each picture, and writes them as JSON; --attention-map draws
 * the class token's attention in the last layer. */
CHECKED Status classify_pictures(Session *session, const InferOptions *options, const OptionSet *set);

/* --eval: accuracy, mean loss and the most frequent mistakes. */
CHECKED Status evaluate_pictures(Session *session, const InferOptions *options, const OptionSet *set);

/* --embed: hidden states as safetensors, one row per picture. */
CHECKED Status embed_pictures(Session *session, const InferOptions *options, const OptionSet *set);
