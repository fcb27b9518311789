#include "kernels/sample/sample.h"

#include <math.h>

bool sample_rules_equal(const SampleRule *a, const SampleRule *b) {
    return a->greedy == b->greedy && a->sharpness == b->sharpness && a->top_k == b->top_k &&
           a->top_p == b->top_p && a->least == b->least;
}

SampleRule sample_rule(double temperature, int64_t top_k, double top_p, double min_p) {
    const double log2_e = 1.4426950408889634, largest = 3e38; // finite, and large enough to be greedy
    double sharpness = log2_e / temperature;
    return (SampleRule){.greedy = temperature == 0 || top_k == 1,
                        .sharpness = (float)(sharpness < largest ? sharpness : largest),
                        .top_k = top_k,
                        .top_p = top_p,
                        .least = (int32_t)ceil(min_p * SAMPLE_ONE)};
}
