/* wire: the few TCP calls that ranks need to find each other, each with a time limit. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* `until` is a time of device_clock(). Sockets are closed when a program is executed. */

/* `host` is a host's name or address; or "@NAME", a name of this host's, which together with the port leads
 * only from processes of a user to processes of the same user: others seem not to be there. */

/* A socket that listens on the port (0: any that is free) of `host`: at the first of its addresses that can
 * be had here. Where that is none (they are a router's, or a name that leads to this host's loopback, which
 * other hosts do not see), or with NULL, at all of this host's addresses. ERROR_DEVICE with the system's
 * reason. */
CHECKED Status wire_listen(const char *host, int port, int *listener);
int wire_port(int listener); // where it listens, or 0

/* ERROR_USAGE for a host that has no address, ERROR_DEVICE where nothing answers in time. */
CHECKED Status wire_connect(const char *host, int port, double until, int *connection);

/* The next connection that comes in, or -1 when the time is up. */
int wire_accept(int listener, double until);

/* Everything or nothing: false with errno, which is ETIMEDOUT when the time is up. */
bool wire_send(int connection, const void *data, size_t bytes, double until);

/* What has come in, up to `bytes`: how many, 0 for nothing yet, -1 with errno when there will be no more. */
long wire_take(int connection, void *data, size_t bytes);
