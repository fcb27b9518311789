#include "data/token.h"

#include "base/memory.h"

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
