/* answers: what ./infer makes of each line of its input, written in the order of the lines. Whoever has an
 * answer hands it over with its number, in any order; it is written as soon as all before it are there.
 *
 * Without --output=FILE the answers go to standard output. With it they go to FILE.part, which begins with a
 * line that names the run, and FILE is written in one piece when the last one is there. The same command
 * continues a FILE.part that an interrupted run has left. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

#include "base/files.h"
#include "base/memory.h"

/* How many batches are sorted by length together: an answer waits for as many at most. */
enum { ANSWERS_BATCHES = 16 };

typedef struct {
    const Session *session;
    const InferOptions *options;
    const OptionSet *set;
    uint64_t input; // a digest: what was made of another input is not continued
    int64_t total;  // answers that there will be
    int64_t record; // bytes of each; 0: lines of text
    void *context;  // of the following
    /* Gets each line that an earlier run has left; NULL: nobody asks. */
    void (*keep)(void *context, int64_t number, const char *line, int64_t length);
    /* Writes FILE from all answers, one behind the other; NULL: FILE is they. */
    Status (*publish)(void *context, const char *path, const void *bytes);
} AnswersOptions;

typedef struct Answers Answers;

/* ERROR_USAGE where FILE.part is another run's, ERROR_FILE where another process is writing into it. From here
 * on a signal is waited for: the caller ends after the batch at hand (run/signals.h). */
CHECKED Status answers_open(const AnswersOptions *options, Answers **answers);
void answers_close(Answers *answers); // NULL is fine
CLOSER(answers_release, Answers, answers_close)

/* The answers [0, kept) are there already. */
int64_t answers_kept(const Answers *answers);

/* Takes a copy of an answer: a line without its end, or a record. Draws a bar on a terminal. */
CHECKED Status answers_add(Answers *answers, int64_t number, const void *bytes, int64_t count);

/* Writes FILE and removes FILE.part, if *whole: all answers are there. If not, says how many are. */
CHECKED Status answers_finish(Answers *answers, bool *whole);
