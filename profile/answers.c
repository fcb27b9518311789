#include "profile/answers.h"

#include "base/memory.h"

#include <stdarg.h>

void answer_line(Answer *a, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    a->lines = memory_grow(a->lines, &a->room, a->count + 1, sizeof *a->lines);
    a->lines[a->count++] = memory_text(text);
}

void answers_print(const Answers *answers, FILE *file) {
    for (int i = 0; i < QUESTION_COUNT; i++) {
        const Answer *a = &answers->answers[i];
        fprintf(file, "%s%d. %s\n", i ? "\n" : "", i + 1, a->question);
        for (int64_t k = 0; k < a->count; k++) fprintf(file, "   %s\n", a->lines[k]);
    }
}

void answers_free(Answers *answers) {
    for (int i = 0; i < QUESTION_COUNT; i++) {
        for (int64_t k = 0; k < answers->answers[i].count; k++) memory_free(answers->answers[i].lines[k]);
        memory_free(answers->answers[i].lines);
    }
    *answers = (Answers){0};
}
