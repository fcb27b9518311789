/* chat_text: ./infer --chat, a conversation on the terminal. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

enum { CHAT_WINDOW = 4096 }; // tokens of a conversation, unless --context or the model says otherwise

/* Of a session with a tokenizer. Reads messages from standard input, a line each, until it ends, and writes
 * the answers. Ctrl-C ends an answer, and where none is being written, the conversation. */
CHECKED Status chat_text(Session *session, const InferOptions *options);
