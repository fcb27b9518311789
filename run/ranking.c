#include "run/ranking.h"

#include <math.h>

int64_t ranking_of(const float *logits, int64_t classes, int64_t label) {
    int64_t before = 0;
    for (int64_t i = 0; i < classes; i++)
        before += logits[i] > logits[label] || (logits[i] == logits[label] && i < label);
    return before;
}

void ranking_first(const float *logits, int64_t classes, RankedClass *first, int64_t count) {
    int64_t found = 0;
    double sum = 0;
    for (int64_t i = 0; i < classes; i++) {
        int64_t at = found < count ? found++ : count;
        while (at > 0 && logits[i] > logits[first[at - 1].label]) {
            if (at < count) first[at] = first[at - 1];
            at--;
        }
        if (at < count) first[at].label = (int32_t)i;
    }
    double most = logits[first[0].label];
    for (int64_t i = 0; i < classes; i++) sum += exp(logits[i] - most);
    for (int64_t i = 0; i < count; i++) first[i].probability = exp(logits[first[i].label] - most) / sum;
}
