/* decompose: the canonical decomposition of a text (Unicode, section 3.11). utf8proc's own sorts a run of
 * combining marks by exchanging neighbours, in quadratic time; this one takes linear time. */
#pragma once

#include <stdint.h>

/* Decomposes text[0, length), valid UTF-8, to code points in canonical order; returns their count. `*points`
 * grows by memory_grow, with the capacity *room. */
int64_t unicode_decompose(const uint8_t *text, int64_t length, int32_t **points, int64_t *room);
