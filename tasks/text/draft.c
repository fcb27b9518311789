#include "tasks/text/draft.h"

#include "model/architectures.h"
#include "tasks/text/infer.h"

#include <inttypes.h>
#include <stdio.h>

static Status check_bits(const Session *s) {
    const uint32_t ordered = 1u << OP_LINEAR | 1u << OP_ATTENTION;
    if (s->device->backend == BACKEND_CUDA && !(s->fuses & FUSE_INVARIANT))
        return fail(ERROR_USAGE, "--draft on a GPU needs --fused=1,invariant; or add --device=cpu");
    if ((s->fuses & ordered) == ordered && !(s->fuses & FUSE_FP8)) return OK;
    return fail(ERROR_USAGE, "--draft needs linear and attention fused, without fp8, as with --fused=1");
}

/* Models of different sizes with the same tokenizer may pad their tables differently, as Qwen2.5's do. */
static Status check_vocabulary(const Session *draft, const Session *s, const char *name) {
    const Architecture *a = draft->config.architecture;
    if (a->task != TASK_NEXT_TOKEN)
        return fail(ERROR_USAGE, "--draft=%s is %s; a draft is a decoder-only model", name, a->description);
    if (draft->tokenizer && tokenizer_hash(draft->tokenizer) == tokenizer_hash(s->tokenizer)) return OK;
    return fail(ERROR_USAGE, "--draft=%s has %s tokenizer than the model", name,
                draft->tokenizer ? "another" : "no");
}

Status draft_open(Draft *draft, const Session *session, const InferOptions *o, const OptionSet *set,
                  Inference *main) {
    const char *name = ((const TextInfer *)options_values(set, &text_infer))->draft;
    Session *s = &draft->session;
    Inference *in = &draft->inference;
    if (!*name) return OK;
    TRY(check_bits(session));
    TRY(session_open(s, name, NULL, o->tokenizer, &o->compute));
    TRY(check_vocabulary(s, session, name));
    if (s->stored == F32) s->packed = session->packed;
    s->shows_progress = session->shows_progress;
    TRY(inference_open(in, s, true));
    const int64_t window = main->generator.window;
    in->use = INFERENCE_GENERATE;
    in->generator.window = window < s->config.context ? window : s->config.context;
    main->generator.draft = &in->generator;
    main->generator.draft_ctx = &in->ctx;
    return inference_start(in, s, false, o->seed);
}

void draft_close(Draft *draft) {
    if (draft->inference.ctx.device) inference_close(&draft->inference);
    session_close(&draft->session);
}

void draft_print(const Generator *g) {
    if (g->draft)
        fprintf(stderr, "%" PRId64 " of %" PRId64 " proposed tokens accepted\n", g->accepted, g->proposed);
}
