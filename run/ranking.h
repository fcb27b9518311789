/* ranking: the most likely classes. */
#pragma once

#include <stdint.h>

/* The rank of `label`: how many classes are likelier, or equally likely and before it. */
int64_t ranking_of(const float *logits, int64_t classes, int64_t label);

typedef struct {
    int32_t label;
    double probability;
} RankedClass;

/* The `count` likeliest classes, in order, by the softmax of their logits. count <= classes. */
void ranking_first(const float *logits, int64_t classes, RankedClass *first, int64_t count);
