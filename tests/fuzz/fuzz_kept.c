/* Fuzzes cached data, which is not trusted: the autotuning cache, and the peaks of this machine. */
#include "kernels/gemm/choices.h"
#include "run/peaks.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

static void read_kept(const uint8_t *data, size_t size) {
    const int64_t key[] = {64, -1, 3};
    Device device = {.name = "device", .library = "library"};
    const Ctx ctx = {.device = &device, .dtype = F32};
    KeptChoice choice, again;
    Peaks peaks;
    scratch_put("products", data, size);
    scratch_put("peaks.json", data, size);
    must(choices_wanted() && choices_lock() >= 0);
    peaks_remember(&ctx, &peaks);
    must((peaks.flops > 0) == (peaks.bandwidth > 0) && peaks.flops >= 0);
    for (int words = 1; words <= 3; words++) {
        bool found = choice_find("products", key, words, &choice);
        if (found) must(choice.microseconds > 0);
        choice = (KeptChoice){.fingerprint = 77, .microseconds = 1.25f};
        if (!found && choice_keep("products", key, words, &choice))
            must(choice_find("products", key, words, &again) && again.fingerprint == 77);
    }
}

FUZZ(kept, read_kept, mutate_json)
