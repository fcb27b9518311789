/* classify_pictures: what ./infer does with pictures. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

/* --classify: prints the likeliest classes of each picture, and writes them as JSON; --attention-map draws
 * what the class token attends to in the last layer. */
CHECKED Status classify_pictures(Session *session, const InferOptions *options);

/* --eval: accuracy, mean loss and which classes are taken for which. */
CHECKED Status evaluate_pictures(Session *session, const InferOptions *options);

/* --embed: hidden states as safetensors, a row for each picture. */
CHECKED Status embed_pictures(Session *session, const InferOptions *options);
