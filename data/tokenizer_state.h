/* tokenizer_state: the tokenizer's data. Each kind (bpe.h, wordpiece.h) fills it; tokenizer.h, on top of the
 * kinds, is the interface for everything else. */
#pragma once

#include "data/token.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

enum {
    TOKEN_TEXT_LIMIT = 4096, // bytes of one token in a file
    VOCAB_LIMIT = 1 << 20,
    PIECE_LIMIT = 1 << 22, // bytes; a longer piece is cut, and only there ids can differ from the original's
    KEPT_FILES = 8,
};

typedef enum { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_WORDPIECE } TokenizerKind;

/* Added tokens are searched in a text before anything else is done to it, as in Hugging Face's tokenizers:
 * the leftmost match, and the longest of these. */
typedef struct {
    char *text;
    int64_t length; // bytes
    int32_t id;
    bool special;        // represents no text: searched only on request
    bool single_word;    // only if no letter, digit or underscore is adjacent
    bool lstrip, rstrip; // absorbs spaces before it, after it
    bool normalized;     // searched in the normalized text, not in the text itself
} AddedToken;

/* All-zero: no tokens. */
typedef struct {
    AddedToken *tokens; // (count) sorted by text once added_sort has been called
    int64_t count, room;
    int64_t first[257]; // start of the tokens with each first byte
    int lead;           // the byte that all of them begin with, or -1
} AddedTokens;

/* A match: text[begin, end). The search continues at `next`, which is before `end` if the token has absorbed
 * spaces after it: these may be tokens, too. */
typedef struct {
    const AddedToken *token; // NULL: none
    int64_t begin, end, next;
} AddedMatch;

/* How tokens are decoded to text. */
typedef struct {
    bool marks;        // U+2581 is a space
    bool bytes;        // <0x0A> is a byte
    bool leading_gone; // a text's first space is removed
} Decoding;

/* A file as it was read; it is saved unchanged. */
typedef struct {
    const char *name;
    char *contents;
    int64_t length;
} KeptFile;

typedef struct Tokenizer {
    TokenizerKind kind;
    int32_t vocab;
    int32_t end_of_text;            // or -1
    int32_t special[SPECIAL_COUNT]; // or -1
    TokenList before, after;        // tokens around a text when special tokens are requested
    uint64_t hash;
    uint8_t *pool;               // all tokens' bytes, concatenated
    int64_t *starts;             // (vocab + 1) offset of each token in the pool
    bool *spelled;               // (vocab) spelled literally in files, not in the byte alphabet
    Decoding decoding;           // decoding beyond the pool's bytes
    AddedTokens added[2];        // searched in the text; searched in the normalized text
    const AddedToken *passed;    // the first special token that a plain text has spelled
    bool by_stretches;           // a text must be normalized before it is split
    struct Bpe *bpe;             // NULL unless a BPE
    struct WordPiece *wordpiece; // NULL unless a WordPiece
    struct CachedPiece *cache;   // (cache_slots) pieces and their ids; NULL until the first
    int64_t cache_slots, cached; // cached: slots in use
    KeptFile kept[KEPT_FILES];
    int kept_count;
    char *chat_template;  // or NULL
    bool chose_template;  // the template is not from the files that were read
    struct json_t *names; // tokenizer_names
} Tokenizer;

/* A tokenizer without tokens. */
Tokenizer *tokenizer_new(void);
/* Reserves memory for `vocab` tokens of `bytes` bytes in all. */
void tokenizer_reserve(Tokenizer *tokenizer, int64_t vocab, int64_t bytes);
/* Shortens the piece at `from`, at a character boundary, if it is longer than PIECE_LIMIT bytes. */
void piece_cut(const uint8_t *text, int64_t from, int64_t *end);
/* Records a token as a special one if it has such a name. */
void special_take(Tokenizer *tokenizer, const char *name, int32_t id);

/* ---- added tokens ---- */

/* Reads an entry of a tokenizer.json's "added_tokens" or a tokenizer_config.json's "added_tokens_decoder";
 * its text is a copy. `path` is for messages. */
CHECKED Status added_read(const json_t *entry, int32_t id, const char *path, AddedToken *token);

/* ERROR_FORMAT for a longer one: in a text of near matches each byte is compared this many times. */
enum { ADDED_MOST = 256 };
CHECKED Status added_check(int64_t length, const char *path);

/* Hashes everything that affects where the token matches. */
uint64_t added_hash(const AddedToken *token, uint64_t hash);

void added_put(AddedTokens *added, AddedToken token); // takes ownership of the token's text
void added_sort(AddedTokens *added);                  // call after the last added_put
void added_free(AddedTokens *added);

/* The first token in text[from, length); it may absorb spaces from `taken` on, where the previous match
 * ended. Without `special`, special tokens are skipped, and *passed is set to the first of them (unchanged if
 * there is none). */
AddedMatch added_find(const AddedTokens *added, const uint8_t *text, int64_t length, int64_t from,
                      int64_t taken, bool special, const AddedToken **passed);

/* ---- tokenizer_load.c: selects the files that a tokenizer is read from, and fills the result of tokenizer_new ---- */

/* The byte tokenizer, which needs no files. */
void tokenizer_load_bytes(Tokenizer *tokenizer);

/* Whether `folder` has a tokenizer's files. */
CHECKED Status tokenizer_load_present(const char *folder, bool *present);

/* Reads the first kind of files that `folder` has; see tokenizer_open. */
CHECKED Status tokenizer_load_folder(Tokenizer *tokenizer, const char *folder);

/* Reads a tokenizer.json of a BPE or a WordPiece. The unused parameter gives it the signature of the other
 * readers. */
CHECKED Status tokenizer_load_json(Tokenizer *tokenizer, const char *path, const char *unused,
                                   const json_t *unused_config);

/* ---- tokenizer_save.c: writes a tokenizer's files and its tokenizer_config.json into a folder that exists ---- */

CHECKED Status tokenizer_save_bytes(const Tokenizer *tokenizer, const char *folder);
CHECKED Status tokenizer_save_bpe(const Tokenizer *tokenizer, const char *folder);
CHECKED Status tokenizer_save_wordpiece(const Tokenizer *tokenizer, const char *folder);
