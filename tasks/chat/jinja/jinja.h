/* jinja: an interpreter for the part of Jinja that chat templates use, with the output of transformers'
 * jinja2 (trim_blocks and lstrip_blocks are on, nothing is escaped, undefined values print nothing). It
 * supports
 *
 *   statements  for (with loop, a condition, else, break, continue), if, set, macro, with, filter,
 *               generation, raw
 *   values      strings, numbers, lists, tuples, dicts, namespaces, their methods, slices, filters and tests
 *   functions   namespace, dict, range, raise_exception, strftime_now
 *
 * Everything else is refused, naming the line: a statement or an unknown name of a filter when the template
 * is compiled, a known but unsupported filter or method when it is reached. A template is an untrusted
 * program: its steps, its depth, its memory and its output are bounded. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct JinjaTemplate JinjaTemplate;

/* ERROR_FORMAT names the line that is invalid or unsupported. */
CHECKED Status jinja_compile(const char *source, int64_t length, JinjaTemplate **template);
void jinja_free(JinjaTemplate *template); // accepts NULL

/* A template's output. All-zero at first; jinja_output_free ends it. */
typedef struct {
    char *text;
    int64_t length;      // bytes
    int64_t (*spans)[2]; // the bytes that `generation` blocks have printed: from, to
    int64_t spans_count;
    bool hidden; // some such blocks were captured, so the spans are incomplete
} JinjaOutput;
void jinja_output_free(JinjaOutput *output);

/* Renders the template with an object of variables; `now` is for strftime_now. ERROR_FORMAT if jinja2 would
 * raise, or something unsupported is reached. */
CHECKED Status jinja_render(const JinjaTemplate *template, const json_t *variables, const struct tm *now,
                            JinjaOutput *output);

/* Whether the template marks the assistant's text with {% generation %}. */
bool jinja_marks_generation(const JinjaTemplate *template);
