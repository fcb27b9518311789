/* bundle: a profile as one JSON document, for programs: docs/profile-schema.md says what each key means. */
#pragma once

#include "base/json_writer.h"
#include "profile/questions.h"
#include "profile/profile.h"

/* The whole document. */
void bundle_render(const Profile *profile, const Answers *answers, JsonWriter *writer);

/* Of it, one recorded step of a trace, event by event, for people to look at: an object. */
void bundle_timeline(const Trace *trace, JsonWriter *writer);
