/* Fuzzes a run's options, as stored beside an untrusted checkpoint, and as --config. Options beside a
 * checkpoint must name no output, and accepted options must survive writing and reading. */
#include "run/train_options.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* The state after reading "train", optionally with --resume; it takes longer than everything else here, and
 * is created once. */
static void open_options(bool resumed, TrainOptions *options, OptionSet *set) {
    static char *argv[] = {"train", "--resume=" SCRATCH "/step-00000001", NULL};
    static TrainOptions values[2];
    static OptionSet sets[2];
    bool done;
    if (!sets[resumed].count) {
        options_open(&sets[resumed], "train", "", "");
        options_add(&sets[resumed], &train_options_table, &values[resumed]);
        must(!train_options_read(1 + resumed, argv, &values[resumed], &sets[resumed], &done) && !done);
    }
    options_open(set, sets[resumed].program, sets[resumed].version, sets[resumed].summary);
    options_add(set, &train_options_table, options);
    *options = values[resumed];
    memcpy(set->source, sets[resumed].source, (size_t)set->count * sizeof *set->source);
}

/* Beside scratch/step-00000001. */
static void go_on(void) {
    TrainOptions o;
    OptionSet set;
    char *folder;
    open_options(true, &o, &set);
    Status status = train_options_resume(&o, &set, true, &folder);
    must(!*o.log && !*o.hash_trace && !*o.tensorboard && !*o.out && !*o.config && !*o.profiling.out);
    must(!o.train_tokenizer && !o.profiling.sweep && !o.force);
    status_free(status);
    memory_free(folder);
    options_close(&set);
}

static void read_again(const OptionSet *read) {
    TrainOptions o;
    OptionSet set;
    char *text = options_json(read, true), *again;
    scratch_put("again.json", text, strlen(text));
    open_options(false, &o, &set);
    must(!options_read_file(&set, SCRATCH "/again.json"));
    again = options_json(&set, true);
    must(strcmp(text, again) == 0);
    memory_free(text);
    memory_free(again);
    options_close(&set);
}

static void read_options(const uint8_t *data, size_t size) {
    TrainOptions o;
    OptionSet set;
    scratch_put("options.json", data, size);
    scratch_put("step-00000001/config.json", "{}", 2);
    go_on();
    open_options(false, &o, &set);
    Status status = options_read_file(&set, SCRATCH "/options.json");
    if (!status) read_again(&set);
    must(!status || status_code(status) == ERROR_FORMAT || status_code(status) == ERROR_USAGE);
    status_free(status);
    options_close(&set);
}

FUZZ(options, read_options, mutate_json)
