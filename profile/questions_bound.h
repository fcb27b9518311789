/* questions_bound: the fifth question, what each fusion saves, and the sixth, what limits the step. */
#pragma once

#include "profile/answers.h"
#include "profile/profile.h"

void question_savings(const Profile *profile, Answer *answer);
void question_bound(const ProfilePath *path, Answer *answer);
