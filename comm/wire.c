#define _GNU_SOURCE
#include "comm/wire.h"

#include "kernels/device/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

/* Waits until the socket can do what `events` says. False, with errno, when the time is up. */
static bool ready(int socket, short events, double until) {
    for (;;) {
        const double left = until - device_clock();
        struct pollfd waits = {.fd = socket, .events = events};
        const int found = poll(&waits, 1, left > 1 ? 1000 : left > 0 ? (int)(left * 1e3) + 1 : 0);
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
        if (found == 0 && left <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

/* Whether the other end may belong to this run. The kernel knows the user of a Unix socket, not of a TCP one. */
static bool same_user(int connection) {
    struct ucred other = {.uid = (uid_t)-1};
    socklen_t length = sizeof other;
    (void)getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &length);
    return other.uid == (uid_t)-1 || other.uid == geteuid();
}

/* ---- opening ---- */

/* Binds a new socket to an address, or connects it. False with errno. */
static bool listen_at(int opened, const struct addrinfo *address) {
    return bind(opened, address->ai_addr, address->ai_addrlen) == 0 && listen(opened, BACKLOG) == 0;
}

static bool connect_to(int opened, const struct addrinfo *address, double until) {
    int error = 0;
    socklen_t length = sizeof error;
    if (connect(opened, address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) return false;
    if (!ready(opened, POLLOUT, until)) return false;
    if (getsockopt(opened, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && !error && !same_user(opened))
        error = EACCES;
    errno = error;
    return !error;
}

/* A socket that listens at the address, or if `until` is not 0 one that is connected to it; -1 with errno. */
static int open_at(const struct addrinfo *address, double until) {
    const int on = 1, off = 0,
              opened = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (opened < 0) return -1;
    /* A socket works without these too. */
    (void)setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(opened, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); // the port of a run that has ended
    (void)setsockopt(opened, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (until > 0 ? connect_to(opened, address, until) : listen_at(opened, address)) return opened;
    const int error = errno;
    close(opened);
    errno = error;
    return -1;
}

static bool is_loopback(const struct addrinfo *address) {
    if (address->ai_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address->ai_addr)->sin6_addr);
    const struct sockaddr_in *four = (const struct sockaddr_in *)address->ai_addr;
    return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static bool is_name(const char *host) {
    struct in6_addr number;
    return inet_pton(AF_INET, host, &number) != 1 && inet_pton(AF_INET6, host, &number) != 1;
}

/* The first address of `host` where open_at succeeds. *opened is -1, with errno, if there is none. */
static Status open_host(const char *host, int port, double until, int *opened) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct addrinfo *found, own = {.ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&path};
    char service[16];
    if (*host == '@') { // the path begins with a zero byte, which says that it names no file
        const int length = snprintf(path.sun_path + 1, sizeof path.sun_path - 1, "%s:%d", host, port);
        own.ai_addrlen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
        *opened = open_at(&own, until);
        return OK;
    }
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error == EAI_NONAME) return fail(ERROR_USAGE, "there is no host %s", host);
    if (error) return fail(ERROR_DEVICE, "%s has no address: %s", host, gai_strerror(error));
    *opened = -1;
    error = EADDRNOTAVAIL;
    for (const struct addrinfo *f = found; f && *opened < 0; f = f->ai_next) {
        if (!(until > 0) && is_name(host) && is_loopback(f)) continue;
        *opened = open_at(f, until);
        error = errno;
    }
    freeaddrinfo(found);
    errno = error;
    return OK;
}

Status wire_listen(const char *host, int port, int *listener) {
    const char *const hosts[] = {host, "::", "0.0.0.0"};
    for (int i = 0; i < 3; i++) {
        TRY(open_host(hosts[i], port, 0, listener));
        if (*listener >= 0) return OK;
        if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) break;
    }
    return fail(ERROR_DEVICE, "port %d cannot be listened on: %s", port, strerror(errno));
}

Status wire_connect(const char *host, int port, double until, int *connection) {
    TRY(open_host(host, port, until, connection));
    return *connection >= 0 ? OK : fail(ERROR_DEVICE, "%s", strerror(errno));
}

int wire_accept(int listener, double until) {
    while (ready(listener, POLLIN, until)) {
        const int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (connection >= 0 && same_user(connection)) return connection;
        if (connection >= 0) close(connection);
    }
    return -1;
}

/* ---- bytes ---- */

bool wire_send(int connection, const void *data, size_t bytes, double until) {
    for (size_t sent = 0; sent < bytes;) {
        const ssize_t count = send(connection, (const char *)data + sent, bytes - sent, MSG_NOSIGNAL);
        if (count >= 0) sent += (size_t)count;
        if (count < 0 && errno != EINTR && (errno != EAGAIN || !ready(connection, POLLOUT, until)))
            return false;
    }
    return true;
}

long wire_take(int connection, void *data, size_t bytes) {
    const ssize_t count = recv(connection, data, bytes, 0);
    if (count > 0) return count;
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (count == 0) errno = ECONNRESET;
    return -1;
}

bool wire_receive(int connection, void *data, size_t bytes, double until) {
    for (size_t had = 0; had < bytes;) {
        const long count = wire_take(connection, (char *)data + had, bytes - had);
        if (count < 0 || (count == 0 && !ready(connection, POLLIN, until))) return false;
        had += (size_t)count;
    }
    return true;
}
