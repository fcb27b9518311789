/* The task of texts: the next token. */
#include "tasks/task.h"
#include "tasks/text/texts.h"
#include "tasks/text/windows.h"

static Status make(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader) {
    (void)o;
    return loader_open_windows(part, source, loader);
}

const TaskRow task_text = {.name = "text",
                           .trains = TASK_NEXT_TOKEN,
                           .batches = {.held = BATCHES_HELD,
                                       .open = texts_open,
                                       .rows = texts_rows,
                                       .make = make,
                                       .print = texts_print,
                                       .record = texts_record,
                                       .sample = texts_sample,
                                       .close = texts_close}};
