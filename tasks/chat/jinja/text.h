/* text: strings as in Python, counted in characters, stored as UTF-8. An invalid byte counts as a
 * character. */
#pragma once

#include "tasks/chat/jinja/value.h"

/* The first character of `left` bytes; *size is set to its length in bytes. */
int32_t jinja_decode(const char *at, int64_t left, int64_t *size);
void jinja_write_character(JinjaText *text, int32_t code);
int64_t jinja_characters(JinjaValue string);
/* The byte offset of a character, or the end if there is none. */
int64_t jinja_offset(JinjaValue string, int64_t character);
bool jinja_is_space(int32_t code); // like str.isspace()

typedef enum { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 } JinjaSides;
/* Strips spaces, or the characters of `characters`, unless that is missing or none. */
JinjaValue jinja_strip(JinjaValue string, JinjaValue characters, JinjaSides sides);

/* The first, or last, position of `part` in the bytes from `from` on, or -1. */
int64_t jinja_search(JinjaPool *pool, JinjaValue string, JinjaValue part, int64_t from);
int64_t jinja_search_last(JinjaPool *pool, JinjaValue string, JinjaValue part);
JinjaValue jinja_replace(JinjaPool *pool, JinjaValue string, JinjaValue old, JinjaValue new, int64_t most);
/* Splits at `separator` or, if that is missing or none, at spaces; at most `most` times, or without limit if
 * negative. Returns a list. */
JinjaValue jinja_split(JinjaPool *pool, JinjaValue string, JinjaValue separator, int64_t most);
JinjaValue jinja_split_last(JinjaPool *pool, JinjaValue string, JinjaValue separator, int64_t most);
JinjaValue jinja_split_lines(JinjaPool *pool, JinjaValue string);

/* CASE_WORDS is str.title(), CASE_FIRST str.capitalize(). False for letters whose case is several letters or
 * depends on context. */
typedef enum { CASE_UPPER, CASE_LOWER, CASE_WORDS, CASE_FIRST } JinjaCase;
bool jinja_change_case(JinjaText *text, JinjaValue string, JinjaCase to);
