#include "kernels/sample/sample.h"

#include "base/checked.h"
#include "kernels/sample/weight.h"

#include <math.h>

/* The number of weights at or above a threshold, and their sum. */
typedef struct {
    int64_t count, mass;
} Reach;

/* The threshold of the kept ids: all with weights from `high` up, and the first `ties` ids with weights in
 * [low, high), which are all equal or a single one. */
typedef struct {
    int32_t low, high;
    Reach above; // reach of the weights from `high` up
    int64_t ties;
    int64_t mass; // sum of all kept weights
} Cut;

static Reach reach(const int32_t *weights, int64_t vocab, int32_t least) {
    int64_t count = 0, mass = 0;
#pragma omp simd reduction(+ : count, mass)
    for (int64_t i = 0; i < vocab; i++) {
        count += weights[i] >= least;
        mass += weights[i] >= least ? weights[i] : 0;
    }
    return (Reach){count, mass};
}

/* Bisects for the smallest set of heaviest weights that reaches `count` or `mass`. The weights from `low`
 * up reach them. */
static Cut cut(const int32_t *weights, int64_t vocab, int32_t low, Reach at_low, int64_t count,
               int64_t mass) {
    int32_t high = SAMPLE_ONE + 1;
    Reach above = {0};
    while (high - low > 1 && at_low.count - above.count > 1) {
        int32_t middle = low + (high - low) / 2;
        Reach r = reach(weights, vocab, middle);
        if (r.count >= count && r.mass >= mass) {
            low = middle;
            at_low = r;
        } else {
            high = middle;
            above = r;
        }
    }
    Cut c = {low, high, above, 1, at_low.mass};
    if (at_low.count - above.count == 1) return c;
    int64_t by_count = count - above.count, by_mass = low ? pieces(mass - above.mass, low) : 0;
    c.ties = by_count > by_mass ? by_count : by_mass;
    c.mass = above.mass + c.ties * low;
    return c;
}

static int64_t least_mass(double top_p, int64_t mass) {
    double least = ceil(top_p * (double)mass);
    return least < 1 ? 1 : (int64_t)least;
}

static Cut restrict_to(const SampleRule *rule, const int32_t *weights, int64_t vocab) {
    Reach all = reach(weights, vocab, 0);
    Cut c = {0, 0, all, 0, all.mass};
    if (rule->top_k && rule->top_k < vocab) c = cut(weights, vocab, 0, all, rule->top_k, 0);
    if (rule->top_p >= 1) return c;
    int64_t mass = least_mass(rule->top_p, c.mass);
    if (c.above.mass >= mass) return cut(weights, vocab, c.high, c.above, 0, mass);
    if (c.ties > 1) { // equal weights
        c.ties = (mass - c.above.mass + c.low - 1) / c.low;
        c.mass = c.above.mass + c.ties * c.low;
    }
    return c;
}

int32_t sample_host(const SampleRule *rule, const float *logits, int64_t vocab, int32_t best, double uniform,
                    int32_t *weights) {
    if (rule->greedy) return best;
    const float largest = logits[best], sharpness = rule->sharpness;
#pragma omp simd
    for (int64_t i = 0; i < vocab; i++) {
        const int32_t weight = sample_weight(logits[i] - largest, sharpness);
        weights[i] = weight >= rule->least ? weight : 0;
    }
    Cut c = restrict_to(rule, weights, vocab);
    int64_t target = (int64_t)(uniform * (double)c.mass), sum = 0, ties = 0;
    int32_t chosen = best; // stays the result if the product was rounded up to the total
    for (int64_t i = 0; i < vocab; i++) {
        bool kept = weights[i] >= c.high || (weights[i] >= c.low && ties++ < c.ties);
        if (!kept) continue;
        sum += weights[i];
        if (sum > target) return (int32_t)i;
    }
    return chosen;
}
