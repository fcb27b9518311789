#include "kernels/device/cpu.h"

#include "base/memory.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cblas.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

struct Event {
    double seconds;
};

double device_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static Status cpu_available(Device *device, size_t *bytes) {
    (void)device;
    /* MemAvailable includes reclaimable caches; sysconf's free pages do not. */
    FILE *file = fopen("/proc/meminfo", "r");
    unsigned long long kilobytes = 0;
    char line[128];
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) break;
    if (file) fclose(file);
    *bytes = kilobytes ? (size_t)kilobytes * 1024
                       : (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return OK;
}

static Status cpu_allocate(Device *device, size_t bytes, void **memory) {
    *memory = memory_reserve(bytes);
    if (!*memory)
        return fail(ERROR_MEMORY, "%s: cannot allocate %.1f MiB", device->name, (double)bytes / 1048576);
    return OK;
}

static void cpu_release(Device *device, void *memory) {
    (void)device;
    memory_free(memory);
}

static Status cpu_upload(Device *device, void *memory, const void *host, size_t bytes) {
    (void)device;
    if (bytes) memcpy(memory, host, bytes);
    return OK;
}

static Status cpu_download(Device *device, void *host, const void *memory, size_t bytes) {
    return cpu_upload(device, host, memory, bytes);
}

static Status cpu_nothing(Device *device) {
    (void)device;
    return OK;
}

static Status cpu_event_create(Device *device, Event **event) {
    (void)device;
    *event = memory_allocate(sizeof **event);
    return OK;
}

static void cpu_event_free(Device *device, Event *event) {
    (void)device;
    memory_free(event);
}

static Status cpu_event_record(Device *device, Event *event) {
    (void)device;
    event->seconds = device_clock();
    return OK;
}

static Status cpu_event_wait(Device *device, Event *event) {
    (void)device;
    (void)event;
    return OK;
}

static Status cpu_elapsed(Device *device, Event *start, Event *end, double *milliseconds) {
    (void)device;
    *milliseconds = 1e3 * (end->seconds - start->seconds);
    return OK;
}

static void cpu_range_push(Device *device, const char *name) {
    (void)device;
    (void)name;
}

static void cpu_range_pop(Device *device) {
    (void)device;
}

static void cpu_outside_profiler(Device *device, bool record) {
    (void)device;
    (void)record;
}

static void cpu_close(Device *device) {
    CpuDevice *cpu = (CpuDevice *)device;
    if (cpu->free_plans) cpu->free_plans(cpu->plans);
    if (cpu->onednn) onednn_close(cpu->onednn);
    memory_free(cpu->blocks);
    memory_free(cpu);
}

/* Asks the processor, because a file such as /proc/cpuinfo can be missing, and results must not depend on
 * that. */
void device_processor(char name[PROCESSOR_BYTES]) {
    *name = 0;
#ifdef __x86_64__
    enum { BRAND = 0x80000002, LEAVES = 3 };
    unsigned words[LEAVES][4];
    char brand[sizeof words + 1] = "";
    for (unsigned i = 0; i < LEAVES; i++)
        if (!__get_cpuid(BRAND + i, &words[i][0], &words[i][1], &words[i][2], &words[i][3])) return;
    memcpy(brand, words, sizeof words);
    const char *first = brand + strspn(brand, " ");
    size_t length = strlen(first);
    while (length && first[length - 1] == ' ') length--;
    snprintf(name, PROCESSOR_BYTES, "%.*s", (int)length, first);
#endif
}

static void describe(CpuDevice *cpu) {
    Device *device = &cpu->base;
    char model[PROCESSOR_BYTES];
    device_processor(model);
    snprintf(device->name, sizeof device->name, "%s, %d thread%s", *model ? model : "CPU", device->threads,
             device->threads == 1 ? "" : "s");

    /* Keeps name and version of "OpenBLAS 0.3.21 NO_LAPACK ... ". */
    const char *config = openblas_get_config();
    int length = 0;
    for (int words = 0; config[length] && (config[length] != ' ' || ++words < 2);) length++;
    snprintf(device->library, sizeof device->library, "%s%s%.*s (%s)",
             cpu->onednn ? onednn_name(cpu->onednn) : "", cpu->onednn ? ", " : "", length, config,
             openblas_get_corename());
}

enum { THREADS_MOST = 4096 };         // maximum of --threads
enum { OPENBLAS_BUFFER = 160 << 20 }; // more than OpenBLAS needs per buffer

/* Tests with a mapping that is never touched; under sanitizers, an allocation of this size would take a
 * tenth of a second. */
bool cpu_has_room(size_t bytes) {
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, bytes);
    return true;
}

static Status check_memory(void) {
    if (cpu_has_room(OPENBLAS_BUFFER)) return OK;
    return fail(ERROR_MEMORY, "no memory for OpenBLAS: it takes 128 MiB for each thread, and 128 more");
}

/* OpenBLAS retries forever when it cannot allocate its buffers, one per thread and one for products. So
 * they are allocated here, after checking for memory. */
static Status start_openblas(int threads) {
    float one = 0;
    for (int t = openblas_get_num_threads(); t < threads; t++) {
        TRY(check_memory());
        openblas_set_num_threads(t + 1);
    }
    openblas_set_num_threads(threads);
    TRY(check_memory());
    cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, 1, 1, 1, &one, 1, 0, &one, 1);
    return OK;
}

/* Starts as many threads as requested, or as the environment says. OpenBLAS waits forever for threads that
 * OpenMP fails to start. */
static Status set_threads(int asked, int *threads) {
    int limit = omp_get_thread_limit();
    *threads = asked > 0 ? asked : omp_get_max_threads();
    if (*threads > THREADS_MOST)
        return fail(ERROR_USAGE,
                    "OMP_NUM_THREADS=%d: at most %d threads can be used; set fewer, or give --threads",
                    *threads, THREADS_MOST);
    if (asked > limit) return fail(ERROR_USAGE, "--threads=%d: OMP_THREAD_LIMIT allows %d", asked, limit);
    if (*threads > limit) *threads = limit;
    omp_set_dynamic(0);
    omp_set_num_threads(*threads);
    return start_openblas(*threads);
}

void cpu_use_threads(Device *device, int threads) {
    device->threads = threads;
    omp_set_num_threads(threads);
    openblas_set_num_threads(threads);
}

Status device_open_cpu(int threads, Device **device) {
    CpuDevice *cpu = memory_allocate(sizeof *cpu);
    cpu->base = (Device){.backend = BACKEND_CPU,
                         .memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE),
                         .allocate = cpu_allocate,
                         .release = cpu_release,
                         .pinned = cpu_allocate,
                         .release_pinned = cpu_release,
                         .available = cpu_available,
                         .fill = cpu_fill,
                         .upload = cpu_upload,
                         .download = cpu_download,
                         .copy = cpu_upload,
                         .stream = cpu_stream,
                         .synchronize = cpu_nothing,
                         .launched = cpu_nothing,
                         .event_create = cpu_event_create,
                         .event_free = cpu_event_free,
                         .event_record = cpu_event_record,
                         .event_wait = cpu_event_wait,
                         .elapsed = cpu_elapsed,
                         .range_push = cpu_range_push,
                         .range_pop = cpu_range_pop,
                         .outside_profiler = cpu_outside_profiler,
                         .close = cpu_close};
    Status status = set_threads(threads, &cpu->base.threads);
    for (int i = 0; i < DEVICE_CACHES; i++)
        cpu->base.caches[i] = cpu_cache_bytes((size_t)i + 2, (size_t)cpu->base.threads);
    if (!status && onednn_open) status = onednn_open(&cpu->onednn);
    if (status) {
        memory_free(cpu);
        return status;
    }
    describe(cpu);
    *device = &cpu->base;
    return OK;
}
