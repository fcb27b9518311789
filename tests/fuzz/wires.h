/* wires: connections that say what an input says, a piece at a time. Sockets and time are the fuzzer's (--wrap). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRES = 8, WIRE = 1 << 20 /* the first connection: no descriptor that is open */ };

/* The first two bytes, of eight and eight bits, say how long each connection's share of the rest is. Of these
 * connections `open` are there at once, and the others come in one after another. One that has said its share is
 * closed; where `stays`, it is silent. */
void wires_share(const uint8_t *data, size_t size, int open, bool stays);
