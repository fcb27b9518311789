#define _GNU_SOURCE
#include "base/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CACHE_LINE = 64, HUGE_PAGE = 2 << 20 };
enum { EXIT_CODE = 5 }; // ERROR_MEMORY of base/status.h, which depends on this file

void *memory_reserve(size_t bytes) {
    void *pointer = NULL;
    bool large = bytes >= 4 * (size_t)HUGE_PAGE;
    if (bytes > SIZE_MAX / 2 ||
        posix_memalign(&pointer, large ? HUGE_PAGE : CACHE_LINE, bytes ? bytes : 1) != 0)
        return NULL;
    /* Huge pages save 2 to 6% of a training step on the CPU. A refusal is harmless. */
    if (large) (void)madvise(pointer, bytes, MADV_HUGEPAGE);
    return pointer;
}

/* A program that cannot allocate a list or a name cannot continue. Files are safe, because new files are
 * renamed over the old ones only when complete. The exit is immediate, because an ordinary exit would destroy
 * library state that other threads still use. */
static _Noreturn void run_out(size_t bytes) {
    fprintf(stderr, "%s: out of host memory: %zu bytes more were needed\n", program_invocation_short_name,
            bytes);
    fflush(NULL);
    _exit(EXIT_CODE);
}

static void *or_run_out(void *pointer, size_t bytes) {
    if (!pointer) run_out(bytes);
    return pointer;
}

void *memory_allocate(size_t bytes) {
    return memset(or_run_out(memory_reserve(bytes), bytes), 0, bytes);
}

void memory_free(void *pointer) {
    free(pointer);
}

void memory_release(void *variable) {
    void *pointer;
    memcpy(&pointer, variable, sizeof pointer); // the variable may be a pointer of any type
    free(pointer);
}

void *memory_array(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) run_out(SIZE_MAX);
    return memory_allocate(bytes);
}

void *memory_resize(void *pointer, size_t bytes) {
    return or_run_out(realloc(pointer, bytes ? bytes : 1), bytes);
}

void *memory_grow(void *array, int64_t *room, int64_t count, size_t size) {
    if (count <= *room) return array;
    int64_t more = *room + *room / 2 + 16;
    size_t bytes;
    if (more < count) more = count;
    if (__builtin_mul_overflow((size_t)more, size, &bytes)) run_out(SIZE_MAX);
    *room = more;
    return memory_resize(array, bytes);
}

int64_t memory_process_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

char *memory_text(const char *text) {
    return memory_text_slice(text, strlen(text));
}

char *memory_text_slice(const char *text, size_t length) {
    if (length == SIZE_MAX) run_out(length);
    char *copy = memory_allocate(length + 1);
    if (length) memcpy(copy, text, length);
    return copy;
}
