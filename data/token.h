/* token: lists of token ids, texts on their way to ids, and the tokens that stand for no text. */
#pragma once

#include <stdint.h>

/* A growing list of ids. Starts all-zero; the caller frees it. */
typedef struct {
    int32_t *ids;
    int64_t count, room;
} TokenList;
void token_list_add(TokenList *list, int32_t id);
void token_list_reserve(TokenList *list, int64_t more); // makes room for `more` ids behind the last
void token_list_free(TokenList *list);

/* A text that is encoded in steps: start with {text, length}. It is finished when offset == length. */
typedef struct {
    const void *text;
    int64_t length; // bytes
    int64_t offset; // of the first byte not encoded yet
    int64_t valid;  // where the stretch of valid UTF-8 around the offset ends
} EncodeCursor;

/* Tokens that stand for no text, known by their names; a BPE's file must also mark them as special. */
typedef enum {
    TOKEN_PAD,     // "[PAD]" or "<pad>"
    TOKEN_BEGIN,   // "[CLS]" or "<s>"
    TOKEN_END,     // "[SEP]" or "</s>"
    TOKEN_UNKNOWN, // "[UNK]" or "<unk>"
    TOKEN_MASK,    // "[MASK]" or "<mask>"
    SPECIAL_COUNT
} SpecialToken;
