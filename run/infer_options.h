/* infer_options: what ./infer can be told. */
#pragma once

#include "run/compute_options.h"
#include "run/profiling_options.h"
#include "run/sampler.h"

/* What ./infer does follows from which of --prompt, --eval, --logits, --translate, --embed, --fill, --chat,
 * --classify and --prompts is there. */
typedef enum {
    INFER_PROFILE,
    INFER_GENERATE,
    INFER_EVALUATE,
    INFER_LOGITS,
    INFER_TRANSLATE,
    INFER_EMBED,
    INFER_FILL,
    INFER_CHAT,
    INFER_CLASSIFY,
    INFER_PROMPTS
} InferMode;

typedef enum { POOLING_MEAN, POOLING_FIRST, POOLING_POOLER } Pooling; // of hidden states to an embedding

/* Texts are never NULL; "" means not given. Lists are empty when not given. */
typedef struct {
    const char *model;     // a preset, or a folder that holds a model
    const char *tokenizer; // "bytes" or a folder; "": what suits the model
    ComputeOptions compute;
    int64_t seed;
    int64_t batch, seq;               // seq 0: the context
    OptionList batch_sizes, seq_lens; // sweeps, in place of batch and seq
    OptionList image_sizes;           // of --sweep, in place of the model's own
    int64_t repeats, warmup_runs;     // runs that are timed, and before them runs that are not
    bool compare;                     // naive and fused
    const char *json;                 // file for the profile
    ProfilingOptions profiling;       // traced runs, besides
    const char *prompt;               // "-": standard input
    int64_t tokens;                   // to generate at most
    double temperature, top_p;        // temperature 0: greedy; top_p 1: all
    double min_p, repeat_penalty;     // min_p 0: all; repeat_penalty 1: none
    int64_t top_k;                    // 0: all
    int64_t context;                  // tokens of a text that are kept at once; 0: as many as it needs
    const char *stop;                 // generation ends before this text
    const char *prompts;              // JSON lines, to answer each
    bool chat;                        // hold a conversation
    const char *system;               // its system message; "": the template's
    const char *template;             // "chatml", ...; "": the model's own
    bool no_cache;                    // compute every token anew, for comparison
    const char *eval;                 // a file or a pattern of files
    const char *field;                // the key of its texts, where they are JSON lines; "": plain texts
    const char *logits;               // safetensors file to write
    OptionList ids;                   // tokens whose logits it gets
    const char *translate;            // a text, a sentence in each line
    const char *reference;            // its translation, for BLEU; "": none
    int64_t beam;                     // hypotheses of each sentence; 1: greedy
    double length_penalty;            // of the beam
    int64_t min_tokens;               // of a translation, with the end token
    int decoding;                     // a Decoding (tasks/pairs/translate.h)
    bool profile_tokens;              // of a translation a token is a step of the profile, not a batch
    const char *embed;                // a text, to embed each line of
    const char *output;               // safetensors file of the embeddings
    Pooling pooling;
    bool pooling_given;        // by --pooling
    bool seq_given;            // by --seq
    const char *fill;          // a text with [MASK] in it
    const char *classify;      // a picture, a pattern or a folder
    const char *attention_map; // PNG file to draw; "": none
    bool skip_broken;          // pass over pictures that cannot be read
    int64_t workers;           // threads that decode pictures
    bool quiet;
    const char *config;
    bool print_config;
} InferOptions;

/* Like train_options_read. */
CHECKED Status infer_options_read(int argc, char **argv, InferOptions *options, OptionSet *set, bool *done);

/* The contradictions, as ERROR_USAGE. A pure function; infer_options_read has called it. */
CHECKED Status infer_options_check(const InferOptions *options, const OptionSet *set);

/* Whether the files that will be written can be: asked before anything is computed for them. ERROR_FILE. */
CHECKED Status infer_options_check_outputs(const InferOptions *options);

SamplerOptions infer_options_sampler(const InferOptions *options);

InferMode infer_options_mode(const InferOptions *options);

/* The option that asks for a mode, such as "prompt"; NULL for a profile, which needs none. */
const char *infer_options_asker(InferMode mode);
