/* questions: what people ask a profile, answered with its figures. */
#pragma once

#include "profile/answers.h"
#include "profile/profile.h"

/* Answers all six; of a profile with two paths, for each. To be freed with answers_free. */
Answers questions_answer(const Profile *profile);
