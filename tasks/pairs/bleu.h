/* bleu: how near translations are to references (Papineni, Roukos, Ward, Zhu 2002), over a whole corpus,
 * with one reference for each sentence, as sacreBLEU's default computes it: words by mteval-v13a's rules,
 * case kept, up to 4-grams, and an order without a match counts as half, a quarter, ... of one match (Chen
 * and Cherry 2014, "smoothing 3"). */
#pragma once

#include <stdint.h>

enum { BLEU_ORDERS = 4 };

/* Counts, all zero before the first sentence. */
typedef struct {
    int64_t matched[BLEU_ORDERS], total[BLEU_ORDERS]; // n-grams of the translations
    int64_t words, reference_words;
} Bleu;

/* Counts a sentence in: texts of so many bytes, without a line's end. */
void bleu_add(Bleu *bleu, const char *translation, int64_t length, const char *reference,
              int64_t reference_length);

double bleu_score(const Bleu *bleu);                // 0 to 100
double bleu_brevity(const Bleu *bleu);              // the factor for translations that are too short, 0 to 1
double bleu_precision(const Bleu *bleu, int order); // percent of the n-grams of this order, 1 to 4, smoothed
