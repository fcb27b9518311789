/* preload: an LD_PRELOAD library that makes an allocation or a system call of the program fail, kills the
 * program at one, or records its changes of files. System calls are caught by a seccomp filter that sends
 * them to a handler in the same process, so that those that libc makes for itself are caught as well. For
 * x86-64 and glibc.
 *
 * ATTACK="MODE K FILE" selects the fault. Calls are counted from 1, beginning with main(): count nothing
 * fails allocation the K-th allocation gets NULL io the K-th system call fails with EIO, or with ENOMEM if it
 * allocates memory lack the same with ENOSPC if it would write, else with ENOMEM kill SIGKILL instead of the
 * K-th system call that changes a file or a folder stop SIGSTOP before the K-th system call, and again before
 * the one ATTACK_AGAIN later short every K-th call, if it is a read or a write, transfers one byte only
 * record each change of a file or a folder is appended to FILE In all modes but `record`, FILE is mapped and
 * receives a Report, which survives a crash. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

typedef struct {
    atomic_long allocations, calls, changes; // so far
    long failed;                             // the number of the system call that failed or was skipped
    char what[PATH_MAX];                     // its file
    bool by_onednn;                          // whether oneDNN had requested what failed
} Report;

static const char *mode = ""; // until main() begins
static long at, again;
static Report nowhere = {.failed = -1}, *report = &nowhere;
static int records = -1;

static bool is_mode(const char *name) {
    return strcmp(mode, name) == 0;
}

/* Whether oneDNN is among the callers of the call that fails now. */
static bool onednn_asks(void) {
    enum { FRAMES = 64 };
    void *frames[FRAMES];
    Dl_info about;
    int count = backtrace(frames, FRAMES);
    for (int i = 0; i < count; i++)
        if (dladdr(frames[i], &about) && strstr(about.dli_fname, "libdnnl")) return true;
    return false;
}

/* ---- allocations ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *pointer, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static bool allocation_fails(void) {
    if (!*mode) return false;
    long number = atomic_fetch_add(&report->allocations, 1) + 1;
    if (number != at || !is_mode("allocation")) return false;
    report->by_onednn = onednn_asks();
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    return allocation_fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return allocation_fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *pointer, size_t bytes) {
    return allocation_fails() ? NULL : __libc_realloc(pointer, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return allocation_fails() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **pointer, size_t alignment, size_t bytes) {
    void *got = allocation_fails() ? NULL : __libc_memalign(alignment, bytes);
    if (got) *pointer = got;
    return got ? 0 : ENOMEM;
}

/* ---- which system calls ---- */

/* What a call operates on, by its arguments: a path, a descriptor and a path below it, a descriptor,
 * memory. */
typedef enum { NOT_CAUGHT, PATH, AT, DESCRIPTOR, MEMORY } Place;

typedef struct {
    Place place;
    bool changes; // changes a file or a folder; for openat the flags decide
} Kind;

#define CALL(NAME, ...) [SYS_##NAME] = {__VA_ARGS__}
static const Kind kinds[512] = {
    CALL(open, PATH),
    CALL(openat, AT),
    CALL(access, PATH),
    CALL(faccessat, AT),
    CALL(faccessat2, AT),
    CALL(stat, PATH),
    CALL(lstat, PATH),
    CALL(newfstatat, AT),
    CALL(statx, AT),
    CALL(fstat, DESCRIPTOR),
    CALL(readlink, PATH),
    CALL(readlinkat, AT),
    CALL(read, DESCRIPTOR),
    CALL(pread64, DESCRIPTOR),
    CALL(readv, DESCRIPTOR),
    CALL(lseek, DESCRIPTOR),
    CALL(getdents64, DESCRIPTOR),
    CALL(fcntl, DESCRIPTOR),
    CALL(flock, DESCRIPTOR),
    CALL(close, DESCRIPTOR),
    CALL(mmap, MEMORY),
    CALL(mprotect, MEMORY),
    CALL(brk, MEMORY),
    CALL(mremap, MEMORY),
    CALL(write, DESCRIPTOR, 1),
    CALL(pwrite64, DESCRIPTOR, 1),
    CALL(writev, DESCRIPTOR, 1),
    CALL(ftruncate, DESCRIPTOR, 1),
    CALL(fsync, DESCRIPTOR, 1),
    CALL(fdatasync, DESCRIPTOR, 1),
    CALL(rename, PATH, 1),
    CALL(renameat, AT, 1),
    CALL(renameat2, AT, 1),
    CALL(mkdir, PATH, 1),
    CALL(mkdirat, AT, 1),
    CALL(rmdir, PATH, 1),
    CALL(unlink, PATH, 1),
    CALL(unlinkat, AT, 1),
    CALL(link, PATH, 1),
    CALL(symlink, PATH, 1),
    CALL(chmod, PATH, 1),
    CALL(truncate, PATH, 1),
};

typedef struct {
    long number, a[6];
} Call;

/* Makes a system call from the only place that the filter lets pass. */
long attack_raw(long number, long a, long b, long c, long d, long e, long f);
extern const char attack_raw_return[];
__asm__(".text\n.globl attack_raw\nattack_raw:\n"
        "mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
        "mov %r8, %r10\n mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\n"
        ".globl attack_raw_return\nattack_raw_return:\n ret\n");

static long make(const Call *c) {
    return attack_raw(c->number, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
}

static bool changes(const Call *c) {
    long flags = c->number == SYS_openat ? c->a[2] : c->number == SYS_open ? c->a[1] : 0;
    return kinds[c->number].changes || (flags & (O_CREAT | O_TRUNC)) != 0;
}

/* ---- paths ---- */

/* The path of a descriptor; empty if it cannot be found. */
static void descriptor_path(long descriptor, char path[PATH_MAX]) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%ld", descriptor);
    long length = attack_raw(SYS_readlink, (long)link, (long)path, PATH_MAX - 1, 0, 0, 0);
    path[length > 0 ? length : 0] = 0;
}

static void path_below(int folder, const char *name, char path[PATH_MAX]) {
    size_t used = 0;
    if (*name != '/') {
        descriptor_path(folder, path);
        if (folder == AT_FDCWD && attack_raw(SYS_getcwd, (long)path, PATH_MAX, 0, 0, 0, 0) < 0) *path = 0;
        used = strlen(path);
        if (used < PATH_MAX - 1) path[used++] = '/';
    }
    snprintf(path + used, PATH_MAX - used, "%s", name);
}

static void call_path(const Call *c, char path[PATH_MAX]) {
    *path = 0;
    switch (kinds[c->number].place) {
    case PATH: path_below(AT_FDCWD, (const char *)c->a[0], path); break;
    case AT: path_below((int)c->a[0], (const char *)c->a[1], path); break;
    case DESCRIPTOR: descriptor_path(c->a[0], path); break;
    case MEMORY: break;
    case NOT_CAUGHT: break;
    }
}

/* The second path of a rename. */
static void call_target(const Call *c, char path[PATH_MAX]) {
    *path = 0;
    if (c->number == SYS_rename || c->number == SYS_link) path_below(AT_FDCWD, (const char *)c->a[1], path);
    if (c->number == SYS_renameat || c->number == SYS_renameat2)
        path_below((int)c->a[2], (const char *)c->a[3], path);
}

/* ---- handling of a call ---- */

/* A record: the call's number, offset or flags, lengths of path, target and data (5 x int64); then path,
 * target and data. Opening a file with truncation is recorded as the opening, then an ftruncate. */
static void append_record(long number, int64_t offset, const char *path, const char *target, const void *data,
                          size_t bytes) {
    int64_t head[5] = {number, offset, (int64_t)strlen(path), (int64_t)strlen(target), (int64_t)bytes};
    struct iovec parts[] = {{head, sizeof head},
                            {(void *)(uintptr_t)path, (size_t)head[2]},
                            {(void *)(uintptr_t)target, (size_t)head[3]},
                            {(void *)(uintptr_t)data, bytes}};
    if (attack_raw(SYS_writev, records, (long)parts, 4, 0, 0, 0) < (long)(sizeof head + bytes)) abort();
}

static long make_and_record(const Call *c) {
    char path[PATH_MAX], target[PATH_MAX];
    call_path(c, path);
    call_target(c, target);
    bool data = c->number == SYS_write || c->number == SYS_pwrite64;
    int64_t offset = c->number == SYS_ftruncate ? c->a[1] : c->number == SYS_renameat2 ? c->a[4] : c->a[3];
    if (c->number == SYS_write) offset = attack_raw(SYS_lseek, c->a[0], 0, SEEK_CUR, 0, 0, 0);
    if (c->number == SYS_openat) offset = c->a[2];
    if (c->number == SYS_open) offset = c->a[1];
    long result = make(c);
    if (result < 0) return result;
    append_record(c->number, offset, path, target, data ? (const void *)c->a[1] : "",
                  data ? (size_t)result : 0);
    return result;
}

static long make_short(Call *c, long number) {
    bool moves = c->number == SYS_read || c->number == SYS_write || c->number == SYS_pread64 ||
                 c->number == SYS_pwrite64;
    if (moves && c->a[2] > 1 && number % at == 0) c->a[2] = 1;
    return make(c);
}

static long error_of(const Call *c) {
    if (kinds[c->number].place == MEMORY) return ENOMEM;
    if (is_mode("io")) return EIO;
    return changes(c) ? ENOSPC : ENOMEM;
}

static long answer(Call *c) {
    bool change = changes(c);
    long number = atomic_fetch_add(&report->calls, 1) + 1;
    long change_number = change ? atomic_fetch_add(&report->changes, 1) + 1 : 0;
    if (is_mode("record")) return change ? make_and_record(c) : make(c);
    if (is_mode("short")) return make_short(c, number);
    if (is_mode("stop") && (number == at || number == at + again))
        attack_raw(SYS_kill, getpid(), SIGSTOP, 0, 0, 0, 0);
    bool kills = is_mode("kill"), fails = is_mode("io") || is_mode("lack");
    if (!kills && !fails) return make(c);
    if ((kills ? change_number : number) != at) return make(c);
    report->failed = c->number;
    report->by_onednn = !kills && onednn_asks();
    call_path(c, report->what);
    if (kills) attack_raw(SYS_kill, getpid(), SIGKILL, 0, 0, 0, 0);
    if (c->number == SYS_close) (void)make(c);
    if (c->number == SYS_brk) return attack_raw(SYS_brk, 0, 0, 0, 0, 0, 0);
    return -error_of(c);
}

static void on_call(int signal_number, siginfo_t *about, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    Call c = {about->si_syscall, {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]}};
    int before = errno;
    (void)signal_number;
    r[REG_RAX] = answer(&c);
    errno = before;
}

/* No one may block the filter's signal: the kernel would kill the process at its next call. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
    sigset_t kept;
    if (set) kept = *set;
    if (set) sigdelset(&kept, SIGSYS);
    return (int)-attack_raw(SYS_rt_sigprocmask, how, set ? (long)&kept : 0, (long)before, 8, 0, 0);
}

/* ---- the beginning ---- */

static void catch_calls(void) {
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct sock_filter filter[2 * KINDS];
    uint64_t passes = (uint64_t)(uintptr_t)attack_raw_return;
    unsigned short used = 0;
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                  offsetof(struct seccomp_data, instruction_pointer));
    filter[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)passes, 0, 3);
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                  offsetof(struct seccomp_data, instruction_pointer) + 4);
    filter[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(passes >> 32), 0, 1);
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[used++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (uint32_t i = 0; i < KINDS; i++) {
        if (kinds[i].place == NOT_CAUGHT) continue;
        filter[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, i, 0, 1);
        filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    }
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {used, filter};
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        abort();
}

static void begin(void) {
    static char name[16], file[PATH_MAX];
    const char *attack = getenv("ATTACK"), *second = getenv("ATTACK_AGAIN");
    if (second) again = atol(second);
    if (!attack || sscanf(attack, "%15s %ld %4095s", name, &at, file) != 3) return;
    bool recorded = strcmp(name, "record") == 0;
    int descriptor = open(file, O_RDWR | O_CREAT | O_APPEND, 0666);
    if (descriptor < 0) abort();
    records = fcntl(descriptor, F_DUPFD_CLOEXEC, 500);
    close(descriptor);
    if (!recorded) {
        if (ftruncate(records, sizeof *report) != 0) abort();
        report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED, records, 0);
        close(records);
        if (report == MAP_FAILED) abort();
        report->failed = -1;
    }
    (void)onednn_asks(); // the first stack trace loads a library
    catch_calls();
    mode = name;
}

typedef int Main(int count, char **arguments, char **environment);
static Main *program_main;

static int attacked_main(int count, char **arguments, char **environment) {
    begin();
    return program_main(count, arguments, environment);
}

/* Called by _start. */
int __libc_start_main(Main *main, int count, char **arguments, void (*init)(void), void (*fini)(void),
                      void (*exit_dynamic)(void), void *stack_end);
int __libc_start_main(Main *main, int count, char **arguments, void (*init)(void), void (*fini)(void),
                      void (*exit_dynamic)(void), void *stack_end) {
    __typeof__(__libc_start_main) *real = dlsym(RTLD_NEXT, "__libc_start_main");
    program_main = main;
    return real(attacked_main, count, arguments, init, fini, exit_dynamic, stack_end);
}
