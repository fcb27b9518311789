/* terms: names shared by the runtime, which records its work, and the reader of profiles: form, pass,
 * phase, category, and amount of work. */
#pragma once

#include <sys/cdefs.h>

__BEGIN_DECLS

typedef enum { FORM_NAIVE, FORM_FUSED, FORM_COUNT } Form;
typedef enum { PASS_FORWARD, PASS_BACKWARD, PASS_UPDATE, PASS_COUNT } Pass;
typedef enum { PHASE_READER, PHASE_FORWARD, PHASE_BACKWARD, PHASE_OPTIMIZER, PHASE_OTHER, PHASE_COUNT } Phase;

typedef enum {
    CATEGORY_MATRIX,
    CATEGORY_NORMALIZATION,
    CATEGORY_ACTIVATION,
    CATEGORY_ATTENTION,
    CATEGORY_EMBEDDING,
    CATEGORY_ELEMENTWISE,
    CATEGORY_MEMORY,
    CATEGORY_LOSS,
    CATEGORY_OPTIMIZER,
    CATEGORY_COMMUNICATION,
    CATEGORY_OTHER, // work outside of operations
    CATEGORY_COUNT
} Category;

/* A primitive's arithmetic, if it takes a CPU longer than moving its bytes, such as exponentials. */
typedef enum {
    ARITHMETIC_PLAIN,       // additions and multiplications; a product is known by its category
    ARITHMETIC_EXPONENTIAL, // GELU, tanh, SiLU
    ARITHMETIC_SOFTMAX,     // a part of softmax or of its gradient
    ARITHMETIC_COUNT
} Arithmetic;

/* Collectives. A scatter and a spread only start transfers, and a sum adds data that has arrived: no rank
 * waits for another in these three. */
typedef enum {
    TRAFFIC_NONE,
    TRAFFIC_ALL_REDUCE,
    TRAFFIC_REDUCE_SCATTER,
    TRAFFIC_ALL_GATHER,
    TRAFFIC_SCATTER,
    TRAFFIC_SUM,
    TRAFFIC_SPREAD,
    TRAFFIC_COUNT
} Traffic;

/* The work of a contract's call. `bytes` and `sent` are the least that the contract requires in any form:
 * what a perfect kernel would move. */
typedef struct {
    double flops;   // performed: 2 for a multiply-add; causal attention counts only visible pairs
    double bytes;   // each input read once, each output written once
    double sent;    // bytes that this rank must send to others
    double written; // the part of `bytes` that is written
    double needed;  // the part of `flops` that the model needs: without recomputation and padding
    double flops8;  // the part of `flops` in products of 8-bit numbers
} Work;

void work_add(Work *sum, Work work);
Work work_times(Work work, double factor);

/* NULL after the last. */
const char *form_name(int form);
const char *pass_name(int pass);
const char *phase_name(int phase);
const char *category_name(int category);
const char *arithmetic_name(int arithmetic);

__END_DECLS
