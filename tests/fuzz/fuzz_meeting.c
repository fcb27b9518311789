/* What comes to the port on which rank 0 waits for the others: connections that say these bytes, a piece at a
 * time. The first two bytes, of eight and eight bits, say how long each connection's share is. Sockets and
 * time are the fuzzer's (--wrap). Whoever is welcomed has said what a rank of this run says. */
#include "comm/rendezvous_internal.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

enum { SIZE = 3, CONNECTIONS = 8, FIRST = 1 << 20 /* none that is open */, TOKEN = 0x7A };

static struct {
    const uint8_t *bytes;
    size_t left;
} shares[CONNECTIONS];
static int accepted;
static double now;

int __wrap_wire_accept(int listener, double until);
long __wrap_wire_take(int connection, void *data, size_t bytes);
bool __wrap_wire_send(int connection, const void *data, size_t bytes, double until);
double __wrap_device_clock(void);

int __wrap_wire_accept(int listener, double until) {
    (void)listener, (void)until;
    return accepted < CONNECTIONS && shares[accepted].left ? FIRST + accepted++ : -1;
}

long __wrap_wire_take(int connection, void *data, size_t bytes) {
    int i = connection - FIRST;
    must(i >= 0 && i < accepted);
    size_t here = shares[i].left < bytes ? shares[i].left : bytes;
    if (!here) return -1;
    if (here > 1000) here = 1000;
    memcpy(data, shares[i].bytes, here);
    shares[i].bytes += here;
    shares[i].left -= here;
    return (long)here;
}

bool __wrap_wire_send(int connection, const void *data, size_t bytes, double until) {
    volatile uint8_t last = bytes ? ((const uint8_t *)data)[bytes - 1] : 0;
    (void)connection, (void)until, (void)last;
    return true;
}

/* Fast when nobody will come. */
double __wrap_device_clock(void) {
    return now += accepted == CONNECTIONS || !shares[accepted].left ? 0.25 : 0.01;
}

static void share_out(const uint8_t *data, size_t size) {
    size_t each = size > 2 ? ((size_t)data[0] << 8 | data[1]) + 1 : 1, at = 2;
    memset(shares, 0, sizeof shares);
    for (int i = 0; i < CONNECTIONS && at < size; i++, at += shares[i - 1].left) {
        shares[i].bytes = data + at;
        shares[i].left = size - at < each ? size - at : each;
    }
    accepted = 0;
}

static void read_meeting(const uint8_t *data, size_t size) {
    char hosts[SIZE][RANK_HOST] = {{0}};
    Channel others[] = {{.rank = 1, .connection = -1}, {.rank = 2, .connection = -1}};
    Link l = {.base = {.size = SIZE, .hosts = hosts},
              .count = SIZE - 1,
              .others = others,
              .head = {.magic = MAGIC, .token = TOKEN}};
    const Identity identity = {.size = SIZE, .listener = FIRST + CONNECTIONS, .token = TOKEN};
    const Hello mine = {.size = SIZE, .host = "here", .facts = "a=1\nb=2\n"};
    share_out(data, size);
    Status status = meeting_host(&l, &identity, &mine, 20);
    for (int rank = 1; rank < SIZE; rank++) must(memchr(hosts[rank], 0, RANK_HOST));
    for (int rank = 1; !status && rank < SIZE; rank++) must(others[rank - 1].connection >= FIRST);
    must(!status || status_code(status) == ERROR_USAGE || status_code(status) == ERROR_DEVICE);
    if (status) must(!strpbrk(status_message(status), "\n\r\033"));
    status_free(status);
}

FUZZ(meeting, read_meeting, NULL)
