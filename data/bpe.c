/* Byte-pair encoding of one piece. Both forms do what the original does: take the known pair of lowest rank,
 * merge it wherever it stands, left to right, and look again. */
#include "data/bpe.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "data/hash.h"

#include <string.h>

enum { SHORT_PIECE = 64 }; // bytes; up to here scanning beats a heap

#define NO_RANK INT32_MAX

static uint64_t pair_hash(int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15;
    return key ^ key >> 32;
}

/* The slot of a pair, or the empty one where it belongs. */
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

static Status build_pairs(Bpe *bpe) {
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
    return OK;
}

void bpe_start(Tokenizer *tokenizer) {
    tokenizer->kind = TOKENIZER_BPE;
    tokenizer->bpe = memory_allocate(sizeof *tokenizer->bpe);
}

/* What decides the ids makes the hash. */
Status bpe_finish(Tokenizer *t) {
    Bpe *bpe = t->bpe;
    uint64_t hash = hash_bytes(0, t->pool, (size_t)t->starts[t->vocab]);
    hash = hash_bytes(hash, t->starts, (size_t)t->vocab * sizeof *t->starts);
    hash = hash_bytes(hash, &t->end_of_text, sizeof t->end_of_text);
    t->hash = hash_bytes(hash, bpe->merges, (size_t)bpe->merge_count * sizeof *bpe->merges);
    TRY(build_pairs(bpe));
    return bpe->splitter ? OK : splitter_open(&bpe->splitter);
}

void bpe_free(Bpe *bpe) {
    if (!bpe) return;
    splitter_free(bpe->splitter);
    memory_free(bpe->pairs.slots);
    memory_free(bpe->merges);
    memory_free(bpe->scratch);
    memory_free(bpe);
}

/* ---- short pieces ---- */

/* Merges all pairs of rank `best`; returns the new count. `ranks[i]` is of the pair (ids[i], ids[i + 1]). */
static int merge_once(const Bpe *bpe, int32_t best, int32_t *ids, int32_t *ranks, int count) {
    int32_t product = bpe->merges[best].product;
    int kept = 0;
    for (int i = 0; i < count; kept++) {
        bool merged = i + 1 < count && ranks[i] == best;
        ids[kept] = merged ? product : ids[i];
        ranks[kept] = ranks[i];
        i += merged ? 2 : 1;
    }
    for (int i = 0; i + 1 < kept; i++)
        if (ids[i] == product || ids[i + 1] == product) ranks[i] = pair_rank(&bpe->pairs, ids[i], ids[i + 1]);
    return kept;
}

static int merge_short(const Bpe *bpe, const uint8_t *piece, int length, int32_t *ids) {
    int32_t ranks[SHORT_PIECE];
    for (int i = 0; i < length; i++) ids[i] = bpe->byte_ids[piece[i]];
    for (int i = 0; i + 1 < length; i++) ranks[i] = pair_rank(&bpe->pairs, ids[i], ids[i + 1]);
    int count = length;
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
    int32_t *ids;            // (length) -1 where merged away
    int32_t *before, *after; // (length) a linked list; -1 ends it
    int32_t *fresh;          // (length) the indices where this pass made a product
    uint64_t
        *heap; // (3 * length) rank and index of the left id: at most length - 1 pairs, and two for each merge
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

/* One pass: every pair of the heap's lowest rank. New pairs wait until it ends, as they do in the
 * original. */
static void merge_pass(const Bpe *bpe, LongPiece *p) {
    uint64_t rank = p->heap[0] >> 32;
    const Merge *merge = &bpe->merges[rank];
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
        push_pair(bpe, p, p->before[p->fresh[i]]);
        push_pair(bpe, p, p->fresh[i]);
    }
}

static void merge_long(Bpe *bpe, const uint8_t *piece, int64_t length, TokenList *list) {
    int64_t bytes = length * (int64_t)(4 * sizeof(int32_t) + 3 * sizeof(uint64_t));
    bpe->scratch = memory_grow(bpe->scratch, &bpe->scratch_bytes, bytes, 1);
    LongPiece p = {.heap = bpe->scratch};
    p.ids = (int32_t *)(p.heap + 3 * length);
    p.before = p.ids + length;
    p.after = p.before + length;
    p.fresh = p.after + length;
    for (int64_t i = 0; i < length; i++) {
        p.ids[i] = bpe->byte_ids[piece[i]];
        p.before[i] = (int32_t)i - 1;
        p.after[i] = i + 1 < length ? (int32_t)i + 1 : -1;
    }
    for (int64_t i = 0; i < length; i++) push_pair(bpe, &p, (int32_t)i);
    while (p.heap_count > 0) merge_pass(bpe, &p);
    for (int32_t at = 0; at >= 0; at = p.after[at]) list->ids[list->count++] = p.ids[at];
}

void bpe_encode(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list) {
    token_list_reserve(list, length > SHORT_PIECE ? length : SHORT_PIECE);
    if (length > SHORT_PIECE)
        merge_long(tokenizer->bpe, piece, length, list);
    else
        list->count += merge_short(tokenizer->bpe, piece, (int)length, list->ids + list->count);
}

/* ---- pieces ---- */

/* The end of the run of bytes from `from` on that are not UTF-8. */
static int64_t invalid_end(const uint8_t *text, int64_t from, int64_t length) {
    int64_t end = from + 1;
    while (end < length && end - from < PIECE_LIMIT && !utf8_character(text + end, length - end)) end++;
    return end;
}

Status bpe_piece_end(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *end) {
    const uint8_t *text = cursor->text;
    int64_t from = cursor->offset;
    if (cursor->valid <= from) cursor->valid = utf8_valid_end(text, from, cursor->length);
    if (cursor->valid <= from) {
        *end = invalid_end(text, from, cursor->length);
        return OK;
    }
    TRY(splitter_next(tokenizer->bpe->splitter, text, cursor->valid, from, end));
    piece_cut(text, from, end);
    return OK;
}
