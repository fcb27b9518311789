/* wire: the few socket calls that ranks need, each with a time limit. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A host is a name, an address, or "@NAME": a Unix socket of that name and port on this host, over which only
 * processes of one user reach each other. `until` is a time of device_clock(). */

/* Listens on the port at the first address of `host` that this host has. Listens on all addresses if there is
 * none: the addresses belong to a router, or the name stands for this host's loopback, which other hosts do
 * not reach. ERROR_USAGE for an unknown host, ERROR_DEVICE with the system's reason. */
CHECKED Status wire_listen(const char *host, int port, int *listener);

/* ERROR_USAGE for an unknown host, ERROR_DEVICE if nothing answers in time. */
CHECKED Status wire_connect(const char *host, int port, double until, int *connection);

/* The next incoming connection, or -1 when the time is up. */
int wire_accept(int listener, double until);

/* Everything or nothing: false if the connection ends, or when the time is up. */
bool wire_send(int connection, const void *data, size_t bytes, double until);
bool wire_receive(int connection, void *data, size_t bytes, double until);

/* Whether something has arrived, or the end. */
bool wire_ready(int connection);
