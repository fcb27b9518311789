/* board: what each rank on this host does just now, for those who must say what a rank did last: its
 * launcher, after it has died, and its own watching thread. One page shared by processes, with no name, so
 * that nothing stays behind. A rank writes its own entry; anybody reads any. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Board Board;

enum { BOARD_PHASE = 48, BOARD_ACTION = 96, BOARD_TEXT = 192 };

typedef struct {
    int64_t calls;             // collectives asked for so far
    double since;              // device_clock() of the last note; 0: none yet
    char phase[BOARD_PHASE];   // "step 12"
    char action[BOARD_ACTION]; // "reduce-scatter of 3145728 fp32"; "" while there is none in this phase
} BoardEntry;

/* Entries for `count` ranks. Processes that are forked later share it. */
CHECKED Status board_open(int count, Board **board);
void board_close(Board *board);

/* From now on board_note writes this entry: each process sets its own. 0 at first. */
void board_take(Board *board, int entry);

/* Write this process's entry: what part of the run begins; what is done in it, where `collective` says
 * that it is one more collective. Cheap, and fine with NULL. printf-style. One thread writes. */
void board_phase(Board *board, const char *format, ...) __attribute__((format(printf, 2, 3)));
void board_note(Board *board, bool collective, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A copy of an entry. What a dead rank was writing when it died may be half of it. */
BoardEntry board_read(const Board *board, int entry);

/* This process's own. */
BoardEntry board_mine(const Board *board);

/* "step 12: reduce-scatter of 3145728 fp32 (collective 49), 3.2 s ago", `idle` being the seconds. */
void board_text(const BoardEntry *entry, double idle, char text[BOARD_TEXT]);
