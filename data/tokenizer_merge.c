/* Byte-pair encoding of one piece. Both forms do what the original does: take the known pair of lowest rank,
 * merge it wherever it stands, left to right, and look again. */
#include "base/memory.h"
#include "data/tokenizer_internal.h"

#include <string.h>

enum { SHORT_PIECE = 64 }; // bytes; up to here scanning beats a heap

#define NO_RANK INT32_MAX

static Status fail_memory(void) {
    return fail(ERROR_MEMORY, "no memory left for the tokenizer's tables");
}

static uint64_t pair_place(int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15;
    return key ^ key >> 32;
}

/* The slot of a pair, or the empty one where it belongs. */
static PairSlot *pair_find(const PairTable *pairs, int32_t left, int32_t right) {
    for (uint64_t place = pair_place(left, right);; place++) {
        PairSlot *slot = &pairs->slots[place & pairs->mask];
        if (slot->rank < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

static int32_t pair_rank(const PairTable *pairs, int32_t left, int32_t right) {
    int32_t rank = pair_find(pairs, left, right)->rank;
    return rank < 0 ? NO_RANK : rank;
}

Status pair_table_build(Tokenizer *tokenizer) {
    uint64_t slots = 16;
    while (slots < (uint64_t)tokenizer->merge_count * 2) slots *= 2;
    tokenizer->pairs.slots = memory_array(slots, sizeof *tokenizer->pairs.slots);
    if (!tokenizer->pairs.slots) return fail_memory();
    tokenizer->pairs.mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++) tokenizer->pairs.slots[i].rank = -1;
    for (int64_t rank = 0; rank < tokenizer->merge_count; rank++) {
        const Merge *merge = &tokenizer->merges[rank];
        PairSlot *slot = pair_find(&tokenizer->pairs, merge->left, merge->right);
        if (slot->rank >= 0)
            return fail(ERROR_FORMAT, "merge %lld repeats merge %d", (long long)rank, slot->rank);
        *slot = (PairSlot){merge->left, merge->right, (int32_t)rank, merge->product};
    }
    return OK;
}

/* ---- short pieces ---- */

/* Merges all pairs of rank `best`; returns the new count. `ranks[i]` is of the pair (ids[i], ids[i + 1]). */
static int merge_once(const Tokenizer *tokenizer, int32_t best, int32_t *ids, int32_t *ranks, int count) {
    int32_t product = tokenizer->merges[best].product;
    int kept = 0;
    for (int i = 0; i < count; kept++) {
        bool merged = i + 1 < count && ranks[i] == best;
        ids[kept] = merged ? product : ids[i];
        ranks[kept] = ranks[i];
        i += merged ? 2 : 1;
    }
    for (int i = 0; i + 1 < kept; i++)
        if (ids[i] == product || ids[i + 1] == product)
            ranks[i] = pair_rank(&tokenizer->pairs, ids[i], ids[i + 1]);
    return kept;
}

static int merge_short(const Tokenizer *tokenizer, const uint8_t *piece, int length, int32_t *ids) {
    int32_t ranks[SHORT_PIECE];
    for (int i = 0; i < length; i++) ids[i] = tokenizer->byte_ids[piece[i]];
    for (int i = 0; i + 1 < length; i++) ranks[i] = pair_rank(&tokenizer->pairs, ids[i], ids[i + 1]);
    int count = length;
    for (;;) {
        int32_t best = NO_RANK;
        for (int i = 0; i + 1 < count; i++)
            if (ranks[i] < best) best = ranks[i];
        if (best == NO_RANK) return count;
        count = merge_once(tokenizer, best, ids, ranks, count);
    }
}

/* ---- long pieces: n log n by a heap of (rank, place), so that no text makes encoding crawl ---- */

typedef struct {
    int32_t *ids, *before,
        *after;     // (length) a linked list; -1 ends it, and marks the ids of places merged away
    int32_t *fresh; // (length) places where this pass made a product
    uint64_t *heap; // (3 * length) rank and place: at most length - 1 pairs and two for each merge
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

static void push_pair(const Tokenizer *tokenizer, LongPiece *p, int32_t left) {
    if (left < 0 || p->ids[left] < 0 || p->after[left] < 0) return;
    int32_t rank = pair_rank(&tokenizer->pairs, p->ids[left], p->ids[p->after[left]]);
    if (rank != NO_RANK) heap_push(p, (uint64_t)rank << 32 | (uint32_t)left);
}

/* One pass: every pair of the heap's lowest rank. New pairs wait until it ends, as they do in the
 * original. */
static void merge_pass(const Tokenizer *tokenizer, LongPiece *p) {
    uint64_t rank = p->heap[0] >> 32;
    const Merge *merge = &tokenizer->merges[rank];
    int64_t made = 0;
    while (p->heap_count > 0 && p->heap[0] >> 32 == rank) {
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
        push_pair(tokenizer, p, p->before[p->fresh[i]]);
        push_pair(tokenizer, p, p->fresh[i]);
    }
}

static Status merge_long(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list) {
    int64_t bytes = length * (int64_t)(4 * sizeof(int32_t) + 3 * sizeof(uint64_t));
    if (tokenizer->scratch_bytes < bytes) {
        void *larger = memory_resize(tokenizer->scratch, (size_t)bytes);
        if (!larger) return fail_memory();
        tokenizer->scratch = larger;
        tokenizer->scratch_bytes = bytes;
    }
    LongPiece p = {.heap = tokenizer->scratch};
    p.ids = (int32_t *)(p.heap + 3 * length);
    p.before = p.ids + length;
    p.after = p.before + length;
    p.fresh = p.after + length;
    for (int64_t i = 0; i < length; i++) {
        p.ids[i] = tokenizer->byte_ids[piece[i]];
        p.before[i] = (int32_t)i - 1;
        p.after[i] = i + 1 < length ? (int32_t)i + 1 : -1;
    }
    for (int64_t i = 0; i < length; i++) push_pair(tokenizer, &p, (int32_t)i);
    while (p.heap_count > 0) merge_pass(tokenizer, &p);
    for (int32_t at = 0; at >= 0; at = p.after[at]) list->ids[list->count++] = p.ids[at];
    return OK;
}

Status token_list_reserve(TokenList *list, int64_t more) {
    if (list->room - list->count >= more) return OK;
    int64_t room = list->room ? list->room : 1024;
    while (room - list->count < more) room *= 2;
    int32_t *larger = memory_resize(list->ids, (size_t)room * sizeof *larger);
    if (!larger) return fail(ERROR_MEMORY, "no memory left for %lld tokens", (long long)room);
    list->ids = larger;
    list->room = room;
    return OK;
}

Status merge_piece(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list) {
    TRY(token_list_reserve(list, length > SHORT_PIECE ? length : SHORT_PIECE));
    if (length > SHORT_PIECE) return merge_long(tokenizer, piece, length, list);
    list->count += merge_short(tokenizer, piece, (int)length, list->ids + list->count);
    return OK;
}
