#include "tasks/chat/infer.h"

#include "run/option_rows.h"

#define AT(member) .field = offsetof(ChatInfer, member)

static const Option rows[] = {
    HEADING("Conversation, with a chat model"),
    {FLAG("chat", chat), .doc = "hold a conversation; from a pipe, each line is a message"},
    {TEXT("system", "TEXT", system), .doc = "system message", .default_text = "the template's"},
    {TEXT("template", "NAME", template), .doc = "chatml, llama3, zephyr or mistral",
     .default_text = "the model's"},
    {TEXT("prompts", "FILE", prompts),
     .doc = "answer JSON lines, as {\"prompt\": TEXT} or {\"messages\": [...]}, in batches"},
};

static const ChatInfer defaults = {.system = "", .template = "", .prompts = ""};

const OptionTable chat_infer = {rows, sizeof rows / sizeof *rows, &defaults, sizeof defaults};
