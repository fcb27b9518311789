#include "run/runner.h"

Status runner_open(const Session *s, Ctx *ctx, Transformer *model) {
    ctx_open(ctx, s->device);
    ctx->dtype = s->dtype;
    ctx->tf32 = s->tf32;
    ctx->fuses = s->fuses;
    ctx->graphs = s->graphs;
    TRY(transformer_open(&s->config, model));
    model->parameters.packed = s->packed;
    return OK;
}

static Status measure(const Runner *r, Form form, uint32_t fuses) {
    const uint32_t wanted = r->ctx->fuses;
    r->ctx->fuses = fuses;
    Status status = plan_measure(r->ctx, r->take, r->program, r->bytes ? &r->bytes[form] : NULL);
    r->ctx->fuses = wanted;
    return status;
}

Status runner_start(const Runner *r) {
    if (r->compare) TRY(measure(r, FORM_NAIVE, 0));
    TRY(measure(r, FORM_FUSED, r->ctx->fuses));
    TRY(plan_allocate(r->ctx));
    TRY(r->take(r->ctx, r->program));
    return session_load(r->session, r->ctx, &r->model->parameters, (uint64_t)r->seed);
}
