/* driver: an LD_PRELOAD library that makes calls of the CUDA driver fail. All callers, including CUDA's
 * runtime and libraries, look up the driver's functions by dlsym() or cuGetProcAddress(); both return a
 * detour for each function. For x86-64 and glibc.
 *
 * ATTACK="MODE K FILE" selects the fault. Calls are counted from 1: count nothing fails device the K-th call
 * fails with an unknown error memory the K-th call fails because device memory is exhausted lost the K-th and
 * all later calls that use the device fail, as after an illegal access by a kernel nan nothing fails;
 * allocated device memory is filled with NaN, which must not change any result FILE is mapped and receives a
 * Report, which survives a crash. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DETOURS = 2048, CODE_BYTES = 32 };
enum { OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, UNKNOWN = 999 }; // values of CUresult

typedef struct {
    atomic_long calls, unused[2]; // so far
    long failed;                  // the number of the first call that failed; -1: none
    char what[PATH_MAX];          // its function
} Report;

typedef int Function(void);

static Report nowhere = {.failed = -1}, *report = &nowhere;
static int error;
static bool stays, fills;
static long at = LONG_MAX;

/* ---- detours ---- */

__attribute__((visibility("hidden"))) Function *detour_real[DETOURS];
__attribute__((visibility("hidden"))) long detour_error(long number);
static char detour_names[DETOURS][64];
static bool asks[DETOURS]; // whether the call concerns the device
static int detours;
static char *code; // CODE_BYTES for each
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

long detour_error(long number) {
    long call = atomic_fetch_add(&report->calls, 1) + 1;
    if (call < at || (call > at && !stays) || (stays && !asks[number])) return 0;
    if (report->failed < 0) {
        report->failed = call;
        snprintf(report->what, sizeof report->what, "%s", detour_names[number]);
    }
    return error;
}

/* Saves all argument registers, with the call's number in rax, and continues to the function unless it must
 * fail. */
void detour_common(void) __attribute__((visibility("hidden")));
__asm__(".text\ndetour_common:\n"
        "push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n push %rax\n"
        "mov %rax, %rdi\n call detour_error\n mov %rax, %r11\n"
        "pop %rax\n pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n"
        "test %r11d, %r11d\n jne 1f\n"
        "lea detour_real(%rip), %r11\n jmp *(%r11,%rax,8)\n"
        "1: mov %r11d, %eax\n ret\n");

static bool asks_device(const char *name) {
    static const char *const names[] = {"cuCtxSynchronize", "cuEvent", "cuGraph",
                                        "cuLaunch",         "cuMem",   "cuStream"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* mov $number, %eax; movabs $detour_common, %r11; jmp *%r11 */
static void write_code(char *to, int number) {
    void (*target)(void) = detour_common;
    to[0] = (char)0xb8;
    memcpy(to + 1, &number, 4);
    memcpy(to + 5, "\x49\xbb", 2);
    memcpy(to + 7, &target, 8);
    memcpy(to + 15, "\x41\xff\xe3", 3);
}

static void *detour(const char *name, void *real) {
    int number = 0;
    pthread_mutex_lock(&lock);
    if (!code) {
        code = mmap(NULL, DETOURS * CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (code == MAP_FAILED) abort();
    }
    while (number < detours && *(void **)&detour_real[number] != real) number++;
    if (number == DETOURS) abort();
    if (number == detours) {
        *(void **)&detour_real[number] = real;
        snprintf(detour_names[number], sizeof detour_names[number], "%s", name);
        asks[number] = asks_device(name);
        write_code(code + number * CODE_BYTES, number);
        detours++;
    }
    pthread_mutex_unlock(&lock);
    return code + number * CODE_BYTES;
}

/* ---- lookup of functions ---- */

/* Both versions: the first has no `about`, and ignores it. */
typedef int GetAddress(const char *name, void **function, int version, unsigned long flags, void *about);
static GetAddress *get_address;

static int (*allocate)(unsigned long long *memory, size_t bytes);
static int (*set_bytes)(unsigned long long memory, unsigned char value, size_t bytes);
static int (*synchronize)(void *stream);

static int allocate_filled(unsigned long long *memory, size_t bytes) {
    int result = allocate(memory, bytes);
    if (result == 0) result = set_bytes(*memory, 0xFF, bytes);
    return result == 0 ? synchronize(NULL) : result;
}

static int get_detour(const char *name, void **function, int version, unsigned long flags, void *about) {
    int result = get_address(name, function, version, flags, about);
    if (result != 0 || !*function) return result;
    if (strcmp(name, "cuGetProcAddress") == 0) {
        *function = (void *)get_detour;
    } else if (fills && strcmp(name, "cuMemAlloc") == 0) {
        *(void **)&allocate = *function;
        *function = (void *)allocate_filled;
        result = get_address("cuMemsetD8", (void **)&set_bytes, version, flags, about);
        if (result == 0)
            result = get_address("cuStreamSynchronize", (void **)&synchronize, version, flags, about);
    } else {
        *function = detour(name, *function);
    }
    return result;
}

void *dlsym(void *restrict library, const char *restrict name) {
    static void *(*real)(void *restrict library, const char *restrict name);
    if (!real) *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (strncmp(name, "cu", 2) != 0 || !isupper((unsigned char)name[2])) return real(library, name);
    void *found = real(library, name);
    if (!found) return NULL;
    if (strncmp(name, "cuGetProcAddress", 16) != 0) return detour(name, found);
    *(void **)&get_address = found;
    return (void *)get_detour;
}

/* ---- the beginning ---- */

__attribute__((constructor)) static void begin(void) {
    char mode[16], file[PATH_MAX];
    const char *attack = getenv("ATTACK");
    if (!attack || sscanf(attack, "%15s %ld %4095s", mode, &at, file) != 3) return;
    int descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0 || ftruncate(descriptor, sizeof *report) != 0) abort();
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (report == MAP_FAILED) abort();
    report->failed = -1;
    error = strcmp(mode, "memory") == 0 ? OUT_OF_MEMORY
            : strcmp(mode, "lost") == 0 ? ILLEGAL_ADDRESS
                                        : UNKNOWN;
    stays = strcmp(mode, "lost") == 0;
    fills = strcmp(mode, "nan") == 0;
    if (fills || strcmp(mode, "count") == 0) at = LONG_MAX;
}
