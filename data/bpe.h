/* bpe: byte-pair encoding (tokenizer.h says what it does), of bytes as GPT-2's or of characters as
 * SentencePiece's. A text is normalized, cut into pieces by a chain of patterns, and in each piece pairs are
 * merged. */
#pragma once

#include "base/files.h"
#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

typedef struct {
    int32_t left, right, product;
} Merge; // its rank is its index in the list

/* From a pair of ids to the merge's rank; open addressing, a power of two of slots, rank -1 where empty. */
typedef struct {
    int32_t left, right, rank, product;
} PairSlot;
typedef struct {
    PairSlot *slots;
    uint64_t mask;
} PairTable;

/* From a code point to its token; an entry of an stb_ds table. */
typedef struct {
    int32_t key, value;
} CharacterId;

typedef struct Splitter Splitter;

/* A step of the chain that cuts a text into pieces. */
typedef struct {
    Splitter *splitter; // NULL: the piece stays whole
    bool prefix;        // a piece gets a space before it, if it does not begin with one
    Bytes spaced;       // the piece with its space
} SplitStep;

/* A step of normalization. */
typedef enum { NORMAL_NFC, NORMAL_PREPEND, NORMAL_REPLACE } NormalKind;
typedef struct {
    NormalKind kind;
    char *from, *to; // REPLACE: from, to; PREPEND: to
} NormalStep;

enum { BPE_STEPS = 8 }; // of each chain

typedef struct Bpe {
    Merge *merges; // (merge_count) by rank
    int64_t merge_count;
    PairTable pairs;
    bool in_order;   // a merge's product is in merges of higher rank only
    bool byte_level; // pieces are merged from their bytes, else from their characters
    bool separable;  // of characters: no merge reaches from a word into the space (U+2581) of the next
    bool fuse_unknown, byte_fallback;
    int32_t unknown;         // the token of what has none, or -1: that is left out
    int32_t byte_ids[256];   // or -1
    CharacterId *characters; // without byte_level
    int32_t *whole;          // (whole_mask + 1) by their bytes, tokens that a piece may be at once; or NULL
    uint64_t whole_mask;

    NormalStep normal[BPE_STEPS];
    SplitStep steps[BPE_STEPS];
    int normal_count, step_count;
    bool spaces_marked; // Metaspace: a space becomes U+2581
    bool mark_always;   // ... and a stretch gets one before it
    bool mark_first;    // ... or only that at the beginning of the text
    bool mark_splits;   // ... and each of them begins a piece
    Bytes marked;
    Bytes normalized[2];
    int32_t *points; // (point_room) of a stretch, for NFC
    int64_t point_room;

    void *scratch; // for merging one long piece
    int64_t scratch_bytes;
} Bpe;

/* The mark that stands for a space in SentencePiece's vocabularies, U+2581. */
#define SPACE_MARK "\xe2\x96\x81"

/* Makes an empty tokenizer an empty BPE. */
void bpe_start(Tokenizer *tokenizer);
/* When vocabulary, merges and chains are there: the hash and the table of pairs. ERROR_FORMAT on a repeated
 * pair. */
CHECKED Status bpe_finish(Tokenizer *tokenizer);
void bpe_free(Bpe *bpe); // NULL is fine

/* The next piece at the cursor, text[*begin, *end), by the first step of the chain. Where it drops what is
 * left of the section, *begin == *end. */
CHECKED Status bpe_piece_next(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *begin, int64_t *end);
/* Appends the ids of that piece; the cursor moves behind it. */
CHECKED Status bpe_encode_next(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list);
/* Appends the ids of a normalized stretch of text; `first`: the text begins with it. */
CHECKED Status bpe_encode_stretch(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                                  TokenList *list);
/* Must a text be taken by whole stretches, because something is done to it before it is cut? */
bool bpe_by_stretches(const Tokenizer *tokenizer);

/* ---- bpe_merge.c ---- */

/* From the merges: the table of their pairs. ERROR_FORMAT on a repeated pair. */
CHECKED Status bpe_build_pairs(Bpe *bpe, int64_t vocab);
/* From now on a piece that is one of these tokens is that at once ("ignore_merges"). */
void bpe_take_whole(Tokenizer *tokenizer, const json_t *vocab);
/* Appends the ids of one piece after the last cut. */
void bpe_merge(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);

/* ---- bpe_alphabet.c: GPT-2's printable stand-ins for the 256 bytes ---- */

/* The code point that stands for `byte`: itself where printable in Latin-1, else 256 and up in order. */
uint32_t alphabet_code_point(uint8_t byte);
/* Writes the stand-in of `byte` in UTF-8; returns its 1 or 2 bytes. */
int alphabet_write(uint8_t byte, char out[2]);
/* Reads a token's text back into bytes (at most strlen(text) of them); -1 if a letter is not of the
 * alphabet. */
int64_t alphabet_read(const char *text, uint8_t *bytes);

/* ---- bpe_split.c: patterns ---- */

/* What becomes of a match: a piece of its own, nothing, one piece with the matches beside it, or a part of
 * the piece before or behind it. */
typedef enum {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_CONTIGUOUS,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT
} SplitBehavior;

/* The pattern is PCRE2's, or a text to be found as it is. `invert`: what does not match counts as a match.
 * ERROR_FORMAT for a pattern that is wrong or matches nothing at all. */
CHECKED Status splitter_open(const char *pattern, bool literal, SplitBehavior behavior, bool invert,
                             Splitter **splitter);
CHECKED Status splitter_open_gpt2(Splitter **splitter); // GPT-2's pattern, isolated
void splitter_free(Splitter *splitter);                 // NULL is fine
/* The next piece from `from` on, [*begin, *end): it begins there unless matches are removed. Where begin ==
 * end, there is none left. text[0, length) is valid UTF-8 from `from` on. */
CHECKED Status splitter_next(Splitter *splitter, const uint8_t *text, int64_t length, int64_t from,
                             int64_t *begin, int64_t *end);
/* What decides its pieces. */
uint64_t splitter_hash(const Splitter *splitter, uint64_t hash);

/* Rewrites a regular expression from Oniguruma's dialect, which tokenizer.json's are written in, to PCRE2's.
 * ERROR_FORMAT for what means something else there. The caller frees `*out`. */
CHECKED Status pattern_translate(const char *pattern, char **out);

/* ---- bpe_normalize.c ---- */

/* The normalized text, which lives until the next call; `whole`: it is not the rest of a longer one. */
const uint8_t *bpe_normalize(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool whole,
                             int64_t *count);
/* The stretch with its spaces marked, or with one before it, as the pre-tokenizer has it; the same way. */
const uint8_t *bpe_mark_spaces(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                               int64_t *count);

/* ---- bpe_load.c, bpe_json.c, bpe_train.c: fill an empty tokenizer ---- */

/* From vocab.json and merges.txt; the paths serve as names in messages. `config` is the tokenizer_config.json
 * beside them, or NULL. */
CHECKED Status bpe_load(Tokenizer *tokenizer, const char *vocab_path, const char *merges_path,
                        const json_t *config);
/* From a parsed tokenizer.json; `path` is for messages. */
CHECKED Status bpe_load_json(Tokenizer *tokenizer, const json_t *root, const char *path);
/* What a tokenizer.json does to a text before and after merging: everything but the vocabulary and the
 * merges. ERROR_FORMAT, by its name, for what is not supported. */
CHECKED Status bpe_read_chains(Bpe *bpe, const json_t *root, const char *path, Decoding *decoding);
/* From texts, as tokenizer_train says. */
CHECKED Status bpe_train(Tokenizer *tokenizer, const PathList *texts, int64_t vocab);
