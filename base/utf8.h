/* utf8: validates UTF-8 (Unicode 15, table 3-7). Overlong forms, surrogates and values above U+10FFFF are
 * invalid. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The length of the character at `at`, with `left` bytes available; 0 if it is invalid. */
int utf8_character(const uint8_t *at, int64_t left);

/* The end of the valid UTF-8 that begins at `from` (`from` itself if there is none). */
int64_t utf8_valid_end(const uint8_t *text, int64_t from, int64_t length);

/* Replaces characters that a terminal would interpret or cannot show by '?': control characters, C1
 * included, and invalid UTF-8. With `lines`, newlines and tabs stay. */
void utf8_tame(char *text, int64_t length, bool lines);
