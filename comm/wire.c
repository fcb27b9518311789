#define _GNU_SOURCE
#include "comm/wire.h"

#include "kernels/device/device.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

/* Waits until the socket can do what `events` says. False, with errno, when the time is up. */
static bool ready(int socket, short events, double until) {
    for (;;) {
        double left = until - device_clock();
        struct pollfd waits = {.fd = socket, .events = events};
        int found = poll(&waits, 1, left > 0 ? (int)(left * 1e3) + 1 : 0);
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
        if (found == 0 && left <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static void set_option(int socket, int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof value); // each only makes things better
}

/* ---- listening ---- */

static Status listen_at(const struct sockaddr *address, socklen_t length, int port, int *listener) {
    int opened = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (opened < 0) return fail(ERROR_DEVICE, "no socket can be opened: %s", strerror(errno));
    set_option(opened, SOL_SOCKET, SO_REUSEADDR, 1);  // of an earlier run that has ended
    set_option(opened, IPPROTO_IPV6, IPV6_V6ONLY, 0); // on a socket of IPv6: IPv4's connections too
    if (bind(opened, address, length) != 0 || listen(opened, BACKLOG) != 0) {
        Status status = fail(ERROR_DEVICE, "port %d cannot be listened on: %s", port, strerror(errno));
        close(opened);
        return status;
    }
    *listener = opened;
    return OK;
}

Status wire_listen(int port, bool loopback, int *listener) {
    const struct sockaddr_in6 everywhere = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_ANY_INIT};
    const struct sockaddr_in ipv4 = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr = {htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY)}};
    if (!loopback) {
        Status status = listen_at((const struct sockaddr *)&everywhere, sizeof everywhere, port, listener);
        if (!status) return OK;
        status_free(status); // a host without IPv6, or the port is taken
    }
    return listen_at((const struct sockaddr *)&ipv4, sizeof ipv4, port, listener);
}

int wire_port(int listener) {
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &length) != 0) return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static void set_up(int connection) {
    set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
}

int wire_accept(int listener) {
    int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) set_up(connection);
    return connection;
}

/* ---- connecting ---- */

/* One address. -1 with errno. */
static int connect_at(const struct addrinfo *address, double until) {
    int connection = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    socklen_t length = sizeof error;
    if (connection < 0) return -1;
    if (connect(connection, address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS)
        error = errno;
    else if (!ready(connection, POLLOUT, until) ||
             getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    if (error == 0) {
        set_up(connection);
        return connection;
    }
    close(connection);
    errno = error;
    return -1;
}

Status wire_connect(const char *host, int port, double until, int *connection) {
    char service[16];
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error == EAI_NONAME) return fail(ERROR_USAGE, "there is no host %s", host);
    if (error) return fail(ERROR_DEVICE, "%s has no address: %s", host, gai_strerror(error));
    *connection = -1;
    for (struct addrinfo *a = found; a && *connection < 0; a = a->ai_next) *connection = connect_at(a, until);
    error = errno;
    freeaddrinfo(found);
    return *connection >= 0 ? OK : fail(ERROR_DEVICE, "%s", strerror(error));
}

/* ---- bytes ---- */

bool wire_send(int connection, const void *data, size_t bytes, double until) {
    for (size_t sent = 0; sent < bytes;) {
        ssize_t count =
            send(connection, (const char *)data + sent, bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count >= 0) sent += (size_t)count;
        if (count < 0 && errno != EINTR && (errno != EAGAIN || !ready(connection, POLLOUT, until)))
            return false;
    }
    return true;
}

long wire_take(int connection, void *data, size_t bytes) {
    ssize_t count = recv(connection, data, bytes, MSG_DONTWAIT);
    if (count > 0) return count;
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (count == 0) errno = ECONNRESET;
    return -1;
}

bool wire_receive(int connection, void *data, size_t bytes, double until) {
    for (size_t have = 0; have < bytes;) {
        long count = wire_take(connection, (char *)data + have, bytes - have);
        if (count < 0 || (count == 0 && !ready(connection, POLLIN, until))) return false;
        have += (size_t)count;
    }
    return true;
}
