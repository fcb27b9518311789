#include "tasks/train_data.h"

#include "base/files.h"
#include "base/memory.h"

FeedKind train_data_kind(const TrainOptions *o, const Session *session) {
    static const FeedKind kinds[] = {[TASK_NEXT_TOKEN] = FEED_WINDOWS,
                                     [TASK_MASKED_TOKEN] = FEED_MASKED,
                                     [TASK_SEQUENCE] = FEED_PAIRS,
                                     [TASK_CLASS] = FEED_PICTURES};
    Task task = session->config.architecture->task;
    return train_options_conversations(o, task) ? FEED_CONVERSATIONS : kinds[task];
}

Status train_data_open(const TrainOptions *o, const Session *session, const TrainPictures *pictures,
                       World *world, Feed *feed, Batches *batches) {
    char *cache = *o->out ? path_join(o->out, "cache") : NULL;
    const FeedOptions options = {.kind = train_data_kind(o, session),
                                 .data = o->data,
                                 .val_data = o->val_data,
                                 .validate = o->val_every > 0 && !o->compare,
                                 .tokenizer = session->tokenizer,
                                 .vocab = session->config.vocab,
                                 .field = o->field,
                                 .template = o->template,
                                 .packed = session->config.positions == POSITIONS_ROTARY,
                                 .pictures = {pictures->train,
                                              pictures->val,
                                              session->config.processor,
                                              {o->crop, o->flip, o->pad, o->erase},
                                              o->skip_broken},
                                 .cache = cache,
                                 .batch = o->batch,
                                 .seq = o->seq,
                                 .seed = (uint64_t)o->seed,
                                 .share = {world->rank, world->size, o->accum},
                                 .workers = (int)o->workers,
                                 .delay_us = o->reader_delay,
                                 .hold = pictures->train ? PICTURES_HELD : BATCHES_HELD,
                                 .device = session->device};
    /* Rank 0 comes first, and leaves what it has tokenized where the others find it. */
    Status status = world->rank > 0 ? world_agree(world, OK) : OK;
    if (!status) status = feed_open(&options, feed);
    if (world->rank == 0) status = world_agree(world, status);
    memory_free(cache);
    *batches = (Batches){.feed = feed,
                         .held = options.hold,
                         .device = session->device,
                         .batch = o->batch,
                         .accum = o->accum,
                         .ranks = world->size};
    return status;
}
