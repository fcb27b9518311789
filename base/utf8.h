/* utf8: which bytes are UTF-8 (Unicode 15, table 3-7): overlong forms, surrogates and what lies beyond
 * U+10FFFF are not. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The bytes of the character at `at`, of which `left` bytes are there; 0 if it is none. */
int utf8_character(const uint8_t *at, int64_t left);

/* The end of the stretch of valid UTF-8 that begins at `from` (`from` itself if none does). */
int64_t utf8_valid_end(const uint8_t *text, int64_t from, int64_t length);

/* Puts a '?' for what a terminal would obey, or could not show: control characters, C1's too, and bytes that
 * are not UTF-8. With `lines`, newlines and tabs stay. */
void utf8_tame(char *text, int64_t length, bool lines);
