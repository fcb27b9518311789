/* What comes to the port on which rank 0 waits for the others: connections that say these bytes (wires.h). Whoever
 * is welcomed has said what a rank of this run says. */
#include "comm/rendezvous_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wires.h"

#include <stdio.h>
#include <string.h>

enum { SIZE = 3, TOKEN = 0x7A };

static void read_meeting(const uint8_t *data, size_t size) {
    char hosts[SIZE][RANK_HOST] = {{0}};
    Channel others[] = {{.rank = 1, .connection = -1}, {.rank = 2, .connection = -1}};
    Link l = {.base = {.size = SIZE, .hosts = hosts},
              .count = SIZE - 1,
              .others = others,
              .head = {.magic = MAGIC, .token = TOKEN}};
    const Identity identity = {.size = SIZE, .listener = WIRE + WIRES, .token = TOKEN};
    const Hello mine = {.size = SIZE, .host = "here", .facts = "a=1\nb=2\n"};
    wires_share(data, size, 0, false);
    Status status = meeting_host(&l, &identity, &mine, 20);
    for (int rank = 1; rank < SIZE; rank++) must(memchr(hosts[rank], 0, RANK_HOST));
    for (int rank = 1; !status && rank < SIZE; rank++) must(others[rank - 1].connection >= WIRE);
    must(!status || status_code(status) == ERROR_USAGE || status_code(status) == ERROR_DEVICE);
    if (status) must(!strpbrk(status_message(status), "\n\r\033"));
    status_free(status);
}

FUZZ(meeting, read_meeting, NULL)
