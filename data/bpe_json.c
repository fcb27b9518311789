/* Reads the steps of a tokenizer.json other than its vocabulary and merges. */
#include "base/memory.h"
#include "data/bpe.h"
#include "data/tokenizer_json.h"

#include <string.h>

/* Nothing is ignored: an unknown type or key is refused by name. */

typedef struct {
    Bpe *bpe;
    Decoding *decoding;
    const char *path;
    bool byte_level; // the chain has ended in ByteLevel
    int64_t growth;  // how many times longer the normalizer may make a text
} Chains;

enum { NORMAL_GROWTH = 64, NFC_GROWTH = 3 /* maximum growth of UTF-8: Unicode Standard Annex 15, table 4 */ };

static Status refuse(const Chains *c, const char *what, const json_t *type) {
    return fail(
        ERROR_FORMAT, "%s: %s.type %s%s%s is not supported", c->path, what, json_is_string(type) ? "\"" : "",
        json_is_string(type) ? json_string_value(type) : "of no name", json_is_string(type) ? "\"" : "");
}

/* Calls `take` for the object, or for each object in a Sequence. Null and absent mean none. */
static Status each(Chains *c, const json_t *object, const char *list, const char *what,
                   Status (*take)(Chains *c, const json_t *object, const char *type)) {
    const json_t *type = json_object_get(object, "type");
    if (!object || json_is_null(object)) return OK;
    if (!json_is_string(type)) return refuse(c, what, type);
    if (!json_is_text(type, "Sequence")) return take(c, object, json_string_value(type));
    const json_t *members = json_object_get(object, list);
    if (!json_is_array(members)) return fail(ERROR_FORMAT, "%s: %s.%s is not an array", c->path, what, list);
    for (size_t i = 0; i < json_array_size(members); i++)
        TRY(each(c, json_array_get(members, i), list, what, take));
    return OK;
}

/* The text of {"String": text} or {"Regex": text}, or NULL. */
static const char *pattern_text(const json_t *object, const char *kind) {
    return json_string_value(json_object_get(json_object_get(object, "pattern"), kind));
}

/* ---- the normalizer ---- */

/* A short text must not grow until it fills the memory. */
static Status limit_growth(Chains *c, const NormalStep *step, const char *from, const char *to) {
    int64_t times = NFC_GROWTH;
    if (step->kind == NORMAL_PREPEND) times = 1 + (int64_t)strlen(to);
    if (step->kind == NORMAL_REPLACE && *to) times = 1 + (int64_t)((strlen(to) - 1) / strlen(from));
    if (step->kind == NORMAL_REPLACE && !*to) times = 1;
    if (times <= NORMAL_GROWTH) c->growth *= times;
    if (times <= NORMAL_GROWTH && c->growth <= NORMAL_GROWTH) return OK;
    return fail(ERROR_FORMAT, "%s: the normalizer could make a text over %d times as long", c->path,
                NORMAL_GROWTH);
}

static Status take_normalizer(Chains *c, const json_t *object, const char *type) {
    static const char *const keys[] = {"type", "prepend", "pattern", "content", NULL};
    TRY(json_check_keys(object, keys, c->path, "normalizer"));
    NormalStep step = {0};
    const char *from = pattern_text(object, "String"), *to = NULL;
    if (strcmp(type, "NFC") == 0) {
        step.kind = NORMAL_NFC;
    } else if (strcmp(type, "Prepend") == 0) {
        step.kind = NORMAL_PREPEND;
        from = "";
        to = json_string_value(json_object_get(object, "prepend"));
    } else if (strcmp(type, "Replace") == 0) {
        step.kind = NORMAL_REPLACE;
        to = json_string_value(json_object_get(object, "content"));
        if (from && !*from) from = NULL;
    } else {
        return refuse(c, "normalizer", json_object_get(object, "type"));
    }
    if (step.kind != NORMAL_NFC && (!from || !to))
        return fail(ERROR_FORMAT, "%s: a normalizer %s is supported only from one text to another", c->path,
                    type);
    if (c->bpe->normal_count == BPE_STEPS)
        return fail(ERROR_FORMAT, "%s: the normalizer has over %d steps", c->path, BPE_STEPS);
    TRY(limit_growth(c, &step, from, to));
    if (step.kind != NORMAL_NFC) step.from = memory_text(from), step.to = memory_text(to);
    c->bpe->normal[c->bpe->normal_count++] = step;
    return OK;
}

/* ---- the pre-tokenizer ---- */

static Status add_step(Chains *c, Splitter *splitter, bool prefix) {
    if (c->bpe->step_count == BPE_STEPS) {
        splitter_free(splitter);
        return fail(ERROR_FORMAT, "%s: the pre_tokenizer has over %d steps", c->path, BPE_STEPS);
    }
    c->bpe->steps[c->bpe->step_count++] = (SplitStep){.splitter = splitter, .prefix = prefix};
    return OK;
}

static Status take_split(Chains *c, const json_t *object) {
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const behaviors[] = {[SPLIT_ISOLATED] = "Isolated",
                                            [SPLIT_REMOVED] = "Removed",
                                            [SPLIT_CONTIGUOUS] = "Contiguous",
                                            [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
                                            [SPLIT_WITH_NEXT] = "MergedWithNext"};
    enum { BEHAVIORS = sizeof behaviors / sizeof *behaviors };
    const char *regex = pattern_text(object, "Regex"), *text = pattern_text(object, "String");
    const json_t *name = json_object_get(object, "behavior");
    bool invert;
    int behavior = 0;
    TRY(json_check_keys(object, keys, c->path, "pre_tokenizer Split"));
    TRY(json_read_flag(object, "invert", false, c->path, &invert));
    while (behavior < BEHAVIORS && !json_is_text(name, behaviors[behavior])) behavior++;
    if (behavior == BEHAVIORS || (!regex && !text))
        return fail(ERROR_FORMAT, "%s: a pre_tokenizer Split has no supported %s", c->path,
                    behavior == BEHAVIORS ? "behavior" : "pattern");
    OWNED char *pattern = NULL;
    Splitter *splitter = NULL;
    if (regex) TRY(fail_at(pattern_translate(regex, &pattern), "%s: pre_tokenizer Split", c->path));
    TRY(fail_at(splitter_open(regex ? pattern : text, !regex, (SplitBehavior)behavior, invert, &splitter),
                "%s: pre_tokenizer Split", c->path));
    return add_step(c, splitter, false);
}

/* Splits numbers into single digits, or into runs of digits. */
static Status take_digits(Chains *c, const json_t *object) {
    static const char *const keys[] = {"type", "individual_digits", NULL};
    bool individual;
    Splitter *splitter;
    TRY(json_check_keys(object, keys, c->path, "pre_tokenizer Digits"));
    TRY(json_read_flag(object, "individual_digits", false, c->path, &individual));
    TRY(splitter_open("\\p{N}", false, individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false, &splitter));
    return add_step(c, splitter, false);
}

static Status take_byte_level(Chains *c, const json_t *object) {
    static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    bool prefix, regex;
    Splitter *splitter = NULL;
    TRY(json_check_keys(object, keys, c->path, "pre_tokenizer ByteLevel"));
    TRY(json_read_flag(object, "add_prefix_space", true, c->path, &prefix));
    TRY(json_read_flag(object, "use_regex", true, c->path, &regex)); /* absent in old files */
    if (regex) TRY(splitter_open_gpt2(&splitter));
    c->byte_level = true;
    return regex || prefix ? add_step(c, splitter, prefix) : OK;
}

static Status take_metaspace(Chains *c, const json_t *object) {
    static const char *const keys[] = {"type", "replacement", "prepend_scheme", "split", NULL};
    const json_t *scheme = json_object_get(object, "prepend_scheme");
    Bpe *bpe = c->bpe;
    TRY(json_check_keys(object, keys, c->path, "pre_tokenizer Metaspace"));
    TRY(json_read_flag(object, "split", true, c->path, &bpe->mark_splits));
    bpe->spaces_marked = json_is_text(json_object_get(object, "replacement"), SPACE_MARK);
    bpe->mark_always = json_is_text(scheme, "always");
    bpe->mark_first = json_is_text(scheme, "first");
    if (bpe->spaces_marked && (bpe->mark_always || bpe->mark_first || json_is_text(scheme, "never")))
        return OK;
    return fail(ERROR_FORMAT, "%s: a pre_tokenizer Metaspace of this kind is not supported", c->path);
}

static Status take_cutter(Chains *c, const json_t *object, const char *type) {
    if (c->byte_level || c->bpe->spaces_marked)
        return fail(ERROR_FORMAT, "%s: a pre_tokenizer %s after %s is not supported", c->path, type,
                    c->byte_level ? "ByteLevel" : "Metaspace");
    if (strcmp(type, "Split") == 0) return take_split(c, object);
    if (strcmp(type, "Digits") == 0) return take_digits(c, object);
    if (strcmp(type, "ByteLevel") == 0) return take_byte_level(c, object);
    if (strcmp(type, "Metaspace") == 0 && c->bpe->step_count == 0) return take_metaspace(c, object);
    return refuse(c, "pre_tokenizer", json_object_get(object, "type"));
}

/* ---- the decoder ---- */

static Status take_decoder(Chains *c, const json_t *object, const char *type) {
    Decoding *d = c->decoding;
    const json_t *content = json_object_get(object, "content");
    bool to_space = json_is_text(content, " ");
    if (strcmp(type, "Fuse") == 0) return OK;
    if (strcmp(type, "ByteLevel") == 0 && c->byte_level) return OK;
    if (strcmp(type, "ByteFallback") == 0 && !c->byte_level) {
        d->bytes = true;
    } else if (strcmp(type, "Replace") == 0 && to_space && pattern_text(object, "String") &&
               strcmp(pattern_text(object, "String"), SPACE_MARK) == 0) {
        d->marks = true;
    } else if (strcmp(type, "Strip") == 0 && to_space && json_is_off(object, "stop") &&
               json_integer_value(json_object_get(object, "start")) == 1) {
        d->leading_gone = true;
    } else if (strcmp(type, "Metaspace") == 0 &&
               json_is_text(json_object_get(object, "replacement"), SPACE_MARK)) {
        d->marks = true;
        d->leading_gone = !json_is_text(json_object_get(object, "prepend_scheme"), "never");
    } else {
        return refuse(c, "decoder", json_object_get(object, "type"));
    }
    return OK;
}

/* ---- all of it ---- */

static Status read_model(Bpe *bpe, const json_t *model, const char *path) {
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    static const char *const unsupported[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    if (!json_is_text(json_object_get(model, "type"), "BPE"))
        return fail(ERROR_FORMAT, "%s: model.type is neither BPE nor WordPiece", path);
    TRY(json_check_keys(model, keys, path, "model"));
    for (int i = 0; i < 3; i++)
        if (!json_is_off(model, unsupported[i]))
            return fail(ERROR_FORMAT, "%s: model.%s is not supported", path, unsupported[i]);
    TRY(json_read_flag(model, "fuse_unk", false, path, &bpe->fuse_unknown));
    return json_read_flag(model, "byte_fallback", false, path, &bpe->byte_fallback);
}

Status bpe_read_chains(Bpe *bpe, const json_t *root, const char *path, Decoding *decoding) {
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    Chains c = {.bpe = bpe, .decoding = decoding, .path = path, .growth = 1};
    TRY(json_check_keys(root, keys, path, "the tokenizer"));
    TRY(read_model(bpe, json_object_get(root, "model"), path));
    TRY(each(&c, json_object_get(root, "normalizer"), "normalizers", "normalizer", take_normalizer));
    TRY(each(&c, json_object_get(root, "pre_tokenizer"), "pretokenizers", "pre_tokenizer", take_cutter));
    bpe->byte_level = c.byte_level;
    return each(&c, json_object_get(root, "decoder"), "decoders", "decoder", take_decoder);
}
