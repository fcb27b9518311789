/* ranking: which classes a model finds likeliest. */
#pragma once

#include <stdint.h>

/* How many classes are likelier than `label`, or as likely and before it: 0 for the likeliest. */
int64_t ranking_of(const float *logits, int64_t classes, int64_t label);

typedef struct {
    int32_t label;
    double probability;
} RankedClass;

/* The `count` likeliest of the classes, in order, by the softmax of their logits. count <= classes. */
void ranking_first(const float *logits, int64_t classes, RankedClass *first, int64_t count);
