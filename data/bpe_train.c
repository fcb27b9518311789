/* Trains a byte-level BPE. */
#include "base/memory.h"
#include "data/bpe.h"
#include "base/tables.h"
#include "data/text_map.h"
#include "base/hash.h"

#include <string.h>

/* Each distinct piece of the texts is a word with a count. Every pair of adjacent tokens has a count and a
 * list of words that may contain it, so that a merge visits only these words. */

/* ---- words ---- */

/* A distinct piece of the texts. */
typedef struct {
    int64_t first; // start of its bytes in Words.bytes
    int32_t length;
    int64_t count; // occurrences
} Word;

/* In the order of first occurrence. */
typedef struct {
    Word *list;
    int64_t count, room;
    uint8_t *bytes; // bytes of all words, concatenated
    int64_t symbols, bytes_room;
    int32_t *slots; // open addressing with a power of two of slots: word + 1, or 0 if empty
    int64_t slot_count;
} Words;

/* The slot of a piece, or the empty slot for it. */
static int32_t *find_slot(const Words *words, const uint8_t *piece, int64_t length) {
    for (uint64_t index = hash_bytes(0, piece, (size_t)length);; index++) {
        int32_t *slot = &words->slots[index & (uint64_t)(words->slot_count - 1)];
        if (!*slot) return slot;
        const Word *word = &words->list[*slot - 1];
        if (word->length == length && memcmp(words->bytes + word->first, piece, (size_t)length) == 0)
            return slot;
    }
}

/* Doubles the slots, to at least twice the number of words. */
static void grow_slots(Words *words) {
    int64_t count = words->slot_count ? 2 * words->slot_count : 1 << 12;
    memory_free(words->slots);
    words->slots = memory_array((size_t)count, sizeof *words->slots);
    words->slot_count = count;
    for (int64_t i = 0; i < words->count; i++)
        *find_slot(words, words->bytes + words->list[i].first, words->list[i].length) = (int32_t)i + 1;
}

static Status count_piece(Words *words, const uint8_t *piece, int64_t length) {
    if (2 * (words->count + 1) > words->slot_count) grow_slots(words);
    int32_t *slot = find_slot(words, piece, length);
    if (*slot) {
        words->list[*slot - 1].count++;
        return OK;
    }
    if (words->count == INT32_MAX - 1)
        return fail(ERROR_FORMAT, "the texts have more than %d distinct words", INT32_MAX - 1);
    words->list = memory_grow(words->list, &words->room, words->count + 1, sizeof *words->list);
    words->bytes = memory_grow(words->bytes, &words->bytes_room, words->symbols + length, 1);
    memcpy(words->bytes + words->symbols, piece, (size_t)length);
    words->list[words->count++] = (Word){words->symbols, (int32_t)length, 1};
    words->symbols += length;
    *slot = (int32_t)words->count;
    return OK;
}

static Status count_text(Tokenizer *tokenizer, const FileMap *map, Words *words) {
    EncodeCursor cursor = {.text = map->data, .length = map->size, .section_end = map->size};
    while (cursor.offset < cursor.length) {
        int64_t begin, end;
        TRY(bpe_piece_next(tokenizer, &cursor, &begin, &end));
        TRY(count_piece(words, map->data + begin, end - begin));
        cursor.offset = end;
    }
    return OK;
}

/* Counts the pieces of the texts, as the tokenizer, a BPE, cuts them. */
static Status words_count(Tokenizer *tokenizer, const PathList *texts, Words *words) {
    for (int64_t i = 0; i < texts->count; i++) {
        FileMap map;
        TRY(text_map(texts->paths[i], &map));
        Status status = count_text(tokenizer, &map, words);
        file_unmap(&map);
        TRY(status);
    }
    return OK;
}

static void words_free(Words *words) {
    memory_free(words->list);
    memory_free(words->bytes);
    memory_free(words->slots);
    *words = (Words){0};
}

/* ---- pairs ---- */

/* Most bytes of a trained token, so that a run of a million spaces becomes no token. */
enum { TOKEN_BYTES = 256 };

typedef struct {
    uint64_t key; // left id, right id
    int32_t value;
} PairIndex; // an entry of an stb_ds table

/* Two neighbouring tokens. */
typedef struct {
    int32_t left, right;
    int64_t count;  // current count in the texts
    int32_t *words; // words that have contained it; an stb_ds array
    int64_t merge;  // the last merge that put it on the heap
} Pair;

/* A pair on the heap, with its count at that time. */
typedef struct {
    int64_t count;
    int32_t left, right, pair;
} Candidate;

typedef struct {
    Tokenizer *tokenizer;
    const Words *words;
    Pair *pairs;        // an stb_ds array
    PairIndex *indices; // indices of pairs, by their ids
    Candidate *heap;    // an stb_ds array, best first
    int32_t *ids;       // (words->symbols) the words' tokens; words shrink in place
    int32_t *lengths;
    struct {
        char *key;
        int32_t value;
    } * names; // tokens by their spelling, an stb_ds table
    int64_t pool_room;
} Training;

/* ---- the heap: the most frequent pair, among equals the one of the lowest ids ---- */

static bool goes_before(const Candidate *a, const Candidate *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void heap_push(Training *t, int32_t pair) {
    const Pair *p = &t->pairs[pair];
    Candidate entry = {p->count, p->left, p->right, pair};
    arrput(t->heap, entry);
    ptrdiff_t at = arrlen(t->heap) - 1;
    for (; at > 0 && goes_before(&entry, &t->heap[(at - 1) / 2]); at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = entry;
}

static Candidate heap_pop(Training *t) {
    Candidate best = t->heap[0], last = arrpop(t->heap);
    ptrdiff_t at = 0, count = arrlen(t->heap);
    if (count == 0) return best;
    for (ptrdiff_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && goes_before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!goes_before(&t->heap[child], &last)) break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    t->heap[at] = last;
    return best;
}

/* ---- counting ---- */

static int32_t pair_of(Training *t, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    ptrdiff_t found = hmgeti(t->indices, key);
    if (found >= 0) return t->indices[found].value;
    int32_t pair = (int32_t)arrlen(t->pairs);
    Pair new = {.left = left, .right = right, .merge = -1};
    arrput(t->pairs, new);
    hmput(t->indices, key, pair);
    return pair;
}

/* Adds the pairs of a word to the counts (sign 1) or subtracts them (-1). Pairs with `product` also record
 * the word, and are put in `fresh`, to go on the heap after the current merge (number `merge`). */
static void count_word(Training *t, int32_t word, int sign, int32_t product, int64_t merge, int32_t **fresh) {
    const int32_t *ids = t->ids + t->words->list[word].first;
    for (int32_t i = 0; i + 1 < t->lengths[word]; i++) {
        int32_t pair = pair_of(t, ids[i], ids[i + 1]);
        Pair *p = &t->pairs[pair];
        p->count += sign * t->words->list[word].count;
        if (sign < 0 || (product >= 0 && ids[i] != product && ids[i + 1] != product)) continue;
        if (arrlen(p->words) == 0 || arrlast(p->words) != word) arrput(p->words, word);
        if (p->merge == merge) continue;
        p->merge = merge;
        arrput(*fresh, pair);
    }
}

static void push_fresh(Training *t, int32_t **fresh) {
    for (ptrdiff_t i = 0; i < arrlen(*fresh); i++) heap_push(t, (*fresh)[i]);
    arrfree(*fresh);
}

static bool holds(const int32_t *ids, int32_t length, int32_t left, int32_t right) {
    for (int32_t i = 0; i + 1 < length; i++)
        if (ids[i] == left && ids[i + 1] == right) return true;
    return false;
}

static void merge_pair(Training *t, int32_t pair, int32_t product, int64_t merge) {
    int32_t left = t->pairs[pair].left, right = t->pairs[pair].right, *fresh = NULL;
    int32_t *words = t->pairs[pair].words;
    t->pairs[pair].words = NULL; /* the pair may gain new ones meanwhile */
    for (ptrdiff_t w = 0; w < arrlen(words); w++) {
        int32_t word = words[w], kept = 0, length = t->lengths[word];
        int32_t *ids = t->ids + t->words->list[word].first;
        if (!holds(ids, length, left, right)) continue;
        count_word(t, word, -1, product, merge, &fresh);
        for (int32_t i = 0; i < length; kept++) {
            bool merged = i + 1 < length && ids[i] == left && ids[i + 1] == right;
            ids[kept] = merged ? product : ids[i];
            i += merged ? 2 : 1;
        }
        t->lengths[word] = kept;
        count_word(t, word, 1, product, merge, &fresh);
    }
    arrfree(words);
    push_fresh(t, &fresh);
}

/* ---- the vocabulary ---- */

static int32_t add_token(Training *t, const uint8_t *bytes, int64_t length, const char *letters) {
    Tokenizer *k = t->tokenizer;
    int64_t used = k->starts[k->vocab];
    k->pool = memory_grow(k->pool, &t->pool_room, used + length, 1);
    memcpy(k->pool + used, bytes, (size_t)length);
    k->starts[k->vocab + 1] = used + length;
    shput(t->names, (char *)(uintptr_t)letters, k->vocab);
    return k->vocab++;
}

static void start_vocabulary(Training *t, int64_t vocab) {
    static const char *const special[] = {"<pad>", "<s>", "</s>", "<mask>"};
    Tokenizer *k = t->tokenizer;
    tokenizer_reserve(k, vocab, 0);
    k->bpe->merges = memory_array((size_t)vocab, sizeof *k->bpe->merges);
    sh_new_strdup(t->names);
    for (int i = 0; i < 4; i++) {
        int32_t id = add_token(t, (const uint8_t *)special[i], (int64_t)strlen(special[i]), special[i]);
        k->spelled[id] = true;
        special_take(k, special[i], id);
        AddedToken token = {memory_text(special[i]), (int64_t)strlen(special[i]), id, .special = true};
        added_put(&k->added[0], token);
    }
    /* In the order of their letters, as in GPT-2's vocabulary. */
    for (int i = 0; i < 512; i++) {
        uint8_t byte = (uint8_t)i;
        char letter[3] = {0};
        if ((alphabet_code_point(byte) >= 256) != (i >= 256)) continue;
        alphabet_write(byte, letter);
        k->bpe->byte_ids[byte] = add_token(t, &byte, 1, letter);
    }
    k->end_of_text = k->special[TOKEN_END];
}

/* The token that a pair creates: a new one, or the one that another pair has created; -1 if it would be too
 * long or is spelled like a special token. */
static int32_t product_of(Training *t, int32_t left, int32_t right) {
    Tokenizer *k = t->tokenizer;
    uint8_t bytes[2 * TOKEN_BYTES];
    char letters[4 * TOKEN_BYTES + 1];
    int64_t length = 0, written = 0;
    for (int side = 0; side < 2; side++) {
        int32_t id = side ? right : left;
        int64_t size = k->starts[id + 1] - k->starts[id];
        memcpy(bytes + length, k->pool + k->starts[id], (size_t)size);
        length += size;
    }
    if (length > TOKEN_BYTES) return -1;
    for (int64_t i = 0; i < length; i++) written += alphabet_write(bytes[i], letters + written);
    letters[written] = 0;
    ptrdiff_t known = shgeti(t->names, letters);
    if (known < 0) return add_token(t, bytes, length, letters);
    return k->spelled[t->names[known].value] ? -1 : t->names[known].value;
}

/* ---- training ---- */

static void start_words(Training *t) {
    const Words *w = t->words;
    int32_t *fresh = NULL;
    t->ids = memory_array((size_t)w->symbols, sizeof *t->ids);
    t->lengths = memory_array((size_t)w->count, sizeof *t->lengths);
    for (int64_t i = 0; i < w->symbols; i++) t->ids[i] = t->tokenizer->bpe->byte_ids[w->bytes[i]];
    for (int64_t word = 0; word < w->count; word++) {
        t->lengths[word] = w->list[word].length;
        count_word(t, (int32_t)word, 1, -1, -2, &fresh);
    }
    push_fresh(t, &fresh);
}

static Status merge_all(Training *t, int64_t vocab) {
    Tokenizer *k = t->tokenizer;
    Bpe *bpe = k->bpe;
    while (k->vocab < vocab && arrlen(t->heap) > 0) {
        Candidate best = heap_pop(t);
        int64_t count = t->pairs[best.pair].count;
        if (count != best.count && count >= 2) heap_push(t, best.pair); /* the count has changed since */
        if (count != best.count || count < 2) continue;
        int32_t product = product_of(t, best.left, best.right);
        if (product < 0) continue;
        if (bpe->merge_count == vocab)
            return fail(ERROR_INTERNAL, "a tokenizer of %lld tokens has come to more merges than tokens",
                        (long long)vocab);
        bpe->merges[bpe->merge_count] = (Merge){best.left, best.right, product};
        merge_pair(t, best.pair, product, bpe->merge_count++);
    }
    return OK;
}

static void training_free(Training *t) {
    for (ptrdiff_t i = 0; i < arrlen(t->pairs); i++) arrfree(t->pairs[i].words);
    arrfree(t->pairs);
    arrfree(t->heap);
    hmfree(t->indices);
    shfree(t->names);
    memory_free(t->ids);
    memory_free(t->lengths);
}

Status bpe_train(Tokenizer *tokenizer, const PathList *texts, int64_t vocab) {
    CLOSED_BY(words_free) Words words = {0};
    CLOSED_BY(training_free) Training t = {.tokenizer = tokenizer, .words = &words};
    bpe_start(tokenizer);
    TRY(splitter_open_gpt2(&tokenizer->bpe->steps[0].splitter));
    tokenizer->bpe->step_count = 1;
    TRY(words_count(tokenizer, texts, &words));
    start_vocabulary(&t, vocab);
    start_words(&t);
    TRY(merge_all(&t, vocab));
    return fail_at(bpe_finish(tokenizer), "the trained tokenizer");
}
