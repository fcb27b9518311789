#define _GNU_SOURCE
#include "comm/board.h"

#include "base/memory.h"
#include "kernels/device/device.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

enum { TRIES = 1000 };

/* A sequence lock (Boehm 2012, "Can seqlocks get along with programming language memory models?"): `lock` is
 * odd while the entry is being written. */
typedef struct {
    _Alignas(64) _Atomic uint32_t lock;
    BoardEntry entry;
} Slot;

struct Board {
    int count, mine;
    Slot *slots; // (count) shared
};

Status board_open(int count, Board **board) {
    Board *b = memory_allocate(sizeof *b);
    b->count = count;
    b->slots =
        mmap(NULL, (size_t)count * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b->slots == MAP_FAILED) {
        memory_free(b);
        return fail(ERROR_MEMORY, "no shared memory for the ranks' board");
    }
    *board = b;
    return OK;
}

void board_close(Board *board) {
    if (!board) return;
    (void)munmap(board->slots, (size_t)board->count * sizeof(Slot));
    memory_free(board);
}

void board_take(Board *board, int entry) {
    board->mine = entry;
}

/* Between the two an entry may be written. */
static BoardEntry *begin_writing(Slot *slot) {
    atomic_store_explicit(&slot->lock, slot->lock + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    return &slot->entry;
}

static void end_writing(Slot *slot) {
    slot->entry.since = device_clock();
    atomic_store_explicit(&slot->lock, slot->lock + 1, memory_order_release);
}

void board_phase(Board *board, const char *format, ...) {
    if (!board) return;
    Slot *slot = &board->slots[board->mine];
    BoardEntry *entry = begin_writing(slot);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(entry->phase, sizeof entry->phase, format, arguments);
    va_end(arguments);
    entry->action[0] = 0;
    end_writing(slot);
}

void board_note(Board *board, bool collective, const char *format, ...) {
    if (!board) return;
    Slot *slot = &board->slots[board->mine];
    BoardEntry *entry = begin_writing(slot);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(entry->action, sizeof entry->action, format, arguments);
    va_end(arguments);
    entry->calls += collective;
    end_writing(slot);
}

BoardEntry board_read(const Board *board, int entry) {
    Slot *slot = &board->slots[entry];
    BoardEntry copy;
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load_explicit(&slot->lock, memory_order_acquire);
        copy = slot->entry;
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && before == atomic_load_explicit(&slot->lock, memory_order_relaxed)) break;
    }
    copy.phase[sizeof copy.phase - 1] = copy.action[sizeof copy.action - 1] = 0;
    return copy;
}

BoardEntry board_mine(const Board *board) {
    return board_read(board, board->mine);
}

void board_text(const BoardEntry *entry, double idle, char text[BOARD_TEXT]) {
    char collective[40] = "";
    if (!*entry->phase && !*entry->action) {
        snprintf(text, BOARD_TEXT, "none yet");
        return;
    }
    if (entry->calls) snprintf(collective, sizeof collective, " (collective %lld)", (long long)entry->calls);
    snprintf(text, BOARD_TEXT, "%s%s%s%s, %.1f s ago", entry->phase,
             *entry->phase && *entry->action ? ": " : "", entry->action, collective, idle);
}
