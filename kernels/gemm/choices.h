/* choices: the autotuning cache: the fastest algorithm for each product, in a file of the user's cache
 * folder, so that later processes compute the same bits. A line is a product's key, the algorithm's
 * fingerprint and its time. The file is not trusted: a line only selects one of the available algorithms, so
 * that a damaged file costs at most time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

typedef struct {
    uint64_t fingerprint;
    float microseconds;
} KeptChoice;

/* Whether to autotune at all: not with FUSEBOX_TUNE=0, and not without a cache folder, because two processes
 * might then select different algorithms. */
bool choices_wanted(void);

/* Looks up the choice for a key of `words` numbers in the named file; the name may contain any characters. */
bool choice_find(const char *file, const int64_t *key, int words, KeptChoice *choice);
/* Stores a choice. Returns false if it cannot be written, which is not an error: the next process will
 * autotune again. */
bool choice_keep(const char *file, const int64_t *key, int words, const KeptChoice *choice);

/* Locks autotuning for this process until it closes the returned descriptor; -1 if that fails. */
int choices_lock(void);

__END_DECLS
