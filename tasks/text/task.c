/* The task "text": predicting the next token. */
#include "tasks/task.h"
#include "tasks/text/text_profile.h"
#include "tasks/text/infer.h"
#include "tasks/text/texts.h"
#include "tasks/text/train.h"
#include "tasks/text/windows.h"

static Status make(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader) {
    (void)o;
    return loader_open_windows(part, source, loader);
}

static Status check_generation(const InferOptions *o, const OptionSet *set) {
    const TextInfer *own = options_values(set, &text_infer);
    TRY(text_check_sampling(set));
    TRY(option_needs(set, "n", own->sampler.temperature > 0, "a --temperature above 0"));
    TRY(options_exclude(set, "n", "profile"));
    TRY(options_exclude(set, "draft", "profile"));
    TRY(options_exclude(set, "draft", "no-cache"));
    TRY(option_needs(set, "compare", *o->profiling.window, "--profile"));
    return *o->profiling.window ? text_profile_check(&o->profiling, own->tokens) : OK;
}

static Status check_evaluation(const InferOptions *o, const OptionSet *set) {
    return option_needs(set, "compare", o->weights != WEIGHTS_FLOAT, "--weights=int8 or int4");
}

static const Command commands[] = {
    {.selector = "prompt",
     .reads = TEXT_SAMPLING " tokens n context stop no-cache draft compare profile",
     .check = check_generation,
     .run = generate_text},
    {.selector = "eval",
     .reads = "field json batch seq compare",
     .check = check_evaluation,
     .run = evaluate_text},
    {.selector = "logits", .reads = "ids", .check = logits_check, .run = logits_text},
    {0},
};

const TaskRow task_text = {.trains = TASK_NEXT_TOKEN,
                           .models = "a decoder-only model",
                           .train = &text_train,
                           .infer = &text_infer,
                           .reads = "field",
                           .check = text_check_train,
                           .samples = &text_samples,
                           .commands = commands,
                           .batches = {.held = BATCHES_HELD,
                                       .open = texts_open,
                                       .rows = texts_rows,
                                       .make = make,
                                       .print = texts_print,
                                       .record = texts_record,
                                       .sample = texts_sample,
                                       .close = texts_close}};
