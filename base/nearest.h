/* nearest: what somebody who mistyped a name most likely meant. */
#pragma once

/* The name with the smallest edit distance to `text` (Levenshtein 1966), the first of equals; NULL if count
 * is 0. */
const char *nearest_name(const char *text, const char *const names[], int count);
