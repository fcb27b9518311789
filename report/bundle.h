/* bundle: a profile as one JSON document, for programs: docs/profile-schema.md says what each key means. */
#pragma once

#include "base/json_writer.h"
#include "report/questions.h"
#include "report/profile.h"

/* The whole document. */
void bundle_render(const Profile *profile, const Answers *answers, JsonWriter *writer);
