#include "kernels/sample/sample.h"

#include <math.h>

void sample_rule_terms(const SampleRule *r, double terms[SAMPLE_TERMS]) {
    const double all[SAMPLE_TERMS] = {r->greedy, (double)r->sharpness, (double)r->top_k, r->top_p, r->least};
    for (int i = 0; i < SAMPLE_TERMS; i++) terms[i] = all[i];
}

bool sample_rules_equal(const SampleRule *a, const SampleRule *b) {
    double of_a[SAMPLE_TERMS], of_b[SAMPLE_TERMS];
    sample_rule_terms(a, of_a);
    sample_rule_terms(b, of_b);
    bool equal = true;
    for (int i = 0; i < SAMPLE_TERMS; i++) equal = equal && of_a[i] == of_b[i];
    return equal;
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
