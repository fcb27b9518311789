#define _GNU_SOURCE
#include "comm/wire.h"

#include "kernels/device/device.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

/* From now on, a call that sends or connects (SO_SNDTIMEO), or receives or accepts (SO_RCVTIMEO), fails with
 * EAGAIN at the time `until`. */
static void set_limit(int socket, int option, double until) {
    const double left = isfinite(until) ? fmax(until - device_clock(), 1e-3) : 0; // 0: no limit
    const struct timeval limit = {.tv_sec = (time_t)left, .tv_usec = (suseconds_t)(fmod(left, 1) * 1e6)};
    (void)setsockopt(socket, SOL_SOCKET, option, &limit, sizeof limit);
}

/* Whether the other end may belong to this run. The kernel knows the user of a Unix socket, not of a TCP
 * one. */
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
    set_limit(opened, SO_SNDTIMEO, until);
    const bool connected = connect(opened, address->ai_addr, address->ai_addrlen) == 0;
    if (connected)
        errno = EACCES;
    else if (errno == EINPROGRESS || errno == EAGAIN)
        errno = ETIMEDOUT;
    return connected && same_user(opened);
}

/* A socket that listens at the address if `until` is 0, else one that is connected to it; -1 with errno. */
static int open_at(const struct addrinfo *address, double until) {
    const int on = 1, off = 0, opened = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (opened < 0) return -1;
    /* The socket works without these options too. */
    (void)setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(opened, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); // a run that has ended may still hold
                                                                        // the port
    (void)setsockopt(opened, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (until > 0 ? connect_to(opened, address, until) : listen_at(opened, address)) return opened;
    const int error = errno;
    close(opened);
    errno = error;
    return -1;
}

/* Whether `host` is a name that stands for the loopback interface, not the loopback address itself. */
static bool is_hidden(const char *host, const struct addrinfo *address) {
    char number[64] = "";
    (void)getnameinfo(address->ai_addr, address->ai_addrlen, number, sizeof number, NULL, 0, NI_NUMERICHOST);
    return strcmp(number, host) != 0 && (strncmp(number, "127.", 4) == 0 || strcmp(number, "::1") == 0);
}

/* The first address of `host` where open_at succeeds. *opened is -1, with errno, if there is none. */
static Status open_host(const char *host, int port, double until, int *opened) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct addrinfo *found, own = {.ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&path};
    char service[16];
    if (*host == '@') { // a zero byte begins an abstract name, which is not a file
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
        if (!(until > 0) && is_hidden(host, f)) continue;
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
    return fail(ERROR_DEVICE, "cannot listen on port %d: %s", port, strerror(errno));
}

Status wire_connect(const char *host, int port, double until, int *connection) {
    TRY(open_host(host, port, until, connection));
    return *connection >= 0 ? OK : fail(ERROR_DEVICE, "%s", strerror(errno));
}

int wire_accept(int listener, double until) {
    do {
        set_limit(listener, SO_RCVTIMEO, until);
        const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection >= 0 && same_user(connection)) return connection;
        if (connection >= 0) close(connection);
    } while (device_clock() < until);
    return -1;
}

/* ---- bytes ---- */

bool wire_send(int connection, const void *data, size_t bytes, double until) {
    for (size_t sent = 0; sent < bytes;) {
        set_limit(connection, SO_SNDTIMEO, until);
        const ssize_t count = send(connection, (const char *)data + sent, bytes - sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR) return false;
        sent += count > 0 ? (size_t)count : 0;
        if (sent < bytes && device_clock() > until) return false;
    }
    return true;
}

bool wire_receive(int connection, void *data, size_t bytes, double until) {
    for (size_t had = 0; had < bytes;) {
        set_limit(connection, SO_RCVTIMEO, until);
        const ssize_t count = recv(connection, (char *)data + had, bytes - had, MSG_WAITALL);
        if (count == 0 || (count < 0 && errno != EINTR)) return false;
        had += count > 0 ? (size_t)count : 0;
        if (had < bytes && device_clock() > until) return false;
    }
    return true;
}

bool wire_ready(int connection) {
    struct pollfd waits = {.fd = connection, .events = POLLIN};
    return poll(&waits, 1, 0) > 0;
}
