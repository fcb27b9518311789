/* questions: answers common questions about a profile in sentences with its figures. */
#pragma once

#include "report/profile.h"

enum { QUESTION_COUNT = 7 };

typedef struct {
    const char *question;
    char **lines; // each a sentence with its figures
    int64_t count, room;
} Answer;

typedef struct {
    Answer answers[QUESTION_COUNT];
} Answers;

/* Answers all seven questions; with two paths, for each. Free with answers_free. */
Answers questions_answer(const Profile *profile);
void answers_free(Answers *answers);

/* ---- for the functions that answer ---- */

/* Adds a line, printf-style. */
void answer_line(Answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The fifth question: what each fusion saves. The sixth: what limits the step. The seventh: which rank the
 * others wait for. */
void question_savings(const Profile *profile, Answer *answer);
void question_bound(const Profile *profile, const ProfilePath *path, Answer *answer);
void question_ranks(const ProfilePath *path, Answer *answer);
