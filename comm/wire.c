#define _GNU_SOURCE
#include "comm/wire.h"

#include "kernels/device/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096, ADDRESSES = 8 };

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

/* ---- addresses ---- */

typedef struct {
    int count;
    struct sockaddr_storage at[ADDRESSES];
    socklen_t bytes[ADDRESSES];
} Addresses;

static void add_address(Addresses *a, const void *address, size_t bytes) {
    if (a->count == ADDRESSES) return;
    memcpy(&a->at[a->count], address, bytes);
    a->bytes[a->count++] = (socklen_t)bytes;
}

/* Those of a host; NULL: all of this one's, as one of IPv6, which takes IPv4's connections too. */
static Status find_host(const char *host, int port, Addresses *a) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_family = host ? AF_UNSPEC : AF_INET6,
                                   .ai_flags = host ? 0 : AI_PASSIVE};
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    struct addrinfo *found;
    char service[16];
    a->count = 0;
    if (host && *host == '@') { // a zero byte in front: the name is no file's
        const int length = snprintf(own.sun_path + 1, sizeof own.sun_path - 1, "%s:%d", host, port);
        add_address(a, &own, offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
        return OK;
    }
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error == EAI_NONAME) return fail(ERROR_USAGE, "there is no host %s", host);
    if (error) return fail(ERROR_DEVICE, "%s has no address: %s", host, gai_strerror(error));
    for (const struct addrinfo *f = found; f; f = f->ai_next) add_address(a, f->ai_addr, f->ai_addrlen);
    freeaddrinfo(found);
    return OK;
}

static bool is_loopback(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return address->ss_family == AF_INET &&
           ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* Whether the other end may be of this run, as far as the system knows: of TCP it says nobody's. */
static bool same_user(int connection) {
    struct ucred other = {.uid = (uid_t)-1};
    socklen_t length = sizeof other;
    (void)getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &length);
    return other.uid == (uid_t)-1 || other.uid == geteuid();
}

static int new_socket(const struct sockaddr_storage *address) {
    int opened = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    set_option(opened, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(opened, SOL_SOCKET, SO_KEEPALIVE, 1);
    return opened;
}

/* ---- listening ---- */

/* -1 with errno. */
static int listen_at(const struct sockaddr_storage *address, socklen_t bytes) {
    int opened = new_socket(address), error;
    set_option(opened, SOL_SOCKET, SO_REUSEADDR, 1); // of an earlier run that has ended
    set_option(opened, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(opened, (const struct sockaddr *)address, bytes) == 0 && listen(opened, BACKLOG) == 0)
        return opened;
    error = errno;
    close(opened);
    errno = error;
    return -1;
}

Status wire_listen(const char *host, int port, int *listener) {
    struct in6_addr number;
    const bool name =
        host && inet_pton(AF_INET, host, &number) != 1 && inet_pton(AF_INET6, host, &number) != 1;
    Addresses found;
    TRY(find_host(host, port, &found));
    *listener = -1;
    errno = EADDRNOTAVAIL;
    for (int i = 0; i < found.count && *listener < 0; i++)
        if (!name || !is_loopback(&found.at[i])) *listener = listen_at(&found.at[i], found.bytes[i]);
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

int wire_accept(int listener, double until) {
    while (ready(listener, POLLIN, until)) {
        int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (connection >= 0 && same_user(connection)) return connection;
        if (connection >= 0) close(connection);
    }
    return -1;
}

/* ---- connecting ---- */

/* One address: 0 or errno. */
static int connect_at(const struct sockaddr_storage *address, socklen_t bytes, double until,
                      int *connection) {
    int opened = new_socket(address), error = 0;
    socklen_t length = sizeof error;
    if (connect(opened, (const struct sockaddr *)address, bytes) != 0 && errno != EINPROGRESS)
        error = errno;
    else if (!ready(opened, POLLOUT, until) || getsockopt(opened, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    else if (!error && !same_user(opened))
        error = EACCES;
    if (error)
        close(opened);
    else
        *connection = opened;
    return error;
}

Status wire_connect(const char *host, int port, double until, int *connection) {
    Addresses found;
    int error = EADDRNOTAVAIL;
    TRY(find_host(host, port, &found));
    *connection = -1;
    for (int i = 0; i < found.count && error; i++)
        error = connect_at(&found.at[i], found.bytes[i], until, connection);
    return error ? fail(ERROR_DEVICE, "%s", strerror(error)) : OK;
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
