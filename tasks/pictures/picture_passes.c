#include "tasks/pictures/picture_passes.h"

#include "base/memory.h"
#include "tasks/masked/infer.h"
#include "tasks/pictures/infer.h"

static Status allocate(const Session *session, const InferOptions *o, Pooling pooling, InferenceUse use,
                       bool mapped, PicturePasses *p) {
    Inference *in = &p->inference;
    int64_t pictures = images_count(p->source);
    TRY(inference_open(in, session, true));
    in->use = use;
    in->mapped = mapped;
    in->batch = o->batch < pictures ? o->batch : pictures;
    in->seq = 1;
    in->logits_dtype = in->ctx.dtype;
    in->model.all_rows = in->use == INFERENCE_HIDDEN && pooling == POOLING_MEAN;
    return inference_start(in, session, false, o->seed);
}

Status picture_passes_open(const Session *session, const InferOptions *o, const OptionSet *set,
                           const ImageSource *source, InferenceUse use, bool mapped, PicturePasses *p) {
    *p = (PicturePasses){.source = source};
    const PicturesInfer *own = options_values(set, &pictures_infer);
    const MaskedInfer *embedding = options_values(set, &masked_infer);
    TRY(allocate(session, o, embedding->pooling, use, mapped, p));
    if (own->skip_broken) p->broken = broken_open(images_count(source));
    const LoaderOptions options = {.batch = p->inference.batch, .seq = 1, .workers = (int)own->workers};
    const PictureOptions pictures = {
        .source = source, .processor = session->config.processor, .once = true, .broken = p->broken};
    return loader_open_pictures(&options, &pictures, &p->loader);
}

void picture_passes_close(PicturePasses *p) {
    loader_close(p->loader);
    broken_close(p->broken);
    inference_close(&p->inference);
    memory_free(p->rows);
    *p = (PicturePasses){0};
}

Status picture_passes_skip(PicturePasses *p, int64_t count) {
    p->first = count;
    return loader_seek(p->loader, count);
}

Status picture_passes_next(PicturePasses *p, bool *more) {
    Inference *in = &p->inference;
    p->first += p->count;
    int64_t left = images_count(p->source) - p->first;
    *more = left > 0;
    p->count = left < in->batch ? left : in->batch;
    if (!*more) return OK;
    TRY(loader_next(p->loader, &p->batch));
    TRY(inference_logits(in, p->batch.pictures, in->batch, 1));
    Tensor out = in->use == INFERENCE_LOGITS ? in->logits : in->model.hidden;
    p->columns = tensor_count(out) / in->batch;
    if (!p->rows) p->rows = memory_array((size_t)(in->batch * p->columns), sizeof *p->rows);
    return values_read(&in->ctx, out, 0, p->count * p->columns, p->rows);
}
