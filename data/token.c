#include "data/token.h"

#include "base/memory.h"

#include <string.h>

void token_list_reserve(TokenList *list, int64_t more) {
    list->ids = memory_grow(list->ids, &list->room, list->count + more, sizeof *list->ids);
}

void token_list_add(TokenList *list, int32_t id) {
    token_list_reserve(list, 1);
    list->ids[list->count++] = id;
}

void token_list_free(TokenList *list) {
    memory_free(list->ids);
    *list = (TokenList){0};
}

void bytes_reserve(Bytes *to, int64_t more) {
    to->bytes = memory_grow(to->bytes, &to->room, to->count + more, 1);
}

void bytes_put(Bytes *to, const void *bytes, int64_t count) {
    bytes_reserve(to, count + 1); /* so that memory exists even for an empty text */
    if (count) memcpy(to->bytes + to->count, bytes, (size_t)count);
    to->count += count;
}
