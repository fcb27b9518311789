/* texts: tokens of texts (data/tokens.h) as a task's source of batches (run/feed.h). */
#pragma once

#include "run/feed.h"

CHECKED Status texts_open(const FeedOptions *options, const char *data, void **source);
int64_t texts_rows(const void *source);
void texts_print(const void *source, const Session *session);
void texts_record(const void *source, JsonWriter *w);
CHECKED Status texts_sample(const void *source, int64_t row, int32_t *sample, int64_t *length);
void texts_close(void *source);
