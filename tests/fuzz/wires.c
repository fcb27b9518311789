#include "tests/fuzz/wires.h"

#include "base/status.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static struct {
    const uint8_t *bytes;
    size_t left;
} shares[WIRES];
static int accepted;
static bool silent;
static double now;

void wires_share(const uint8_t *data, size_t size, int open, bool stays) {
    size_t each = size > 2 ? ((size_t)data[0] << 8 | data[1]) + 1 : 1, at = 2;
    memset(shares, 0, sizeof shares);
    for (int i = 0; i < WIRES && at < size; i++, at += shares[i - 1].left) {
        shares[i].bytes = data + at;
        shares[i].left = size - at < each ? size - at : each;
    }
    accepted = open;
    silent = stays;
}

Status __wrap_wire_listen(const char *host, int port, int *listener);
Status __wrap_wire_connect(const char *host, int port, double until, int *connection);
int __wrap_wire_accept(int listener, double until);
bool __wrap_wire_ready(int connection);
bool __wrap_wire_send(int connection, const void *data, size_t bytes, double until);
bool __wrap_wire_receive(int connection, void *data, size_t bytes, double until);
double __wrap_device_clock(void);

Status __wrap_wire_listen(const char *host, int port, int *listener) {
    (void)host, (void)port;
    *listener = WIRE + WIRES;
    return OK;
}

Status __wrap_wire_connect(const char *host, int port, double until, int *connection) {
    (void)host, (void)port;
    *connection = __wrap_wire_accept(WIRE + WIRES, until);
    return *connection < 0 ? fail(ERROR_DEVICE, "nobody is there") : OK;
}

int __wrap_wire_accept(int listener, double until) {
    (void)listener, (void)until;
    return accepted < WIRES && shares[accepted].left ? WIRE + accepted++ : -1;
}

bool __wrap_wire_ready(int connection) {
    const int i = connection - WIRE;
    must(i >= 0 && i < accepted);
    return shares[i].left || !silent;
}

bool __wrap_wire_receive(int connection, void *data, size_t bytes, double until) {
    const int i = connection - WIRE;
    (void)until;
    if (connection < 0) return false; // a rank that has not connected
    must(i >= 0 && i < accepted);
    const bool all = shares[i].left >= bytes;
    const size_t here = all ? bytes : shares[i].left;
    if (!here) return all;
    memcpy(data, shares[i].bytes, here);
    shares[i].bytes += here;
    shares[i].left -= here;
    return all;
}

bool __wrap_wire_send(int connection, const void *data, size_t bytes, double until) {
    volatile uint8_t last = bytes ? ((const uint8_t *)data)[bytes - 1] : 0;
    (void)connection, (void)until, (void)last;
    return true;
}

/* Time passes quickly if no more connections come. */
double __wrap_device_clock(void) {
    return now += accepted == WIRES || !shares[accepted].left ? 0.25 : 0.01;
}
