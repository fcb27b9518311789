/* gather: rows by index, zeros for index -1; the backward pass writes each row back, and zeros elsewhere. */
#include "kernels/gather/gather.h"
#include "tests/support/compare.h"

#include <string.h>

typedef struct {
    int64_t rows, width, places, skipped; // one index in `skipped` is -1; 0: none
} Case;

static const Case cases[] = {{1, 1, 1, 0},    {5, 3, 2, 0},     {7, 8, 7, 2},
                             {64, 33, 20, 3}, {65, 64, 65, 0},  {130, 768, 19, 4},
                             {17, 40, 5, 1},  {257, 7, 100, 0}, {1000, 24, 150, 5}};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct {
    Case size;
    const int32_t *places;
} Batch;

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Batch *batch = what;
    const Case *c = &batch->size;
    const Dtype dtype = rig->ctx.dtype;
    const Shape all = shape2(c->rows, c->width), some = shape2(c->places, c->width);
    GatherForward f = {.x = rig_put(rig, "x", dtype, all, in[0]),
                       .rows = rig_put_ints(rig, "places", shape1(c->places), batch->places),
                       .y = rig_blank(rig, "y", dtype, some)};
    const GatherBackward b = {
        .forward = &f, .dy = rig_put(rig, "dy", dtype, some, in[1]), .dx = rig_blank(rig, "dx", dtype, all)};
    expect_ok(gather_forward(&rig->ctx, &f, ARENA_SAVED));
    expect_ok(gather_backward(&rig->ctx, &b));
    rig_get(rig, f.y, out[0]);
    rig_get(rig, b.dx, out[1]);
}

/* Distinct indices: about every third row, from the last to the first. */
static const int32_t *make_places(const Case *c) {
    int32_t *places = integers(c->places, 1);
    for (int64_t m = 0; m < c->places; m++) {
        places[m] = (int32_t)(c->rows - 1 - m * c->rows / c->places);
        if (c->skipped && m % c->skipped == 0) places[m] = -1;
    }
    return places;
}

static void check(const Variant *variant) {
    for (int i = 0; i < CASES; i++) {
        const Case *c = &cases[i];
        const Batch batch = {*c, make_places(c)};
        int64_t all = c->rows * c->width, some = c->places * c->width;
        double *in[2] = {normals(all, 1, variant->dtype), normals(some, 1, variant->dtype)};
        double *got[2] = {zeros(some), zeros(all)}, *y = zeros(some), *dx = zeros(all);
        for (int64_t m = 0; m < c->places; m++) {
            if (batch.places[m] < 0) continue;
            size_t bytes = (size_t)c->width * sizeof *y;
            memcpy(y + m * c->width, in[0] + batch.places[m] * c->width, bytes);
            memcpy(dx + batch.places[m] * c->width, in[1] + m * c->width, bytes);
        }
        rig_run(variant, run, &batch, in, got);
        expect_equal(got[0], y, some, "y");
        expect_equal(got[1], dx, all, "dx");
    }
}

static void specification_gathers(void **state) {
    (void)state;
    check(&specification);
}

static void forms_gather(void **state) {
    check(test_variant(state, OP_GATHER));
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const GatherForward right = {.x = tensor_view(NULL, F32, shape2(5, 8)),
                                 .rows = tensor_view(NULL, I32, shape1(3)),
                                 .y = tensor_view(NULL, F32, shape2(3, 8))};
    GatherForward wrong[3] = {right, right, right};
    wrong[0].y = tensor_view(NULL, F32, shape2(4, 8));
    wrong[1].rows.dtype = F32;
    wrong[2].x = (Tensor){0};
    for (int i = 0; i < 3; i++) {
        Status status = gather_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_gathers), ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(forms_gather)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
