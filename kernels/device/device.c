#include "kernels/device/device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

Status device_open(const char *choice, int threads, Device **device) {
    if (strcmp(choice, "cpu") == 0) return device_open_cpu(threads, device);
    if (strcmp(choice, "auto") == 0) {
        Status status = device_open_cuda ? device_open_cuda(0, device) : OK;
        if (device_open_cuda && !status) return OK;
        status_free(status);
        return device_open_cpu(threads, device);
    }
    if (strncmp(choice, "cuda", 4) != 0 || (choice[4] != '\0' && choice[4] != ':'))
        return fail(ERROR_USAGE, "--device=%s: expected auto, cpu, cuda or cuda:N", choice);
    int index = 0;
    if (choice[4] == ':') {
        char *end;
        long number = strtol(choice + 5, &end, 10);
        if (end == choice + 5 || *end || number < 0 || number > 1023)
            return fail(ERROR_USAGE, "--device=%s: a GPU's number follows the colon, as in cuda:0", choice);
        index = (int)number;
    }
    if (!device_open_cuda)
        return fail(ERROR_DEVICE,
                    "--device=%s: this build has no CUDA; build with nvcc installed, or use --device=cpu",
                    choice);
    return device_open_cuda(index, device);
}

Status device_rest(Device *device, int milliseconds) {
    const struct timespec length = {.tv_nsec = milliseconds * 1000000L};
    TRY(device->synchronize(device));
    (void)nanosleep(&length, NULL);
    return OK;
}
