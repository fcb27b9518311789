/* The CPU's memory at full bandwidth: fills, and the streams that measure the rates. */
#include "kernels/device/cpu.h"

#include <stdio.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { PIECE = 1 << 20, LARGE = 16 << 20 }; // bytes; the caches may hold less than LARGE

/* Bypasses the caches, which would read every line before it is overwritten: twice the rate. */
static void fill_memory(char *memory, int byte, size_t bytes) {
    size_t done = 0;
#if defined(__SSE2__)
    const __m128i value = _mm_set1_epi8((char)byte);
    const size_t unaligned = -(uintptr_t)memory % sizeof value;
    done = unaligned < bytes ? unaligned : bytes;
    memset(memory, byte, done);
    for (; done + sizeof value <= bytes; done += sizeof value)
        _mm_stream_si128((__m128i *)(memory + done), value);
    _mm_sfence();
#endif
    memset(memory + done, byte, bytes - done);
}

Status cpu_fill(Device *device, void *memory, int byte, size_t bytes) {
    if (bytes < LARGE) {
        if (bytes) memset(memory, byte, bytes);
        return OK;
    }
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (size_t at = 0; at < bytes; at += PIECE)
        fill_memory((char *)memory + at, byte, bytes - at < PIECE ? bytes - at : PIECE);
    return OK;
}

/* Four independent sums, so that none waits for the previous addition. */
static uint64_t read_memory(const uint64_t *from, size_t bytes) {
    const size_t quarter = bytes / sizeof *from / 4;
    const uint64_t *a = from, *b = a + quarter, *c = b + quarter, *d = c + quarter;
    uint64_t sums[4] = {0};
    for (size_t i = 0; i < quarter; i++) {
        sums[0] ^= a[i];
        sums[1] ^= b[i];
        sums[2] ^= c[i];
        sums[3] ^= d[i];
    }
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

/* The barrier keeps the compiler from removing all passes but one. */
static void stream_once(Stream how, char *memory, size_t bytes, bool large) {
    const size_t half = bytes / 2;
    uint64_t seen = 0;
    if (how == STREAM_READ)
        seen = read_memory((const uint64_t *)memory, bytes);
    else if (how == STREAM_COPY)
        memcpy(memory + half, memory, half);
    else if (large)
        fill_memory(memory, 1, bytes);
    else
        memset(memory, 1, bytes);
    __asm__ volatile("" : : "r"(seen), "r"(memory) : "memory");
}

Status cpu_stream(Device *device, Stream how, void *memory, size_t bytes, int64_t times) {
    const size_t cached = device->caches[DEVICE_CACHES - 1] ? device->caches[DEVICE_CACHES - 1] : LARGE;
    const size_t line = 64, each = bytes / (size_t)device->threads / (8 * line) * (8 * line);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int thread = 0; thread < device->threads; thread++)
        for (int64_t i = 0; i < times; i++)
            stream_once(how, (char *)memory + (size_t)thread * each, each, bytes > cached);
    return OK;
}

/* Reads a number from a file about the first core's cache; 0 if it does not exist. For a mask of cores,
 * returns their number. */
static size_t cache_number(int index, const char *name, const char *format) {
    char path[96], text[256] = "";
    unsigned long value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (!fgets(text, sizeof text, file)) text[0] = 0;
    fclose(file);
    if (format) return sscanf(text, format, &value) == 1 ? value : 0;
    for (const char *digit = text; *digit; digit++) {
        char one[2] = {*digit, 0};
        unsigned bits;
        if (sscanf(one, "%x", &bits) == 1) value += (unsigned long)__builtin_popcount(bits);
    }
    return value;
}

/* Assumes threads on neighbouring cores: counts as many caches of each level as they use. */
size_t cpu_cache_bytes(size_t level, size_t threads) {
    enum { INDICES = 8 };
    for (int i = 0; i < INDICES; i++) {
        size_t kilobytes = cache_number(i, "size", "%luK"), cores = cache_number(i, "shared_cpu_map", NULL);
        if (cache_number(i, "level", "%lu") != level || !kilobytes || !cores) continue;
        return kilobytes * 1024 * ((threads + cores - 1) / cores);
    }
    return 0;
}
