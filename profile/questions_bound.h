/* questions_bound: the fifth question, what each fusion saves, and the sixth, what limits the step. */
#ifndef PROFILE_QUESTIONS_BOUND_H
#define PROFILE_QUESTIONS_BOUND_H

#include "profile/answers.h"
#include "profile/profile.h"

void question_savings(const Profile *profile, Answer *answer);
void question_bound(const ProfilePath *path, Answer *answer);
#endif
