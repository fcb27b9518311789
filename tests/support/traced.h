/* traced: traces a few real steps of the small model of model_open_trainer; and reads cells of a trace's
 * tables. */
#pragma once

#include "kernels/device/device.h"
#include "profile/collect.h"
#include "report/tables.h"

enum { TRACED_STEPS = 3, TRACED_LAYERS = 2, TRACED_BATCH = 2, TRACED_SEQ = 32 };

/* Traces TRACED_STEPS steps, after as many in an earlier window, which is discarded. The caller closes the
 * trace. */
Trace *traced(Device *device, uint32_t fuses, CollectorOptions options);

/* For cmocka_run_group_tests: *state is a naive and a fused trace, (FORM_COUNT), on one thread of the CPU. */
int traced_setup(void **state);
int traced_teardown(void **state);

double steps_ns(const Trace *trace);  // of the host, all steps
double device_ns(const Trace *trace); // of all kernels, copies and fills

/* The cell of a row in column `key`. Fails the test if there is no such column or row. */
double cell(const Table *table, int64_t row, const char *key);
int64_t find_row(const Table *table, const char *name);
double sum_of(const Table *table, const char *key); // of all rows

void expect_about(double value, double expected); // to 1e-9
