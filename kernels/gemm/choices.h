/* choices: which way of computing a product was the fastest, kept in a file of the user's cache, so that a
 * later process computes the same bits. A line is a product's key, the choice's fingerprint and its time.
 * Nothing in it is believed: a line only picks one among the ways that there are, so that a damaged file costs
 * time at worst. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

typedef struct {
    uint64_t fingerprint;
    float microseconds;
} KeptChoice;

/* Whether choices are made by the clock at all: not with FUSEBOX_TUNE=0, nor where there is no folder to keep
 * them in, since two processes might then choose differently. */
bool choices_wanted(void);

/* The choice for a key of `words` numbers in the file of that name, which may be made of any words. */
bool choice_find(const char *file, const int64_t *key, int words, KeptChoice *choice);
/* Adds one. False where it cannot be written, which is no error: the next process will choose anew. */
bool choice_keep(const char *file, const int64_t *key, int words, const KeptChoice *choice);

/* Makes this process the only one that chooses, until it closes what this returns; -1 where that cannot
 * be. */
int choices_lock(void);

__END_DECLS
