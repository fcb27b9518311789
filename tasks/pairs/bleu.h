/* bleu: BLEU of translations (Papineni, Roukos, Ward, Zhu 2002) over a whole corpus, with one reference per
 * sentence, as sacreBLEU's default computes it: tokenization by mteval-v13a, case-sensitive, up to 4-grams;
 * an order without a match counts as half, a quarter, ... of one match (Chen and Cherry 2014, "smoothing
 * 3"). */
#pragma once

#include <stdint.h>

enum { BLEU_ORDERS = 4 };

/* Counts, all zero before the first sentence. */
typedef struct {
    int64_t matched[BLEU_ORDERS], total[BLEU_ORDERS]; // n-grams of the translations
    int64_t words, reference_words;
} Bleu;

/* Adds a sentence; the texts have no line ends. */
void bleu_add(Bleu *bleu, const char *translation, int64_t length, const char *reference,
              int64_t reference_length);

double bleu_score(const Bleu *bleu);                // 0 to 100
double bleu_brevity(const Bleu *bleu);              // the factor for translations that are too short, 0 to 1
double bleu_precision(const Bleu *bleu, int order); // precision of n-grams of this order, 1 to 4, smoothed,
                                                    // in percent
