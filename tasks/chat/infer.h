/* infer: the options and commands of ./infer for conversations. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

typedef struct {
    bool chat;            // hold a conversation
    const char *system;   // the conversation's system message; "": the template's
    const char *template; // "chatml", ...; "": the model's own
    const char *prompts;  // file of JSON lines, each of which is answered
} ChatInfer;

extern const OptionTable chat_infer;

enum { CHAT_WINDOW = 4096 }; // tokens of a conversation, unless --context or the model sets another limit

/* --chat: reads messages from standard input, one per line, until it ends, and writes the answers. Ctrl-C
 * ends an answer, or between answers the conversation. */
CHECKED Status chat_converse(Session *session, const InferOptions *options, const OptionSet *set);

/* --prompts: reads JSON lines, {"prompt": TEXT} or {"messages": [...]}, and writes for each a line {"text",
 * "tokens", "ended"} to standard output, in order. Prompts are run in batches of similar length. */
CHECKED Status chat_answer_prompts(Session *session, const InferOptions *options, const OptionSet *set);
