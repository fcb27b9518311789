/* answers: to what people ask a profile, in sentences. */
#pragma once

#include <stdint.h>
#include <stdio.h>

enum { QUESTION_COUNT = 6 };

typedef struct {
    const char *question;
    char **lines; // each a sentence with its figures
    int64_t count, room;
} Answer;

typedef struct {
    Answer answers[QUESTION_COUNT];
} Answers;

/* Adds a line, printf-style. */
void answer_line(Answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));

void answers_print(const Answers *answers, FILE *file);
void answers_free(Answers *answers);
