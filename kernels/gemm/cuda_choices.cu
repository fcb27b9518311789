/* The cached choices (choices.h) of a GPU's products, and the setting of FUSEBOX_TUNE for our own kernel. */
#include "kernels/gemm/cuda_plan.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file of this device and library, and a plan's key as words. */
struct Kept {
    char file[400];
    int64_t words[PLAN_KEY_WORDS];

    Kept(const CudaDevice *device, const PlanKey *key) {
        int driver = 0;
        (void)cudaDriverGetVersion(&driver);
        snprintf(file, sizeof file, "products %s %s driver %d.txt", device->base.name, device->base.library,
                 driver);
        memcpy(words, key, sizeof words);
    }
};

static bool setting_is(const char *word) {
    const char *setting = getenv("FUSEBOX_TUNE");
    return setting && strcmp(setting, word) == 0;
}

OwnKernel choice_of_own() {
    return setting_is("own") ? OWN_ALWAYS : setting_is("library") ? OWN_NEVER : OWN_PROPOSED;
}

bool plan_choice_find(const CudaDevice *device, const PlanKey *key, KeptChoice *choice) {
    const Kept kept(device, key);
    return choice_find(kept.file, kept.words, PLAN_KEY_WORDS, choice);
}

bool plan_choice_keep(const CudaDevice *device, const PlanKey *key, const KeptChoice *choice) {
    const Kept kept(device, key);
    return choice_keep(kept.file, kept.words, PLAN_KEY_WORDS, choice);
}
