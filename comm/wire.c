#define _GNU_SOURCE
#include "comm/wire.h"

#include "kernels/device/device.h"

#include <arpa/inet.h>
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

static int new_socket(const struct addrinfo *address) {
    return socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* The addresses of a host; NULL: all of this one's, as one of IPv6, which takes IPv4's connections too. */
static Status find_host(const char *host, int port, struct addrinfo **found) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_family = host ? AF_UNSPEC : AF_INET6,
                                   .ai_flags = host ? 0 : AI_PASSIVE};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, found);
    if (error == EAI_NONAME) return fail(ERROR_USAGE, "there is no host %s", host);
    return error ? fail(ERROR_DEVICE, "%s has no address: %s", host, gai_strerror(error)) : OK;
}

static void close_keeping_errno(int socket) {
    int error = errno;
    close(socket);
    errno = error;
}

/* ---- listening ---- */

/* -1 with errno. */
static int listen_at(const struct addrinfo *address) {
    int opened = new_socket(address);
    if (opened < 0) return -1;
    set_option(opened, SOL_SOCKET, SO_REUSEADDR, 1); // of an earlier run that has ended
    set_option(opened, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(opened, address->ai_addr, address->ai_addrlen) == 0 && listen(opened, BACKLOG) == 0)
        return opened;
    close_keeping_errno(opened);
    return -1;
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

Status wire_listen(const char *host, int port, int *listener) {
    struct in6_addr number;
    const bool name =
        host && inet_pton(AF_INET, host, &number) != 1 && inet_pton(AF_INET6, host, &number) != 1;
    struct addrinfo *found;
    TRY(find_host(host, port, &found));
    *listener = -1;
    errno = EADDRNOTAVAIL;
    for (const struct addrinfo *a = found; a && *listener < 0; a = a->ai_next)
        if (!name || !is_loopback(a->ai_addr)) *listener = listen_at(a);
    freeaddrinfo(found);
    if (*listener >= 0) return OK;
    if (host && errno == EADDRNOTAVAIL) return wire_listen(NULL, port, listener);
    if (!host) return wire_listen("0.0.0.0", port, listener); // a host without IPv6
    return fail(ERROR_DEVICE, "port %d cannot be listened on: %s", port, strerror(errno));
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

int wire_accept(int listener, double until) {
    if (!ready(listener, POLLIN, until)) return -1;
    int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) set_up(connection);
    return connection;
}

/* ---- connecting ---- */

/* One address. -1 with errno. */
static int connect_at(const struct addrinfo *address, double until) {
    int connection = new_socket(address), error = 0;
    socklen_t length = sizeof error;
    if (connection < 0) return -1;
    if (connect(connection, address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS)
        error = errno;
    else if (!ready(connection, POLLOUT, until) ||
             getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    set_up(connection);
    if (error == 0) return connection;
    errno = error;
    close_keeping_errno(connection);
    return -1;
}

Status wire_connect(const char *host, int port, double until, int *connection) {
    struct addrinfo *found;
    TRY(find_host(host, port, &found));
    *connection = -1;
    for (const struct addrinfo *a = found; a && *connection < 0; a = a->ai_next)
        *connection = connect_at(a, until);
    freeaddrinfo(found);
    return *connection >= 0 ? OK : fail(ERROR_DEVICE, "%s", strerror(errno));
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
