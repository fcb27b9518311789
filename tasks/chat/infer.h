/* infer: what ./infer can be told about conversations, and does with them. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

typedef struct {
    bool chat;            // hold a conversation
    const char *system;   // its system message; "": the template's
    const char *template; // "chatml", ...; "": the model's own
    const char *prompts;  // JSON lines, to answer each
} ChatInfer;

extern const OptionTable chat_infer;

enum { CHAT_WINDOW = 4096 }; // tokens of a conversation, unless --context or the model says otherwise

/* --chat: reads messages from standard input, a line each, until it ends, and writes the answers. Ctrl-C ends
 * an answer, and where none is being written, the conversation. */
CHECKED Status chat_converse(Session *session, const InferOptions *options, const OptionSet *set);

/* --prompts: reads JSON lines, {"prompt": TEXT} or {"messages": [...]}, and writes for each a line {"text",
 * "tokens", "ended"} in their order to standard output. They are run in batches of similar lengths. */
CHECKED Status chat_answer_prompts(Session *session, const InferOptions *options, const OptionSet *set);
