/* wire: the few TCP calls that ranks need to find each other, each with a time limit. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* `until` is a time of device_clock(). Sockets are closed when a program is executed. */

/* A socket that listens on the port (0: any that is free), on this host's every address or on the loopback
 * only. ERROR_DEVICE with the system's reason. */
CHECKED Status wire_listen(int port, bool loopback, int *listener);
int wire_port(int listener); // where it listens, or 0

/* ERROR_USAGE for a host that has no address, ERROR_DEVICE where nothing answers in time. */
CHECKED Status wire_connect(const char *host, int port, double until, int *connection);

/* The next connection that has come in, or -1. Does not wait. */
int wire_accept(int listener);

/* Everything or nothing: false with errno, which is ECONNRESET where the other end has closed and ETIMEDOUT
 * when the time is up. */
bool wire_send(int connection, const void *data, size_t bytes, double until);
bool wire_receive(int connection, void *data, size_t bytes, double until);

/* What has come in, up to `bytes`: how many, 0 for nothing yet, -1 when there will be no more. */
long wire_take(int connection, void *data, size_t bytes);
