/* rig: runs an operation on one backend, form and dtype, from host numbers to host numbers, so that one test
 * serves the specification, the fused CPU code and a GPU. For every operation it also checks the following.
 * Memory is poisoned with NaN (0xFF bytes) before each run, which reveals outputs that are not written, and
 * scratch that is read before it is written. Nothing is written between tensors. A second run gives the same
 * bits. The measuring pass requests as much memory as the run uses. TEST_FILTER="*cuda*bf16" in the
 * environment selects tests by name. */
#pragma once

#include "kernels/op.h"
#include "tests/support/expect.h"

typedef struct {
    const char *name; // "cuda fused bf16"
    Backend backend;
    Form form;
    Dtype dtype;
    bool tf32;
} Variant;

extern const Variant specification; // cpu naive fp64
enum { VARIANT_COUNT = 10 };
extern const Variant variants[VARIANT_COUNT];

/* One cmocka test per variant; the test starts with test_variant(state, operation). */
#define ON_VARIANT(test, index, name)                                                                        \
    { #test ", " name, test, NULL, test_end, (void *)&variants[index] }
#define ON_EACH_VARIANT(test)                                                                                \
    ON_VARIANT(test, 0, "cpu naive fp32"), ON_VARIANT(test, 1, "cpu fused fp32"),                            \
        ON_VARIANT(test, 2, "cuda naive fp32"), ON_VARIANT(test, 3, "cuda naive tf32"),                      \
        ON_VARIANT(test, 4, "cuda naive bf16"), ON_VARIANT(test, 5, "cuda fused fp32"),                      \
        ON_VARIANT(test, 6, "cuda fused tf32"), ON_VARIANT(test, 7, "cuda fused bf16"),                      \
        ON_VARIANT(test, 8, "cpu naive bf16"), ON_VARIANT(test, 9, "cpu fused bf16")
#define ONCE(test)                                                                                           \
    { #test, test, NULL, test_end, NULL }

/* The variant of this test; skips the test if there is no such device or form. */
const Variant *test_variant(void **state, Operation operation);
int test_end(void **state);           // teardown of each test: frees its arrays
int devices_end(void **state);        // teardown of a program: closes the devices
Device *test_device(Backend backend); // opened once; NULL without a GPU

typedef struct {
    Ctx ctx;
    const Variant *variant;
} Rig;

/* Builds tensors in the rig, runs operations, reads results. Called once while measuring and twice to run. */
typedef void (*Body)(Rig *rig, const void *what, double *const *in, double *const *out);
void rig_run(const Variant *variant, Body body, const void *what, double *const *in, double *const *out);
/* Without the second run and the checks: for the many runs of a finite difference. */
void rig_run_once(const Variant *variant, Body body, const void *what, double *const *in, double *const *out);

/* Inside a body. `values` are rounded to the dtype; an empty shape gives an empty tensor. */
Tensor rig_put(Rig *rig, const char *name, Dtype dtype, Shape shape, const double *values);
void rig_set(Rig *rig, Tensor t, const double *values); // of an existing dense tensor; with the same rounding
Tensor rig_put_ints(Rig *rig, const char *name, Shape shape, const int32_t *values);
Tensor rig_put_bytes(Rig *rig, const char *name, Shape shape, const uint8_t *values);
Tensor rig_blank(Rig *rig, const char *name, Dtype dtype, Shape shape); // stays poisoned
void rig_get(Rig *rig, Tensor t, double *values);                       // a view is gathered

/* Host numbers: freed by test_end; created in the same order they have the same values. */
double *zeros(int64_t count);
double *normals(int64_t count, double scale, Dtype dtype); // rounded to dtype
int32_t *integers(int64_t count, int32_t below);           // [0, below)
double rounded(Dtype dtype, double value);
/* Rounds a matrix of whole groups and tiles to the values that I8 or I4 keeps of it (base/groups.h). */
void round_to_groups(float *values, Dtype dtype, Shape shape);
