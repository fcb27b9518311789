/* questions: what people ask a profile, answered with its figures. */
#ifndef PROFILE_QUESTIONS_H
#define PROFILE_QUESTIONS_H

#include "profile/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { QUESTION_COUNT = 6 };

typedef struct {
    const char *question;
    char **lines; // each a sentence with its figures
    int count, room;
} Answer;

typedef struct {
    Answer answers[QUESTION_COUNT];
} Answers;

/* Answers all six; of a profile with two paths, for each. */
CHECKED Status questions_answer(const Profile *profile, Answers *answers);
void questions_free(Answers *answers);
void questions_print(const Answers *answers, FILE *file);

/* Adds a line, printf-style. */
CHECKED Status answer_line(Answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The fifth and the sixth: what each fusion saves; what binds the step (questions_bound.c). */
CHECKED Status question_savings(const Profile *profile, Answer *answer);
CHECKED Status question_bound(const Profile *profile, const ProfilePath *path, Answer *answer);

/* A figure as people read it: in_words(CELL_TIME, ns).text, for the arguments of one call. */
typedef struct {
    char text[CELL_TEXT_BYTES];
} Words;
Words in_words(CellKind kind, double number);

#ifdef __cplusplus
}
#endif
#endif
