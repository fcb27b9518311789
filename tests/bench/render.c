/* render: runs chat templates, for tests/peers/templates.py. Each line is {"template", "variables", "now"},
 * the last a local time in seconds since 1970; each answer is a line, {"text", "spans"} or {"error"}. */
#include "tasks/chat/jinja/jinja.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *answer(Status status, const JinjaOutput *output) {
    if (status) return json_pack("{ss}", "error", status_message(status));
    json_t *spans = json_array();
    for (int64_t i = 0; i < output->spans_count; i++)
        json_array_append_new(
            spans, json_pack("[II]", (json_int_t)output->spans[i][0], (json_int_t)output->spans[i][1]));
    return json_pack("{so so}", "text", json_stringn_nocheck(output->text, (size_t)output->length), "spans",
                     spans);
}

static Status render(const char *line, size_t length) {
    JinjaTemplate *template = NULL;
    JinjaOutput output = {0};
    struct tm now;
    json_t *request = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
    if (!request) return fail(ERROR_FORMAT, "not a request: %.80s", line);
    json_t *source = json_object_get(request, "template");
    time_t seconds = (time_t)json_integer_value(json_object_get(request, "now"));
    localtime_r(&seconds, &now);
    Status status = jinja_compile(json_string_value(source), (int64_t)json_string_length(source), &template);
    if (!status) status = jinja_render(template, json_object_get(request, "variables"), &now, &output);
    json_t *reply = answer(status, &output);
    json_dumpf(reply, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(reply);
    json_decref(request);
    status_free(status);
    jinja_output_free(&output);
    jinja_free(template);
    return OK;
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    Status status = OK;
    while (!status && (length = getline(&line, &room, stdin)) > 0) status = render(line, (size_t)length);
    free(line);
    return status_exit(status, "render");
}
