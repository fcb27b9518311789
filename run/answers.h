/* answers: output of ./infer with one answer per input line, in the order of the lines. Answers may be added
 * in any order, with their number; each is written as soon as all before it have been written.
 *
 * Without --output=FILE the answers go to standard output. With it they go to FILE.part, whose first line
 * identifies the run, and FILE appears, complete, when the last answer has been added. The same command
 * continues a FILE.part that an interrupted run has left. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

#include "base/files.h"
#include "base/memory.h"

/* Batches that are sorted by length together: an answer waits for at most this many batches. */
enum { ANSWERS_BATCHES = 16 };

typedef struct {
    const Session *session;
    const InferOptions *options;
    const OptionSet *set;
    uint64_t input; // a digest: a run on another input is not continued
    int64_t total;  // number of answers expected
    int64_t record; // bytes of each record; 0: lines of text
    void *context;  // for the callbacks below
    /* Receives each line that an earlier run has left; may be NULL. */
    void (*keep)(void *context, int64_t number, const char *line, int64_t length);
    /* Writes FILE from all answers, concatenated; NULL: FILE is the concatenation. */
    Status (*publish)(void *context, const char *path, const void *bytes);
} AnswersOptions;

typedef struct Answers Answers;

/* ERROR_USAGE if FILE.part is another run's, ERROR_FILE if another process is writing to it. From now on
 * signals are deferred: the caller begins no more, and ends (run/signals.h). */
CHECKED Status answers_open(const AnswersOptions *options, Answers **answers);
void answers_close(Answers *answers); // accepts NULL
CLOSER(answers_release, Answers, answers_close)

/* The answers [0, kept) exist already. */
int64_t answers_kept(const Answers *answers);

/* Adds an answer, which is copied: a line without its end, or a record. Draws a progress bar on a
 * terminal. */
CHECKED Status answers_add(Answers *answers, int64_t number, const void *bytes, int64_t count);

/* If all answers exist (*whole), writes FILE and removes FILE.part. Otherwise reports how many exist. */
CHECKED Status answers_finish(Answers *answers, bool *whole);
