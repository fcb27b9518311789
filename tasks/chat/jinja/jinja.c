#include "tasks/chat/jinja/jinja.h"

#include "base/memory.h"
#include "tasks/chat/jinja/run.h"

#include <string.h>

enum {
    SOURCE_MOST = 1 << 20,
    TREE_BYTES = 1 << 28,
    STEPS_MOST = 1 << 23,
    BYTES_MOST = 1 << 28, // maximum memory of a rendering, including intermediate values
};

struct JinjaTemplate {
    JinjaPool pool;
    JinjaNode *list;
    bool marks;
};

Status jinja_compile(const char *source, int64_t length, JinjaTemplate **template) {
    *template = NULL;
    if (length > SOURCE_MOST) return fail(ERROR_FORMAT, "the template has more than %d bytes", SOURCE_MOST);
    JinjaTemplate *t = memory_allocate(sizeof *t);
    t->pool = (JinjaPool){.bytes = TREE_BYTES, .steps = INT64_MAX};
    JinjaTokens tokens = {.pool = &t->pool};
    Status status = jinja_tokenize(source, length, &tokens);
    if (!status) status = jinja_parse(&tokens, &t->list);
    for (int64_t i = 0; !status && i + 1 < tokens.count; i++)
        t->marks |= tokens.tokens[i].kind == TOKEN_BLOCK && tokens.tokens[i + 1].kind == TOKEN_NAME &&
                    strcmp(tokens.tokens[i + 1].name, "generation") == 0;
    if (status)
        jinja_free(t);
    else
        *template = t;
    return status;
}

void jinja_free(JinjaTemplate *template) {
    if (!template) return;
    jinja_pool_free(&template->pool);
    memory_free(template);
}

bool jinja_marks_generation(const JinjaTemplate *template) {
    return template->marks;
}

void jinja_output_free(JinjaOutput *output) {
    memory_free(output->text);
    memory_free(output->spans);
    *output = (JinjaOutput){0};
}

Status jinja_render(const JinjaTemplate *template, const json_t *variables, const struct tm *now,
                    JinjaOutput *output) {
    JinjaRun run = {.pool = {.bytes = BYTES_MOST, .steps = STEPS_MOST}, .now = now, .line = 1};
    JinjaScope given = {0}, *scope;
    JinjaControl control;
    run.text.pool = &run.pool;
    run.out = &run.text;
    given.variables = *jinja_from_json(&run.pool, variables).dict;
    scope = jinja_take(&run.pool, sizeof *scope);
    scope->outer = &given;
    Status status = jinja_execute(&run, scope, template->list, &control);
    if (!status) status = jinja_step(&run, 0);
    *output = (JinjaOutput){.spans = run.spans, .spans_count = run.spans_count, .hidden = run.hidden};
    if (!status) {
        output->text = memory_text_slice(run.text.bytes ? run.text.bytes : "", (size_t)run.text.count);
        output->length = run.text.count;
    } else {
        jinja_output_free(output);
    }
    jinja_pool_free(&run.pool);
    return status;
}
