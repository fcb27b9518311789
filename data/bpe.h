/* bpe: byte-pair encoding (see tokenizer.h) of bytes, as in GPT-2, or of characters, as in SentencePiece. A
 * text is normalized, split into pieces by a chain of patterns, and pairs are merged within each piece. */
#pragma once

#include "base/files.h"
#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

typedef struct {
    int32_t left, right, product;
} Merge; // the rank is the index in the list

/* Maps a pair of ids to the merge's rank by open addressing; the number of slots is a power of two, and rank
 * is -1 in empty ones. */
typedef struct {
    int32_t left, right, rank, product;
} PairSlot;
typedef struct {
    PairSlot *slots;
    uint64_t mask;
} PairTable;

/* Maps a code point to its token; an entry of an stb_ds table. */
typedef struct {
    int32_t key, value;
} CharacterId;

typedef struct Splitter Splitter;

/* A step of the chain that splits a text into pieces. */
typedef struct {
    Splitter *splitter; // NULL: the piece is not split
    bool prefix;        // insert a space before a piece that does not begin with one
    Bytes spaced;       // the piece with its space
} SplitStep;

/* A step of normalization. */
typedef enum { NORMAL_NFC, NORMAL_PREPEND, NORMAL_REPLACE } NormalKind;
typedef struct {
    NormalKind kind;
    char *from, *to; // REPLACE: from, to; PREPEND: to
} NormalStep;

enum { BPE_STEPS = 8 }; // per chain

typedef struct Bpe {
    Merge *merges; // (merge_count), by rank
    int64_t merge_count;
    PairTable pairs;
    bool in_order;   // a merge's product occurs only in merges of higher rank
    bool byte_level; // pieces are merged from bytes, else from characters
    bool separable;  // with characters: no merge spans a word and the space mark (U+2581) of the next
    bool fuse_unknown, byte_fallback;
    int32_t unknown;         // the unknown token; -1: characters without a token are dropped
    int32_t byte_ids[256];   // the token of each byte, or -1
    CharacterId *characters; // without byte_level
    int32_t *whole;          // (whole_mask + 1) hash table, by bytes, of tokens that a whole piece becomes
                             // without merging; or NULL
    uint64_t whole_mask;

    NormalStep normal[BPE_STEPS];
    SplitStep steps[BPE_STEPS];
    int normal_count, step_count;
    bool spaces_marked; // Metaspace: a space becomes U+2581
    bool mark_always;   // ... and one is inserted before each stretch
    bool mark_first;    // ... or only at the beginning of the text
    bool mark_splits;   // ... and each mark begins a piece
    Bytes marked;
    Bytes normalized[2];
    int32_t *points; // (point_room) code points of a stretch, for NFC
    int64_t point_room;

    void *scratch; // scratch for merging a long piece
    int64_t scratch_bytes;
} Bpe;

/* U+2581, the mark for a space in SentencePiece's vocabularies. */
#define SPACE_MARK "\xe2\x96\x81"

/* Turns an empty tokenizer into an empty BPE. */
void bpe_start(Tokenizer *tokenizer);
/* Call after vocabulary, merges and chains are filled: computes the hash and the table of pairs. ERROR_FORMAT
 * on a repeated pair. */
CHECKED Status bpe_finish(Tokenizer *tokenizer);
void bpe_free(Bpe *bpe); // accepts NULL

/* The next piece at the cursor, text[*begin, *end), by the first step of the chain. If the step drops the
 * rest of the section, *begin == *end. */
CHECKED Status bpe_piece_next(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *begin, int64_t *end);
/* Appends the ids of that piece and moves the cursor past it. */
CHECKED Status bpe_encode_next(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list);
/* Appends the ids of a normalized stretch of text; `first`: the stretch begins the text. */
CHECKED Status bpe_encode_stretch(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                                  TokenList *list);
/* Whether texts must be encoded by whole stretches, because they are transformed before splitting. */
bool bpe_by_stretches(const Tokenizer *tokenizer);

/* ---- bpe_merge.c ---- */

/* Builds the table of pairs from the merges. ERROR_FORMAT on a repeated pair. */
CHECKED Status bpe_build_pairs(Bpe *bpe, int64_t vocab);
/* From now on a piece that equals one of these tokens becomes that token without merging
 * ("ignore_merges"). */
void bpe_take_whole(Tokenizer *tokenizer, const json_t *vocab);
/* Appends the ids of one piece after the last split. */
void bpe_merge(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);

/* ---- bpe_alphabet.c: GPT-2's printable stand-ins for the 256 bytes ---- */

/* The code point that represents `byte`: itself if it is printable in Latin-1, else one from 256 up, in
 * order. */
uint32_t alphabet_code_point(uint8_t byte);
/* Writes the character of `byte` in UTF-8; returns its length, 1 or 2 bytes. */
int alphabet_write(uint8_t byte, char out[2]);
/* Decodes a token's text to bytes (at most strlen(text) of them); -1 if a letter is not in the alphabet. */
int64_t alphabet_read(const char *text, uint8_t *bytes);

/* ---- bpe_split.c: patterns ---- */

/* The treatment of a match: a separate piece, nothing, one piece with adjacent matches, or part of the
 * previous or next piece. */
typedef enum {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_CONTIGUOUS,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT
} SplitBehavior;

/* The pattern is PCRE2's, or a literal text. With `invert` everything that does not match counts as a match.
 * ERROR_FORMAT for a pattern that is invalid or can match nothing. */
CHECKED Status splitter_open(const char *pattern, bool literal, SplitBehavior behavior, bool invert,
                             Splitter **splitter);
CHECKED Status splitter_open_gpt2(Splitter **splitter); // GPT-2's pattern, isolated
void splitter_free(Splitter *splitter);                 // accepts NULL
/* The next piece from `from` on, [*begin, *end); it begins at `from` unless matches are removed. begin == end
 * at the end. text[0, length) must be valid UTF-8 from `from` on. */
CHECKED Status splitter_next(Splitter *splitter, const uint8_t *text, int64_t length, int64_t from,
                             int64_t *begin, int64_t *end);
/* Hashes everything that affects the pieces. */
uint64_t splitter_hash(const Splitter *splitter, uint64_t hash);

/* Translates a regular expression from Oniguruma's dialect, used in tokenizer.json, to PCRE2's. ERROR_FORMAT
 * for constructs whose meaning differs. The caller frees `*out`. */
CHECKED Status pattern_translate(const char *pattern, char **out);

/* ---- bpe_normalize.c ---- */

/* The normalized text, valid until the next call; `whole`: it is a whole text and not a part. */
const uint8_t *bpe_normalize(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool whole,
                             int64_t *count);
/* The stretch with its spaces marked, or with one inserted before it, as the pre-tokenizer requires; valid
 * until the next call. */
const uint8_t *bpe_mark_spaces(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                               int64_t *count);

/* ---- bpe_load.c, bpe_json.c, bpe_train.c: fill an empty tokenizer ---- */

/* Loads vocab.json and merges.txt; the paths also serve as names in messages. `config` is the
 * tokenizer_config.json in the same folder, or NULL. */
CHECKED Status bpe_load(Tokenizer *tokenizer, const char *vocab_path, const char *merges_path,
                        const json_t *config);
/* Loads a parsed tokenizer.json; `path` is for messages. */
CHECKED Status bpe_load_json(Tokenizer *tokenizer, const json_t *root, const char *path);
/* Reads the steps of a tokenizer.json before and after merging: everything but the vocabulary and the merges.
 * ERROR_FORMAT, naming the culprit, if something is not supported. */
CHECKED Status bpe_read_chains(Bpe *bpe, const json_t *root, const char *path, Decoding *decoding);
/* Trains on texts: see tokenizer_train. */
CHECKED Status bpe_train(Tokenizer *tokenizer, const PathList *texts, int64_t vocab);
