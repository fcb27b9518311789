/* Streaming stores on the CPU, for large data: fills, and the weights that AdamW rounds. */
#include "base/bfloat16.h"
#include "kernels/device/device.h"
#include "optim/adamw.h"
#include "tests/support/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3 };

static void fills_end_where_they_should(void **state) {
    (void)state;
    enum { EDGE = 64, LARGE = 16 << 20 };
    static const size_t sizes[] = {0, 1, 4095, LARGE - 1, LARGE, LARGE + 1, LARGE + (1 << 20) + 77};
    Device *device;
    expect_ok(device_open_cpu(THREADS, &device));
    const size_t room = sizes[6] + 2 * EDGE;
    char *memory = malloc(room);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t start = 0; start < EDGE; start += 13) {
            const size_t end = start + sizes[i];
            memset(memory, 1, room);
            expect_ok(device->fill(device, memory + start, 0xA5, sizes[i]));
            for (size_t at = 0; at < room; at++)
                if ((unsigned char)memory[at] != (at >= start && at < end ? 0xA5 : 1))
                    fail_msg("%zu bytes from %zu on: byte %zu is %d", sizes[i], start, at, memory[at]);
        }
    free(memory);
    device->close(device);
}

static void large_weights_are_their_masters_rounded(void **state) {
    (void)state;
    enum { COUNT = 5 << 20 };
    const AdamwParameter all = {0, COUNT, true};
    const Shape flat = shape1(COUNT);
    const int64_t words = adamw_words(COUNT), blocks = adamw_blocks(0, COUNT);
    float *masters = calloc(4 * COUNT, sizeof *masters), loss = 1;
    float numbers[ADAMW_STATE_SIZE] = {[ADAMW_LEARNING_RATE] = 1e-2f};
    bf16 *weights = aligned_alloc(64, COUNT * sizeof *weights);
    int32_t *marks = calloc((size_t)words, sizeof *marks);
    double *squares = calloc((size_t)blocks, sizeof *squares), sum = 0;
    adamw_mark(&all, 1, marks);
    for (int64_t i = 0; i < COUNT; i++) {
        masters[i] = (float)(i % 1013) * 1e-3f;
        masters[COUNT + i] = (float)(i % 7) - 3;
        sum += (double)masters[COUNT + i] * (double)masters[COUNT + i];
    }
    const Adamw a = {.steps = ADAMW_WHOLE,
                     .weight = tensor_view(weights, BF16, flat),
                     .master = tensor_view(masters, F32, flat),
                     .gradient = tensor_view(masters + COUNT, F32, flat),
                     .m = tensor_view(masters + 2 * COUNT, F32, flat),
                     .v = tensor_view(masters + 3 * COUNT, F32, flat),
                     .decays = tensor_view(marks, I32, shape1(words)),
                     .squares = tensor_view(squares, F64, shape1(blocks)),
                     .loss = tensor_view(&loss, F32, shape1(1)),
                     .state = tensor_view(numbers, F32, shape1(ADAMW_STATE_SIZE)),
                     .count = 1,
                     .parameters = &all,
                     .beta1 = 0.9,
                     .beta2 = 0.99,
                     .eps = 1e-8,
                     .weight_decay = 0.1};
    Ctx ctx = {.dtype = BF16, .fuses = 1u << OP_ADAMW, .layer = -1};
    expect_ok(device_open_cpu(THREADS, &ctx.device));
    memset(weights, 0xFF, COUNT * sizeof *weights);
    expect_ok(adamw_update(&ctx, &a));
    assert_true(fabs((double)numbers[ADAMW_NORM] - sqrt(sum)) < 1e-6 * sqrt(sum));
    for (int64_t i = 0; i < COUNT; i++)
        if (weights[i].bits != bfloat16_from_float(masters[i]))
            fail_msg("weight %lld is %04x, its master %g", (long long)i, weights[i].bits, (double)masters[i]);
    ctx.device->close(ctx.device);
    free(masters), free(weights), free(marks), free(squares);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fills_end_where_they_should),
                                       cmocka_unit_test(large_weights_are_their_masters_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
