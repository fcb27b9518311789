/* Merges the pairs of one piece. */
#include "base/tables.h"
#include "base/utf8.h"
#include "data/bpe.h"
#include "base/hash.h"
#include "base/memory.h"

#include <string.h>
#include <utf8proc.h>

/* Both implementations give the result of Hugging Face's tokenizers: merge the known pair of lowest rank,
 * leftmost among equals, and repeat. If no merge creates a pair of lower rank than its own, all pairs of the
 * same rank can be merged in one pass, as GPT-2's code does. */

enum { SHORT_PIECE = 64 }; // up to this many initial tokens scanning is faster than a heap

#define NO_RANK INT32_MAX

static uint64_t pair_hash(int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15;
    return key ^ key >> 32;
}

/* The slot of a pair, or the empty slot for it. */
static PairSlot *pair_find(const PairTable *pairs, int32_t left, int32_t right) {
    for (uint64_t index = pair_hash(left, right);; index++) {
        PairSlot *slot = &pairs->slots[index & pairs->mask];
        if (slot->rank < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

static int32_t pair_rank(const PairTable *pairs, int32_t left, int32_t right) {
    int32_t rank = pair_find(pairs, left, right)->rank;
    return rank < 0 ? NO_RANK : rank;
}

/* Whether every merge that reads a product has a higher rank than the merges that create it. */
static void find_order(Bpe *bpe, int64_t vocab) {
    /* 1 + the highest rank that creates a token */
    OWNED int32_t *made = memory_array((size_t)vocab, sizeof *made);
    bpe->in_order = true;
    for (int64_t rank = 0; rank < bpe->merge_count; rank++)
        made[bpe->merges[rank].product] = (int32_t)rank + 1;
    for (int64_t rank = 0; rank < bpe->merge_count; rank++) {
        const Merge *merge = &bpe->merges[rank];
        if (made[merge->left] > rank || made[merge->right] > rank) bpe->in_order = false;
    }
}

Status bpe_build_pairs(Bpe *bpe, int64_t vocab) {
    uint64_t slots = 16;
    while (slots < (uint64_t)bpe->merge_count * 2) slots *= 2;
    bpe->pairs = (PairTable){memory_array(slots, sizeof *bpe->pairs.slots), slots - 1};
    for (uint64_t i = 0; i < slots; i++) bpe->pairs.slots[i].rank = -1;
    for (int64_t rank = 0; rank < bpe->merge_count; rank++) {
        const Merge *merge = &bpe->merges[rank];
        PairSlot *slot = pair_find(&bpe->pairs, merge->left, merge->right);
        if (slot->rank >= 0)
            return fail(ERROR_FORMAT, "merge %lld repeats merge %d", (long long)rank, slot->rank);
        *slot = (PairSlot){merge->left, merge->right, (int32_t)rank, merge->product};
    }
    find_order(bpe, vocab);
    return OK;
}

/* ---- the initial tokens of a piece ---- */

/* Appends a character's token, or its bytes' tokens; returns how many. With fuse_unknown, a run of unknown
 * characters becomes one unknown token. */
static int put_character(Bpe *bpe, const uint8_t *at, int bytes, bool *unknown, int32_t *ids) {
    int32_t point = -1, count = 0;
    bool was_unknown = *unknown;
    if (!bpe->byte_level && utf8_character(at, bytes)) utf8proc_iterate(at, bytes, &point);
    ptrdiff_t found = point < 0 ? -1 : hmgeti(bpe->characters, point);
    *unknown = false;
    if (found >= 0) {
        ids[count++] = bpe->characters[found].value;
    } else if ((bpe->byte_level || bpe->byte_fallback) && bpe->byte_ids[at[0]] >= 0) {
        for (int i = 0; i < bytes; i++) ids[count++] = bpe->byte_ids[at[i]];
    } else {
        *unknown = true;
        if (bpe->unknown >= 0 && !(was_unknown && bpe->fuse_unknown)) ids[count++] = bpe->unknown;
    }
    return count;
}

/* Writes the tokens of the piece's bytes or characters; at most as many as it has bytes. */
static int64_t put_symbols(Bpe *bpe, const uint8_t *piece, int64_t length, int32_t *ids) {
    int64_t count = 0;
    bool unknown = false;
    for (int64_t at = 0, bytes; at < length; at += bytes) {
        bytes = bpe->byte_level ? 1 : utf8_character(piece + at, length - at);
        if (bytes == 0) bytes = 1;
        count += put_character(bpe, piece + at, (int)bytes, &unknown, ids + count);
    }
    return count;
}

/* ---- short pieces ---- */

/* Merges all pairs of rank `best`, or only the first; returns the new count. `ranks[i]` is the rank of the
 * pair (ids[i], ids[i + 1]). */
static int merge_once(const Bpe *bpe, int32_t best, int32_t *ids, int32_t *ranks, int count) {
    int32_t product = bpe->merges[best].product;
    int kept = 0;
    bool more = true;
    for (int i = 0; i < count; kept++) {
        bool merged = more && i + 1 < count && ranks[i] == best;
        if (merged) more = bpe->in_order;
        ids[kept] = merged ? product : ids[i];
        ranks[kept] = ranks[i];
        i += merged ? 2 : 1;
    }
    for (int i = 0; i + 1 < kept; i++)
        if (ids[i] == product || ids[i + 1] == product) ranks[i] = pair_rank(&bpe->pairs, ids[i], ids[i + 1]);
    return kept;
}

static int merge_short(const Bpe *bpe, int32_t *ids, int count) {
    int32_t ranks[SHORT_PIECE];
    for (int i = 0; i + 1 < count; i++) ranks[i] = pair_rank(&bpe->pairs, ids[i], ids[i + 1]);
    for (;;) {
        int32_t best = NO_RANK;
        for (int i = 0; i + 1 < count; i++)
            if (ranks[i] < best) best = ranks[i];
        if (best == NO_RANK) return count;
        count = merge_once(bpe, best, ids, ranks, count);
    }
}

/* ---- long pieces: n log n by a heap of (rank, index), so that no text makes encoding crawl ---- */

typedef struct {
    int32_t *ids;            // (length) -1 if merged away
    int32_t *before, *after; // (length) a linked list; -1 ends it
    int32_t *fresh;          // (length) indices where this pass created a product
    uint64_t
        *heap; // (3 * length) rank and index of the left id: at most length - 1 initial pairs, and two per
               // merge
    int64_t heap_count;
} LongPiece;

static void heap_push(LongPiece *p, uint64_t entry) {
    int64_t at = p->heap_count++;
    for (; at > 0 && p->heap[(at - 1) / 2] > entry; at = (at - 1) / 2) p->heap[at] = p->heap[(at - 1) / 2];
    p->heap[at] = entry;
}

static void heap_pop(LongPiece *p) {
    uint64_t last = p->heap[--p->heap_count];
    int64_t at = 0;
    for (int64_t child = 1; child < p->heap_count; child = 2 * at + 1) {
        if (child + 1 < p->heap_count && p->heap[child + 1] < p->heap[child]) child++;
        if (p->heap[child] >= last) break;
        p->heap[at] = p->heap[child];
        at = child;
    }
    p->heap[at] = last;
}

static void push_pair(const Bpe *bpe, LongPiece *p, int32_t left) {
    if (left < 0 || p->ids[left] < 0 || p->after[left] < 0) return;
    int32_t rank = pair_rank(&bpe->pairs, p->ids[left], p->ids[p->after[left]]);
    if (rank != NO_RANK) heap_push(p, (uint64_t)rank << 32 | (uint32_t)left);
}

/* One pass over all pairs of the heap's lowest rank. New pairs wait until the pass ends; if they might have
 * lower rank, the pass ends at once. */
static void merge_pass(const Bpe *bpe, LongPiece *p) {
    uint64_t rank = p->heap[0] >> 32;
    const Merge *merge = &bpe->merges[rank];
    int64_t made = 0;
    while (p->heap_count > 0 && p->heap[0] >> 32 == rank && (made == 0 || bpe->in_order)) {
        int32_t left = (int32_t)(uint32_t)p->heap[0], right = p->after[left];
        heap_pop(p);
        if (p->ids[left] != merge->left || right < 0 || p->ids[right] != merge->right)
            continue; /* outdated */
        p->ids[left] = merge->product;
        p->ids[right] = -1;
        p->after[left] = p->after[right];
        if (p->after[left] >= 0) p->before[p->after[left]] = left;
        p->fresh[made++] = left;
    }
    for (int64_t i = 0; i < made; i++) {
        push_pair(bpe, p, p->before[p->fresh[i]]);
        push_pair(bpe, p, p->fresh[i]);
    }
}

/* Merges ids[0, length) in place; returns the new length. */
static int64_t merge_long(Bpe *bpe, int32_t *ids, int64_t length) {
    int64_t bytes = length * (int64_t)(4 * sizeof(int32_t) + 3 * sizeof(uint64_t));
    bpe->scratch = memory_grow(bpe->scratch, &bpe->scratch_bytes, bytes, 1);
    LongPiece p = {.heap = bpe->scratch};
    p.ids = (int32_t *)(p.heap + 3 * length);
    p.before = p.ids + length;
    p.after = p.before + length;
    p.fresh = p.after + length;
    for (int64_t i = 0; i < length; i++) {
        p.ids[i] = ids[i];
        p.before[i] = (int32_t)i - 1;
        p.after[i] = i + 1 < length ? (int32_t)i + 1 : -1;
    }
    for (int64_t i = 0; i < length; i++) push_pair(bpe, &p, (int32_t)i);
    while (p.heap_count > 0) merge_pass(bpe, &p);
    int64_t count = 0;
    for (int32_t at = 0; at >= 0; at = p.after[at]) ids[count++] = p.ids[at];
    return count;
}

/* ---- pieces that are tokens at once ---- */

static int32_t *whole_find(const Bpe *bpe, const Tokenizer *t, const uint8_t *bytes, int64_t length) {
    for (uint64_t index = hash_bytes(0, bytes, (size_t)length);; index++) {
        int32_t *slot = &bpe->whole[index & bpe->whole_mask];
        int64_t start = *slot < 0 ? 0 : t->starts[*slot];
        if (*slot < 0 ||
            (t->starts[*slot + 1] - start == length && memcmp(t->pool + start, bytes, (size_t)length) == 0))
            return slot;
    }
}

void bpe_take_whole(Tokenizer *t, const json_t *vocab) {
    Bpe *bpe = t->bpe;
    uint64_t slots = 16;
    while (slots < json_object_size(vocab) * 2) slots *= 2;
    bpe->whole = memory_array(slots, sizeof *bpe->whole);
    bpe->whole_mask = slots - 1;
    memset(bpe->whole, -1, slots * sizeof *bpe->whole);
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, value) {
        int32_t id = (int32_t)json_integer_value(value);
        if (t->spelled[id]) continue; /* tokens spelled literally do not come from bytes */
        *whole_find(bpe, t, t->pool + t->starts[id], t->starts[id + 1] - t->starts[id]) = id;
    }
}

void bpe_merge(Tokenizer *t, const uint8_t *piece, int64_t length, TokenList *list) {
    Bpe *bpe = t->bpe;
    token_list_reserve(list, length);
    int32_t *ids = list->ids + list->count;
    int32_t known = bpe->whole ? *whole_find(bpe, t, piece, length) : -1;
    if (known >= 0) {
        ids[0] = known;
        list->count++;
        return;
    }
    int64_t count = put_symbols(bpe, piece, length, ids);
    if (count > SHORT_PIECE)
        list->count += merge_long(bpe, ids, count);
    else
        list->count += merge_short(bpe, ids, (int)count);
}
