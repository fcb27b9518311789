/* Fuzzes conversations in JSON lines. The first byte selects the template, and whether conversations are
 * packed. Accepted ones must fit their rows. */
#include "tasks/chat/conversations.h"
#include "tests/fuzz/fuzz.h"

enum { SEQ = 48, BATCH = 2 };

static void check_rows(const ConversationSource *source) {
    ConversationCounts counts = conversations_counts(source);
    int64_t seen = 0, tokens = 0, answers = 0, members, length;
    const uint8_t *marked;
    for (int64_t row = 0; row < counts.rows; row++) {
        const int64_t *row_of = conversations_row(source, row, &members);
        int64_t filled = 0;
        for (int64_t i = 0; i < members; i++) {
            must(row_of[i] >= 0 && row_of[i] < counts.conversations);
            const int32_t *ids = conversations_tokens(source, row_of[i], &length, &marked);
            for (int64_t k = 0; k < length; k++)
                must(ids[k] >= 0 && ids[k] < TRAINED_LEAST && marked[k] <= 1);
            for (int64_t k = 1; k < length; k++) answers += marked[k];
            filled += length - 1;
        }
        must(members > 0 && filled <= SEQ);
        tokens += filled;
        seen += members;
    }
    must(seen == counts.conversations && tokens == counts.tokens && answers == counts.answers);
}

/* Reads one epoch and the beginning of the next. */
static void read_batches(const ConversationSource *source) {
    const LoaderOptions options = {.batch = BATCH, .seq = SEQ, .shuffle = true};
    Loader *loader;
    Batch batch;
    must(!loader_open_conversations(&options, source, &loader));
    for (int64_t rows = 0; rows <= conversations_counts(source).rows + BATCH; rows += BATCH) {
        int64_t targets;
        must(!loader_targets(loader, 1, &targets));
        must(!loader_next(loader, &batch) && batch.seq <= SEQ && batch.tokens == targets);
        int64_t count = batch.rows ? batch.rows : BATCH;
        for (int64_t i = 0; i < count; i++) must(batch.lengths[i] <= batch.seq);
        for (int64_t i = 0; i < count * batch.seq; i++)
            must(batch.inputs[i] >= 0 && batch.inputs[i] < TRAINED_LEAST && batch.targets[i] < TRAINED_LEAST);
    }
    loader_close(loader);
}

static void read_conversations(const uint8_t *data, size_t size) {
    static const char *const templates[] = {"zephyr", "mistral", "chatml", "none"};
    ConversationSource *source;
    int64_t padded;
    if (!size) return;
    const ConversationOptions options = {.path = SCRATCH "/lessons.jsonl",
                                         .tokenizer = fuzz_tokenizer(),
                                         .template = templates[data[0] >> 1 & 3],
                                         .seq = SEQ,
                                         .packed = data[0] & 1};
    scratch_put("lessons.jsonl", data + 1, size - 1);
    Status status = conversations_open(&options, &source);
    must(!status == (source != NULL));
    if (!status) {
        check_rows(source);
        read_batches(source);
        must(!conversations_padded(source, BATCH, SEQ, false, &padded) && padded > 0);
    }
    must(!status || status_code(status) == ERROR_FORMAT || status_code(status) == ERROR_USAGE);
    status_free(status);
    conversations_close(source);
}

FUZZ(conversations, read_conversations, NULL)
