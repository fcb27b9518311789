#include "tasks/chat/chat_template.h"

#include "base/memory.h"
#include "data/token.h"

#include <stdio.h>
#include <string.h>

const char *chat_role_name(ChatRole role) {
    static const char *const names[ROLE_COUNT] = {"system", "user", "assistant"};
    return names[role];
}

void chat_template_free(ChatTemplate *c) {
    memory_free(c->begin);
    for (int role = 0; role < ROLE_COUNT; role++) {
        memory_free(c->before[role]);
        memory_free(c->after[role]);
    }
    memory_free(c->ask);
    memory_free(c->system);
    memory_free(c->joint);
    memory_free(c->end);
    *c = (ChatTemplate){0};
}

/* "a" and "b" and "c": memory_free it. */
static char *concatenate(const char *a, const char *b, const char *c) {
    Bytes all = {0};
    bytes_put(&all, a, (int64_t)strlen(a));
    bytes_put(&all, b, (int64_t)strlen(b));
    bytes_put(&all, c, (int64_t)strlen(c) + 1);
    return (char *)all.bytes;
}

/* ---- the forms ---- */

static void fill_marked(ChatTemplate *c, const char *open, const char *close, const char *end,
                        const char *newline) {
    for (int role = 0; role < ROLE_COUNT; role++) {
        c->before[role] = concatenate(open, chat_role_name(role), close);
        c->after[role] = concatenate(end, newline, "");
    }
    c->ask = memory_text(c->before[ROLE_ASSISTANT]);
    c->end = memory_text(end);
}

static void fill_chatml(ChatTemplate *c) {
    fill_marked(c, "<|im_start|>", "\n", "<|im_end|>", "\n");
}

static void fill_llama3(ChatTemplate *c) {
    fill_marked(c, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "");
    for (int role = 0; role < ROLE_COUNT; role++) c->trims[role] = true;
}

static void fill_zephyr(ChatTemplate *c, const char *end) {
    fill_marked(c, "<|", "|>\n", end, "\n");
}

static void fill_mistral(ChatTemplate *c, const char *end) {
    c->before[ROLE_SYSTEM] = memory_text("");
    c->after[ROLE_SYSTEM] = memory_text("");
    c->before[ROLE_USER] = memory_text("[INST] ");
    c->after[ROLE_USER] = memory_text("[/INST]");
    c->before[ROLE_ASSISTANT] = memory_text(" ");
    c->after[ROLE_ASSISTANT] = memory_text(end);
    c->ask = memory_text("");
    c->end = memory_text(end);
    c->joint = memory_text("\n\n");
    c->place = SYSTEM_FIRST;
    c->alternates = true;
}

typedef enum { FORM_CHATML, FORM_LLAMA3, FORM_ZEPHYR, FORM_MISTRAL, FORM_NONE } ChatForm;

static void fill(ChatForm form, const char *end, ChatTemplate *c) {
    switch (form) {
    case FORM_CHATML: fill_chatml(c); break;
    case FORM_LLAMA3: fill_llama3(c); break;
    case FORM_ZEPHYR: fill_zephyr(c, end); break;
    case FORM_MISTRAL: fill_mistral(c, end); break;
    case FORM_NONE: break;
    }
}

Status chat_template_named(const char *name, const char *begin, const char *end, ChatTemplate *c) {
    static const char *const names[] = {"chatml", "llama3", "zephyr", "mistral"};
    *c = (ChatTemplate){0};
    ChatForm form = 0;
    while (form < FORM_NONE && strcmp(name, names[form]) != 0) form++;
    if (form == FORM_NONE)
        return fail(ERROR_USAGE,
                    "there is no chat template named %.40s, only chatml, llama3, zephyr and mistral", name);
    if (form >= FORM_ZEPHYR && !*end)
        return fail(ERROR_USAGE,
                    "the template %s ends an answer with the tokenizer's end token, but it has none", name);
    fill(form, end, c);
    c->begin = memory_text(form == FORM_LLAMA3 || form == FORM_MISTRAL ? begin : "");
    return OK;
}

/* ---- recognizing ---- */

static bool holds(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

enum { MARKS = 8 };

/* The marks that a form's templates write, those of tools included: another is of another form. */
static const char *const marks[FORM_NONE][MARKS] = {
    [FORM_CHATML] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"},
    [FORM_LLAMA3] = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>",
                     "<|python_tag|>", "<|eom_id|>"},
    [FORM_ZEPHYR] = {"<|system|>", "<|user|>", "<|assistant|>", "</s>"},
    [FORM_MISTRAL] = {"[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                      "[TOOL_RESULTS]", "[/TOOL_RESULTS]"},
};

/* What a message prints, or two spellings of it: without one of them it is another form. */
static const char *const prints[FORM_NONE][2] = {
    [FORM_CHATML] = {"'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>\n'",
                     "'<|im_start|>'+message['role']+'\n'+content+'<|im_end|>\n'"},
    [FORM_LLAMA3] = {"'<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']|trim+'"
                     "<|eot_id|>'"},
    [FORM_ZEPHYR] = {"'<|user|>\n'+message['content']+eos_token+'\n'"},
    [FORM_MISTRAL] = {"[/INST]'"},
};

/* What asks for an answer: where more is printed, as an opened thought, it is another form. */
static const char *const asks[FORM_NONE] = {
    [FORM_CHATML] = "'<|im_start|>assistant\n'",
    [FORM_LLAMA3] = "'<|start_header_id|>assistant<|end_header_id|>\n\n'",
    [FORM_ZEPHYR] = "'<|assistant|>\n'",
    [FORM_MISTRAL] = "",
};

/* How long the mark at `at` is, "<|word|>" or "[WORD]"; 0: none stands there. */
static size_t mark_length(const char *at) {
    if (at[0] == '<' && at[1] == '|') return strcspn(at, ">\n '") + 1;
    if (at[0] == '[' && (at[1] == '/' || (at[1] >= 'A' && at[1] <= 'Z'))) return strcspn(at, "]\n '") + 1;
    return 0;
}

/* Are all the text's marks the form's? */
static bool marks_known(ChatForm form, const char *text) {
    for (const char *at = text; *at; at++) {
        size_t length = mark_length(at);
        bool known = length == 0;
        for (int i = 0; !known && i < MARKS && marks[form][i]; i++)
            known = strlen(marks[form][i]) == length && memcmp(marks[form][i], at, length) == 0;
        if (!known) return false;
    }
    return !holds(text, "<<SYS>>"); // Llama 2's
}

static ChatForm recognize(const char *text) {
    for (ChatForm form = 0; form < FORM_NONE; form++)
        for (int i = 0; i < 2 && prints[form][i]; i++)
            if (holds(text, prints[form][i]) && holds(text, asks[form]) && marks_known(form, text))
                return form;
    return FORM_NONE;
}

/* The text between the first `before` and the `after` that ends it without another quote between; NULL:
 * none. */
static char *between(const char *text, const char *before, const char *after) {
    for (const char *at = text; (at = strstr(at, before)); at++) {
        const char *from = at + strlen(before), *end = strstr(from, after);
        if (!end || end == from || memchr(from, '\'', (size_t)(end - from))) continue;
        char *found = memory_text_slice(from, (size_t)(end - from));
        for (char *c = found; *c; c++)
            if (*c == '\1') *c = '\'';
        return found;
    }
    return NULL;
}

static void replace(char **text, char *by) {
    memory_free(*text);
    *text = by;
}

static void read_chatml(const char *text, ChatTemplate *c) {
    c->system = between(text, "'<|im_start|>system\n", "<|im_end|>\n'");
    c->thinks = holds(text, "</think>");
}

/* From Llama 3.1 on the system message begins with two dates, and is always there. */
static void read_llama3(const char *text, const char *date, ChatTemplate *c) {
    if (!holds(text, "'Cutting Knowledge Date: December 2023\nToday Date: '+date_string+'\n\n'")) return;
    char *fixed = between(text, "date_string='", "'");
    const char *day = holds(text, "strftime_now(") || !fixed ? date : fixed;
    char *dates = concatenate("Cutting Knowledge Date: December 2023\nToday Date: ", day, "\n\n");
    replace(&c->before[ROLE_SYSTEM], concatenate(c->before[ROLE_SYSTEM], dates, ""));
    memory_free(dates);
    memory_free(fixed);
    c->system = memory_text("");
}

/* Mistral's templates differ in their spaces, and in where they put a system message. */
static bool read_mistral(const char *text, const char *end, ChatTemplate *c) {
    static const struct {
        const char *prints, *before, *after;
    } users[] = {{"' [INST] '+message['content']+' [/INST]'", " [INST] ", " [/INST]"},
                 {"'[INST] '+message['content']+' [/INST]'", "[INST] ", " [/INST]"},
                 {"'[INST] '+message['content']+'[/INST]'", "[INST] ", "[/INST]"},
                 {"'[INST]'+message['content']+'[/INST]'", "[INST]", "[/INST]"}},
      answers[] = {{"' '+message['content']|trim+eos_token", " ", ""},
                   {"' '+message['content']+eos_token", " ", ""},
                   {"message['content']|trim+eos_token", "", ""},
                   {"message['content']+eos_token+' '", "", " "},
                   {"message['content']+eos_token", "", ""}};
    int user = 0, answer = 0;
    while (user < 4 && !holds(text, users[user].prints)) user++;
    while (answer < 5 && !holds(text, answers[answer].prints)) answer++;
    bool system = holds(text, "system_message");
    if (user == 4 || answer == 5 || (system && !holds(text, "system_message+'\n\n'+message['content']")))
        return false;
    replace(&c->before[ROLE_USER], memory_text(users[user].before));
    replace(&c->after[ROLE_USER], memory_text(users[user].after));
    replace(&c->before[ROLE_ASSISTANT], memory_text(answers[answer].before));
    replace(&c->after[ROLE_ASSISTANT], concatenate(end, answers[answer].after, ""));
    c->trims[ROLE_ASSISTANT] = holds(answers[answer].prints, "|trim");
    c->place = !system                                        ? SYSTEM_NONE
               : holds(text, "{ifloop.lastandsystem_message") ? SYSTEM_LAST
                                                              : SYSTEM_FIRST;
    return true;
}

/* From what the template prints; false where that is of no form. */
static bool read_form(const char *text, const char *end, const char *date, ChatTemplate *c) {
    ChatForm form = recognize(text);
    if (form >= FORM_ZEPHYR && !*end) return false;
    fill(form, end, c);
    switch (form) {
    case FORM_CHATML: read_chatml(text, c); return true;
    case FORM_LLAMA3: read_llama3(text, date, c); return true;
    case FORM_ZEPHYR: return true;
    case FORM_MISTRAL: return read_mistral(text, end, c);
    case FORM_NONE: return false;
    }
    return false;
}

Status chat_template_read(const char *source, const char *begin, const char *end, const char *date,
                          ChatTemplate *c) {
    *c = (ChatTemplate){0};
    char *text = chat_template_compact(source);
    bool known = read_form(text, end, date, c);
    c->begin = memory_text(holds(text, "bos_token") ? begin : "");
    memory_free(text);
    if (known) return OK;
    chat_template_free(c);
    return fail(ERROR_FORMAT,
                "the model's chat template is of a form that is not known here; where one of chatml, "
                "llama3, zephyr and mistral will do, choose it with --template");
}
