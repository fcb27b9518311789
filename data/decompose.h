/* decompose: the canonical decomposition of a text (Unicode, section 3.11). utf8proc's own orders a run of
 * combining marks by exchanging neighbours, which takes quadratic time; this one takes linear time. */
#pragma once

#include <stdint.h>

/* The code points of text[0, length), valid UTF-8, decomposed and in canonical order; returns their count.
 * Grows `*points` (*room) by base/memory.h. */
int64_t unicode_decompose(const uint8_t *text, int64_t length, int32_t **points, int64_t *room);
