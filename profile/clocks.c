#include "profile/clocks.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Appends, as far as there is room. */
static void __attribute__((format(printf, 2, 3))) append(char text[CLOCKS_BYTES], const char *format, ...) {
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, CLOCKS_BYTES - used, format, arguments);
    va_end(arguments);
}

/* ---- the processor ---- */

void clocks_of_processor(char text[CLOCKS_BYTES]) {
    char line[256], governor[32] = "";
    double low = INFINITY, high = 0, mhz;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "cpu MHz : %lf", &mhz) == 1) low = fmin(low, mhz), high = fmax(high, mhz);
    if (file) fclose(file);
    snprintf(text, CLOCKS_BYTES, "%ld processors", sysconf(_SC_NPROCESSORS_ONLN));
    if (high > 0) append(text, " at %.2f to %.2f GHz", 1e-3 * low, 1e-3 * high);
    file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "r");
    if (file && fscanf(file, "%31s", governor) == 1) append(text, ", governor %s", governor);
    if (file) fclose(file);
}

/* ---- the GPU ---- */

/* NVML is declared here, so the build does not need nvml.h. Calls return 0 on success; the constants are
 * nvml.h's. */
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_TEMPERATURE_GPU = 0 };

typedef struct {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *text, unsigned bytes);
    int (*cuda)(int *version);
    int (*find)(const char *bus, void **gpu);
    int (*clock)(void *gpu, int which, unsigned *mhz);
    int (*most)(void *gpu, int which, unsigned *mhz);
    int (*power)(void *gpu, unsigned *mw);
    int (*limit)(void *gpu, unsigned *mw);
    int (*temperature)(void *gpu, int which, unsigned *celsius);
} Nvml;

static bool nvml_open(Nvml *nvml) {
    const struct {
        const char *name;
        void *place;
    } calls[] = {{"nvmlInit_v2", &nvml->init},
                 {"nvmlShutdown", &nvml->shutdown},
                 {"nvmlSystemGetDriverVersion", &nvml->driver},
                 {"nvmlSystemGetCudaDriverVersion_v2", &nvml->cuda},
                 {"nvmlDeviceGetHandleByPciBusId_v2", &nvml->find},
                 {"nvmlDeviceGetClockInfo", &nvml->clock},
                 {"nvmlDeviceGetMaxClockInfo", &nvml->most},
                 {"nvmlDeviceGetPowerUsage", &nvml->power},
                 {"nvmlDeviceGetEnforcedPowerLimit", &nvml->limit},
                 {"nvmlDeviceGetTemperature", &nvml->temperature}};
    bool found = (nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) != NULL;
    for (size_t i = 0; i < sizeof calls / sizeof *calls && found; i++) {
        void *call = dlsym(nvml->library, calls[i].name);
        found = call != NULL;
        memcpy(calls[i].place, &call, sizeof call);
    }
    if (found && nvml->init() == 0) return true;
    if (nvml->library) dlclose(nvml->library);
    return false;
}

static void read_gpu(const Nvml *nvml, void *gpu, char clocks[CLOCKS_BYTES]) {
    unsigned value, most;
    if (nvml->clock(gpu, NVML_CLOCK_SM, &value) == 0) append(clocks, "SM %u", value);
    if (*clocks && nvml->most(gpu, NVML_CLOCK_SM, &most) == 0) append(clocks, " of %u", most);
    if (*clocks) append(clocks, " MHz");
    if (nvml->clock(gpu, NVML_CLOCK_MEMORY, &value) == 0) append(clocks, ", memory %u MHz", value);
    if (nvml->power(gpu, &value) == 0 && nvml->limit(gpu, &most) == 0)
        append(clocks, ", %.0f of %.0f W", 1e-3 * value, 1e-3 * most);
    if (nvml->temperature(gpu, NVML_TEMPERATURE_GPU, &value) == 0) append(clocks, ", %u C", value);
}

void clocks_of_gpu(const Device *device, char driver[CLOCKS_BYTES], char clocks[CLOCKS_BYTES]) {
    Nvml nvml;
    void *gpu;
    int cuda;
    *driver = *clocks = 0;
    if (device->backend == BACKEND_CPU || !nvml_open(&nvml)) return;
    if (nvml.driver(driver, CLOCKS_BYTES) != 0) *driver = 0;
    if (*driver && nvml.cuda(&cuda) == 0) append(driver, ", CUDA %d.%d", cuda / 1000, cuda % 1000 / 10);
    if (nvml.find(device->bus, &gpu) == 0) read_gpu(&nvml, gpu, clocks);
    nvml.shutdown();
    dlclose(nvml.library);
}
