/* wires: simulated connections that deliver an input piece by piece. The fuzzer replaces sockets and time
 * (--wrap). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRES = 8, WIRE = 1 << 20 /* the first connection's number, which is not an open descriptor */ };

/* The first two bytes determine the length of each connection's share of the remaining bytes. `open` of the
 * connections exist from the start; the others connect one after another. A connection is closed after its
 * share or, with `stays`, remains open and silent. */
void wires_share(const uint8_t *data, size_t size, int open, bool stays);
