/* prompts_text: ./infer --prompts=FILE, answers to many prompts. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

/* Of a session with a tokenizer. Reads JSON lines, {"prompt": TEXT} or {"messages": [...]}, and writes for
 * each a line {"text", "tokens", "ended"} in their order to standard output. They are run in batches of
 * similar lengths. */
CHECKED Status prompts_text(Session *session, const InferOptions *options);
