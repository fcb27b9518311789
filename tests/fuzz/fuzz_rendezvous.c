/* Fuzzes the rendezvous: connections to the port on which rank 0 listens or, if the first byte is odd, the
 * answers to a rank that connects to rank 0. The other bytes are sent over connections (wires.h). A
 * connection that is accepted must have sent this run's greeting. */
#include "comm/rendezvous_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wires.h"

#include <string.h>

enum { SIZE = 3, TOKEN = 0x7A };

static void read_rendezvous(const uint8_t *data, size_t size) {
    char hosts[SIZE][RANK_HOST] = {{0}};
    Other others[] = {{.rank = 1, .connections = {-1, -1}}, {.rank = 2, .connections = {-1, -1}}};
    if (!size) return;
    const int rank = data[0] & 1;
    Link l = {.base = {.rank = rank, .size = SIZE, .hosts = hosts},
              .count = rank ? 1 : SIZE - 1,
              .others = others,
              .lock = PTHREAD_MUTEX_INITIALIZER};
    const Identity identity = {.rank = rank, .size = SIZE, .host = "there"};
    const Hello mine = {.magic = MAGIC, .token = TOKEN, .rank = rank, .size = SIZE, .host = "here"};
    wires_share(data + 1, size - 1, 0, false);
    Status status =
        rank ? rendezvous_join(&l, &identity, &mine, 1) : rendezvous_host(&l, &identity, &mine, 20);
    for (int i = 0; i < SIZE; i++) must(memchr(hosts[i], 0, RANK_HOST));
    for (int i = 0; !status && i < l.count * CONNECTIONS; i++)
        must(others[i / CONNECTIONS].connections[i % CONNECTIONS] >= WIRE);
    must(status_code(status) <= ERROR_NONFINITE);
    must(rank || !status || status_code(status) == ERROR_USAGE || status_code(status) == ERROR_DEVICE);
    if (status) must(!strpbrk(status_message(status), "\n\r\033"));
    status_free(status);
}

FUZZ(rendezvous, read_rendezvous, NULL)
