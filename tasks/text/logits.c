/* ./infer --logits: the logits of given tokens. */
#include "base/memory.h"
#include "data/safetensors.h"
#include "run/inference.h"
#include "tasks/text/infer.h"

#include <inttypes.h>
#include <stdio.h>

Status logits_check(const InferOptions *o, const OptionSet *set) {
    const TextInfer *own = options_values(set, &text_infer);
    (void)o;
    if (own->ids.count) return OK;
    return fail(ERROR_USAGE, "--logits needs the tokens to compute them for: --ids=1,2,3");
}

static Status check_ids(const Config *c, OptionList ids) {
    if (ids.count > c->context)
        return fail(ERROR_USAGE, "--ids has %" PRId64 " tokens, but the model's context is %" PRId64,
                    ids.count, c->context);
    for (int64_t i = 0; i < ids.count; i++)
        if (ids.values[i] >= c->vocab)
            return fail(ERROR_USAGE, "--ids: token %" PRId64 " is outside the vocabulary of %" PRId64,
                        ids.values[i], c->vocab);
    return OK;
}

static Status append_logits(Inference *in, int64_t count, SafetensorsWriter *writer) {
    int64_t vocab = in->model.config.vocab, padded = config_padded_vocab(&in->model.config);
    OWNED float *row = memory_array((size_t)vocab, sizeof *row);
    for (int64_t i = 0; i < count; i++) {
        TRY(values_read(&in->ctx, in->logits, i * padded, vocab, row));
        TRY(safetensors_writer_append(writer, row, vocab * (int64_t)sizeof *row));
    }
    return OK;
}

static Status write_logits(Inference *in, const char *path, int64_t count) {
    SafetensorsEntry entry = {
        .name = "logits", .type = SAFE_F32, .rank = 2, .d = {count, in->model.config.vocab}};
    SafetensorsWriter *writer;
    TRY(safetensors_writer_open(path, &entry, 1, NULL, 0, &writer));
    return safetensors_writer_finish(writer, append_logits(in, count, writer));
}

static Status run(Inference *in, const Session *s, const InferOptions *o, const TextInfer *own) {
    OptionList ids = own->ids;
    OWNED int32_t *tokens = memory_array((size_t)ids.count, sizeof *tokens);
    TRY(check_ids(&s->config, ids));
    TRY(inference_open(in, s, true));
    in->use = INFERENCE_LOGITS;
    in->batch = 1;
    in->seq = ids.count;
    in->logits_dtype = wide_dtype(&in->ctx);
    TRY(inference_start(in, s, false, o->seed));
    for (int64_t i = 0; i < ids.count; i++) tokens[i] = (int32_t)ids.values[i];
    TRY(inference_logits(in, tokens, 1, ids.count));
    TRY(write_logits(in, own->logits, ids.count));
    if (!o->quiet)
        printf("logits (%" PRId64 ", %" PRId64 ") in %s\n", ids.count, s->config.vocab, own->logits);
    return OK;
}

Status logits_text(Session *session, const InferOptions *options, const OptionSet *set) {
    CLOSED_BY(inference_close) Inference in = {0};
    return run(&in, session, options, options_values(set, &text_infer));
}
