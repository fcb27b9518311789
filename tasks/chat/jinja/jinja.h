/* jinja: an interpreter of the part of Jinja that chat templates use, which prints what transformers'
 * jinja2 does (trim_blocks and lstrip_blocks are on, nothing is escaped, what is undefined prints
 * nothing). There are
 *
 *   statements  for (with loop, a condition, else, break, continue), if, set, macro, with, filter,
 *               generation, raw
 *   values      strings, numbers, lists, tuples, dicts, namespaces, their methods, slices, filters and tests
 *   functions   namespace, dict, range, raise_exception, strftime_now
 *
 * What is not there is refused by its line: a statement or an unknown name of a filter when the template
 * is compiled, a known filter or method that is not supported when it is met. A template is a stranger's
 * program: its steps, its depth, its memory and what it prints are bounded. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct JinjaTemplate JinjaTemplate;

/* ERROR_FORMAT names the line of what is wrong, or is not supported. */
CHECKED Status jinja_compile(const char *source, int64_t length, JinjaTemplate **template);
void jinja_free(JinjaTemplate *template); // NULL is fine

/* What a template prints. All-zero at first; jinja_output_free ends it. */
typedef struct {
    char *text;
    int64_t length;      // bytes
    int64_t (*spans)[2]; // which of them `generation` blocks have printed: from, to
    int64_t spans_count;
    bool hidden; // there were such blocks where what they print is captured, so that the spans are not all
} JinjaOutput;
void jinja_output_free(JinjaOutput *output);

/* Renders the template with an object of variables; `now` is for strftime_now. ERROR_FORMAT where jinja2
 * raises, or what is met is not supported. */
CHECKED Status jinja_render(const JinjaTemplate *template, const json_t *variables, const struct tm *now,
                            JinjaOutput *output);

/* Does the template mark what the assistant says with {% generation %}? */
bool jinja_marks_generation(const JinjaTemplate *template);
