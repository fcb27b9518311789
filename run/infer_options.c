#include "run/infer_options.h"

#include "run/option_rows.h"
#include "run/text_profile.h"
#include "base/files.h"

#include <string.h>

enum { SIZE_MOST = 1 << 24, RUNS_MOST = 1000000 };

#define AT(member) .field = offsetof(InferOptions, member)

static const Option table[] = {
    HEADING("Model"),
    MODEL_ROW,
    TOKENIZER_ROW,
    {COUNT("seed", 0, INT64_MAX, seed), .doc = "seed of everything random"},
    COMPUTE_ROWS,

    HEADING("Benchmark of the forward pass, unless one of the modes below is given"),
    {COUNT("batch", 1, 1 << 20, batch), .alias = "batch-size",
     .doc = "sequences at once; also for --eval, --translate, --prompts and --embed"},
    {COUNT("seq", 0, SIZE_MOST, seq), .doc = "tokens in each; also for --eval, and at most for --embed",
     .default_text = "the context"},
    {LIST("batch-sizes", 1, 1 << 20, batch_sizes), .doc = "several batch sizes, such as 1,8"},
    {LIST("seq-lens", 1, SIZE_MOST, seq_lens), .doc = "several lengths, such as 128,256"},
    {LIST("image-sizes", 1, 1 << 14, image_sizes), .doc = "pictures' sides for --sweep, such as 112,224"},
    {COUNT("repeats", 1, RUNS_MOST, repeats), .doc = "timed runs"},
    {COUNT("warmup-runs", 0, RUNS_MOST, warmup_runs), .doc = "untimed runs before them"},
    {FLAG("compare", compare), .doc = "measure naive and fused"},
    {TEXT("json", "FILE", json), .doc = "write the results as JSON too"},
    PROFILING_ROWS,

    HEADING("Generation"),
    {TEXT("prompt", "TEXT", prompt), .doc = "text to continue; - reads it from standard input"},
    {TEXT("prompts", "FILE", prompts), .doc = "answer JSON lines, as {\"prompt\": TEXT}, in batches"},
    {COUNT("tokens", 1, SIZE_MOST, tokens), .alias = "max-new-tokens",
     .default_text = "256; in an answer any", .doc = "most tokens to generate"},
    {NUMBER("temperature", 0, 1000, temperature), .doc = "of sampling; 0 always takes the likeliest token"},
    {COUNT("top-k", 0, 1 << 28, top_k), .doc = "sample from the k likeliest tokens; 0: from all"},
    {NUMBER("top-p", 0, 1, top_p), .above = true,
     .doc = "sample from the likeliest tokens that add up to probability X"},
    {NUMBER("min-p", 0, 1, min_p), .doc = "sample from tokens at least X times as likely as the likeliest"},
    {NUMBER("repeat-penalty", 0, 1000, repeat_penalty), .above = true,
     .doc = "make tokens that the text holds already less likely; 1 does not"},
    {COUNT("context", 1, SIZE_MOST, context),
     .default_text = "the prompt and --tokens; of a conversation 4096",
     .doc = "tokens kept at once; beyond them the oldest go"},
    {TEXT("stop", "TEXT", stop), .doc = "stop before this text"},
    {FLAG("no-cache", no_cache), .doc = "compute all tokens again for each new one, for comparison"},

    HEADING("Conversation, with a model that is made for it"),
    {FLAG("chat", chat), .doc = "answer message by message; from a pipe, each line is a message"},
    {TEXT("system", "TEXT", system), .doc = "system message", .default_text = "the template's"},
    {TEXT("template", "NAME", template), .doc = "chatml, llama3, zephyr or mistral",
     .default_text = "the model's"},

    HEADING("Translation, with an encoder-decoder"),
    {TEXT("translate", "FILE", translate), .doc = "translate each line by beam search"},
    {TEXT("reference", "FILE", reference), .doc = "reference translations, for BLEU"},
    {COUNT("beam", 1, 64, beam), .doc = "hypotheses for each sentence; 1 is greedy"},
    {COUNT("min-tokens", 0, SIZE_MOST, min_tokens),
     .doc = "fewest tokens of a translation, its end included"},
    {CHOICE("decoding", "cached|self|last|all", decoding),
     .doc = "cache everything, the decoder's own, or nothing; all: with the logits of all tokens"},
    {FLAG("profile-tokens", profile_tokens), .doc = "with --profile: a step is a token, not a batch"},
    {NUMBER("length-penalty", 0, 10, length_penalty), .doc = "scores are divided by ((5 + length) / 6)^X"},

    HEADING("Embeddings and masked tokens, with a BERT"),
    {TEXT("embed", "FILE", embed), .doc = "embed each line; needs --output"},
    {TEXT("output", "FILE", output), .doc = "write the embeddings as safetensors"},
    {CHOICE("pooling", "mean|first|pooler", pooling), .doc = "how the tokens' hidden states become one"},
    {TEXT("fill", "TEXT", fill), .doc = "print the likeliest tokens for each [MASK] in TEXT"},

    HEADING("Pictures, with a vision Transformer; also --eval=FOLDER and --embed=PICTURES"),
    {TEXT("classify", "PICTURES", classify), .doc = "print the likeliest classes of files or a folder"},
    {TEXT("attention-map", "FILE", attention_map), .doc = "draw what decides, as PNG; needs --classify"},
    {FLAG("skip-broken", skip_broken), .doc = "pass over pictures that cannot be read"},
    {COUNT("workers", 0, 64, workers), .doc = "threads that decode pictures ahead; 0 for none"},

    HEADING("Evaluation"),
    {TEXT("eval", "FILES", eval), .doc = "print the mean loss on text or .bin shards"},
    {TEXT("field", "KEY", field), .doc = "--eval reads JSON lines, with a text under this key"},
    {TEXT("logits", "FILE", logits), .doc = "write logits as safetensors; needs --ids"},
    {LIST("ids", 0, (1 << 28) - 1, ids), .doc = "tokens to compute logits for, such as 1,2,3"},

    HEADING("Output"),
    {FLAG("quiet", quiet), .letter = 'q', .doc = "print results and errors only"},
    CONFIG_ROWS,
};

static const InferOptions defaults = {
    .model = "gpt2-nano",
    .tokenizer = "",
    .compute = COMPUTE_DEFAULTS,
    .seed = 1,
    .batch = 8,
    .repeats = 20,
    .warmup_runs = 3,
    .json = "",
    .profiling = PROFILING_DEFAULTS,
    .prompt = "",
    .tokens = 256,
    .temperature = 0.8,
    .top_p = 0.95,
    .repeat_penalty = 1,
    .stop = "",
    .prompts = "",
    .system = "",
    .template = "",
    .eval = "",
    .field = "",
    .logits = "",
    .translate = "",
    .reference = "",
    .beam = 4,
    .length_penalty = 0.6,
    .embed = "",
    .output = "",
    .fill = "",
    .classify = "",
    .attention_map = "",
    .workers = 1,
    .config = "",
};

static const char *const askers[] = {NULL,    "prompt", "eval", "logits",   "translate",
                                     "embed", "fill",   "chat", "classify", "prompts"};
enum { MODES = sizeof askers / sizeof *askers };

const char *infer_options_asker(InferMode mode) {
    return askers[mode];
}

SamplerOptions infer_options_sampler(const InferOptions *o) {
    return (SamplerOptions){.temperature = o->temperature,
                            .top_k = o->top_k,
                            .top_p = o->top_p,
                            .min_p = o->min_p,
                            .repeat_penalty = o->repeat_penalty,
                            .seed = (uint64_t)o->seed};
}

InferMode infer_options_mode(const InferOptions *o) {
    const char *const texts[MODES] = {"",           o->prompt, o->eval, o->logits,
                                      o->translate, o->embed,  o->fill, o->chat ? "yes" : "",
                                      o->classify,  o->prompts};
    for (int mode = 1; mode < MODES; mode++)
        if (*texts[mode]) return (InferMode)mode;
    return INFER_PROFILE;
}

#define IN(mode) (1u << (mode))

/* The modes that look at an option, and what it needs to be of use; NULL: anything but the mode it is in. */
static const struct {
    const char *name;
    unsigned modes;
    const char *needs;
} uses[] = {
    {"tokens", IN(INFER_GENERATE) | IN(INFER_TRANSLATE) | IN(INFER_CHAT) | IN(INFER_PROMPTS),
     "--prompt or --chat"},
    {"no-cache", IN(INFER_GENERATE) | IN(INFER_TRANSLATE), "--prompt"},
    {"temperature", IN(INFER_GENERATE) | IN(INFER_CHAT) | IN(INFER_PROMPTS), "--prompt or --chat"},
    {"top-k", IN(INFER_GENERATE) | IN(INFER_CHAT) | IN(INFER_PROMPTS), "--prompt or --chat"},
    {"top-p", IN(INFER_GENERATE) | IN(INFER_CHAT) | IN(INFER_PROMPTS), "--prompt or --chat"},
    {"min-p", IN(INFER_GENERATE) | IN(INFER_CHAT) | IN(INFER_PROMPTS), "--prompt or --chat"},
    {"repeat-penalty", IN(INFER_GENERATE) | IN(INFER_CHAT) | IN(INFER_PROMPTS), "--prompt or --chat"},
    {"context", IN(INFER_GENERATE) | IN(INFER_CHAT), "--prompt or --chat"},
    {"stop", IN(INFER_GENERATE), "--prompt"},
    {"field", IN(INFER_EVALUATE), "--eval=FILES"},
    {"system", IN(INFER_CHAT), "--chat"},
    {"template", IN(INFER_CHAT) | IN(INFER_PROMPTS), "--chat"},
    {"reference", IN(INFER_TRANSLATE), "--translate=FILE"},
    {"beam", IN(INFER_TRANSLATE), "--translate=FILE"},
    {"length-penalty", IN(INFER_TRANSLATE), "--translate=FILE"},
    {"min-tokens", IN(INFER_TRANSLATE), "--translate=FILE"},
    {"decoding", IN(INFER_TRANSLATE), "--translate=FILE"},
    {"profile-tokens", IN(INFER_TRANSLATE), "--translate=FILE"},
    {"attention-map", IN(INFER_CLASSIFY), "--classify=PICTURE"},
    {"skip-broken", IN(INFER_CLASSIFY) | IN(INFER_EVALUATE), "--classify or --eval"},
    {"workers", IN(INFER_CLASSIFY) | IN(INFER_EVALUATE) | IN(INFER_EMBED), "--classify, --eval or --embed"},
    {"output", IN(INFER_EMBED), "--embed=FILE"},
    {"pooling", IN(INFER_EMBED), "--embed=FILE"},
    {"ids", IN(INFER_LOGITS), "--logits=FILE"},
    {"batch-sizes", IN(INFER_PROFILE), NULL},
    {"seq-lens", IN(INFER_PROFILE), NULL},
    {"image-sizes", IN(INFER_PROFILE), NULL},
    {"repeats", IN(INFER_PROFILE), NULL},
    {"warmup-runs", IN(INFER_PROFILE), NULL},
    {"compare", IN(INFER_PROFILE) | IN(INFER_GENERATE), NULL},
    {"json", IN(INFER_PROFILE) | IN(INFER_CLASSIFY) | IN(INFER_EVALUATE), NULL},
    {"profile", IN(INFER_PROFILE) | IN(INFER_GENERATE) | IN(INFER_TRANSLATE), NULL},
    {"sweep", IN(INFER_PROFILE), NULL},
    {"batch",
     IN(INFER_PROFILE) | IN(INFER_EVALUATE) | IN(INFER_TRANSLATE) | IN(INFER_EMBED) | IN(INFER_CLASSIFY) |
         IN(INFER_PROMPTS),
     NULL},
    {"seq", IN(INFER_PROFILE) | IN(INFER_EVALUATE) | IN(INFER_EMBED), NULL},
};

/* An option of another mode than the present one would be ignored in silence. */
static Status check_modes(const InferOptions *o, const OptionSet *set) {
    InferMode mode = infer_options_mode(o);
    for (int one = 1; one < MODES && mode == INFER_PROFILE; one++)
        if (one != INFER_CHAT && options_given(set, askers[one])) // which is a flag: --chat=0
            return fail(ERROR_USAGE, "--%s is empty", askers[one]);
    for (int one = 1; one < MODES; one++)
        for (int other = one + 1; other < MODES; other++)
            TRY(options_exclude(set, askers[one], askers[other]));
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (uses[i].modes & IN(mode)) continue;
        if (uses[i].needs) TRY(option_needs(set, uses[i].name, false, uses[i].needs));
        if (mode != INFER_PROFILE) TRY(options_exclude(set, uses[i].name, askers[mode]));
    }
    TRY(options_exclude(set, "profile", "json"));
    TRY(options_exclude(set, "profile", "repeats")); // its window says how many passes there are
    TRY(options_exclude(set, "profile", "warmup-runs"));
    TRY(options_exclude(set, "no-cache", "decoding"));
    TRY(options_exclude(set, "sweep", "json"));
    TRY(options_exclude(set, "sweep", "repeats"));
    TRY(options_exclude(set, "sweep", "warmup-runs"));
    TRY(options_exclude(set, "image-sizes", "seq-lens"));
    TRY(option_needs(set, "image-sizes", o->profiling.sweep, "--sweep"));
    TRY(profiling_options_check(&o->profiling, &o->compute, set, 0));
    if (mode == INFER_GENERATE && *o->profiling.window) TRY(text_profile_check(&o->profiling, o->tokens));
    TRY(option_needs(set, "profile-tokens", *o->profiling.window, "--profile"));
    if (mode == INFER_GENERATE) TRY(option_needs(set, "compare", *o->profiling.window, "--profile"));
    if (mode == INFER_LOGITS && !o->ids.count)
        return fail(ERROR_USAGE, "--logits needs the tokens to compute them for: --ids=1,2,3");
    if (mode == INFER_EMBED && !*o->output)
        return fail(ERROR_USAGE, "--embed needs a file to write the embeddings to: --output=FILE");
    return OK;
}

Status infer_options_check(const InferOptions *o, const OptionSet *set) {
    TRY(compute_options_check(&o->compute));
    TRY(check_modes(o, set));
    TRY(options_exclude(set, "batch", "batch-sizes"));
    TRY(options_exclude(set, "seq", "seq-lens"));
    if (o->min_tokens > o->tokens)
        return fail(ERROR_USAGE, "--min-tokens=%lld is more than --tokens=%lld", (long long)o->min_tokens,
                    (long long)o->tokens);
    TRY(option_needs(set, "top-k", o->temperature > 0, "a --temperature above 0"));
    TRY(option_needs(set, "top-p", o->temperature > 0, "a --temperature above 0"));
    TRY(option_needs(set, "min-p", o->temperature > 0, "a --temperature above 0"));
    return o->compare ? compute_options_check_compare(&o->compute) : OK;
}

/* What is there may be a pipe, which is to be opened once. */
static Status check_output(const char *path) {
    PathKind kind;
    FileWriter *writer;
    if (!*path) return OK;
    TRY(path_kind(path, &kind));
    if (kind == PATH_FOLDER) return fail(ERROR_FILE, "cannot write %s: it is a folder", path);
    if (kind == PATH_FILE) return OK;
    TRY(file_writer_open(path, &writer));
    file_writer_abandon(writer);
    return OK;
}

Status infer_options_check_outputs(const InferOptions *o) {
    const char *const outputs[] = {o->output, o->logits, o->json, o->attention_map};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) TRY(check_output(outputs[i]));
    return OK;
}

Status infer_options_read(int argc, char **argv, InferOptions *options, OptionSet *set, bool *done) {
    *options = defaults;
    options_open(set, "infer", FUSEBOX_VERSION,
                 "Runs a Transformer: profiles it, generates text, evaluates it.", table,
                 sizeof table / sizeof *table, options);
    TRY(options_parse(set, argc, argv, done));
    if (*done) return OK;
    if (*options->config) TRY(options_read_file(set, options->config));
    compute_options_resolve(set, &options->compute);
    profiling_options_resolve(set, &options->profiling);
    if (options->chat && !options_given(set, "tokens")) options->tokens = SIZE_MOST;
    options->pooling_given = options_given(set, "pooling");
    options->seq_given = options_given(set, "seq");
    TRY(infer_options_check(options, set));
    *done = options->print_config;
    return options->print_config ? options_print(set) : OK;
}
