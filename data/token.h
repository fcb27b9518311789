/* token: lists of token ids, texts being encoded, and special tokens. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A growing list of ids. Starts all-zero; the caller frees it. */
typedef struct {
    int32_t *ids;
    int64_t count, room;
} TokenList;
void token_list_add(TokenList *list, int32_t id);
void token_list_reserve(TokenList *list, int64_t more); // reserves memory for `more` ids after the last
void token_list_free(TokenList *list);

/* A growing array of bytes. Starts all-zero; memory_free(bytes) ends it. */
typedef struct {
    uint8_t *bytes;
    int64_t count, room;
} Bytes;
void bytes_put(Bytes *to, const void *bytes, int64_t count);
void bytes_reserve(Bytes *to, int64_t more); // reserves memory for `more` after the last

/* A text that is encoded in steps: start with {text, length, special}. It is finished when offset ==
 * length. */
typedef struct {
    const void *text;
    int64_t length; // bytes
    bool special;   // special tokens spelled in the text are recognized
    int64_t offset; // offset of the first byte not encoded yet
    int64_t valid;  // the end of the valid UTF-8 around the offset
    /* The section around the offset: the text between two added tokens. */
    int64_t section_begin, section_end;
    int32_t added;     // 1 + the id of the token after it; 0: none
    int64_t added_end; // where that token ends
    int64_t searched;  // where the search for the next one starts
} EncodeCursor;

/* Special tokens, known by their names; a BPE's file must also mark them as special. */
typedef enum {
    TOKEN_PAD,     // "[PAD]" or "<pad>"
    TOKEN_BEGIN,   // "[CLS]" or "<s>"
    TOKEN_END,     // "[SEP]" or "</s>"
    TOKEN_UNKNOWN, // "[UNK]" or "<unk>"
    TOKEN_MASK,    // "[MASK]" or "<mask>"
    SPECIAL_COUNT
} SpecialToken;
