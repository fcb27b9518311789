#include "tasks/text/texts.h"

#include "tasks/text/corpus.h"
#include "data/tokens.h"

Status texts_open(const FeedOptions *o, const char *data, void **source) {
    TokenSource *tokens = NULL;
    const Session *s = o->session;
    const TokenOptions options = {
        .tokenizer = s->tokenizer, .vocab = s->config.vocab, .field = o->options->field, .cache = o->cache};
    CLOSED_BY(path_list_free) PathList texts = {0};
    if (*data) {
        TRY(tokens_open(data, &options, &tokens));
    } else if (!s->tokenizer) {
        return fail(ERROR_USAGE, "without --data this checkout is the text, which a tokenizer reads: "
                                 "--tokenizer=FOLDER, or --tokenizer=bytes");
    } else {
        TRY(corpus_list(&texts));
        TRY(tokens_open_texts(&texts, "corpus", &options, &tokens));
    }
    *source = tokens;
    return OK;
}

int64_t texts_rows(const void *source) {
    return tokens_count(source);
}

void texts_print(const void *source, const Session *session) {
    feed_print_tokens(tokens_count(source), tokens_raw(source), session->tokenizer);
}

void texts_record(const void *source, JsonWriter *w) {
    json_member_integer(w, "data_tokens", tokens_count(source));
}

Status texts_sample(const void *source, int64_t row, int32_t *sample, int64_t *length) {
    int64_t left = tokens_count(source) - row;
    *length = left < FEED_SAMPLE ? left : FEED_SAMPLE;
    return tokens_read(source, row, *length, sample);
}

void texts_close(void *source) {
    tokens_close(source);
}
