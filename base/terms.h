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

/* A primitive's arithmetic, where it takes a processor longer than memory does: exponentials and the like. */
typedef enum {
    ARITHMETIC_PLAIN,       // additions and multiplications: a product's category says what it is
    ARITHMETIC_EXPONENTIAL, // GELU, tanh, SiLU
    ARITHMETIC_SOFTMAX,     // a part of softmax or of its gradient
    ARITHMETIC_COUNT
} Arithmetic;

/* What ranks do together. A scatter and a spread only begin, and a sum adds what has come: no rank waits in those
 * for another. */
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

/* The work of a contract's call. Bytes and what is sent are the least that the contract demands, whatever the
 * form: what a perfect kernel would move. */
typedef struct {
    double flops;   // done: 2 for a multiply-add; causal attention counts its triangle
    double bytes;   // each input read once, each output written once
    double sent;    // that must leave this rank for the others
    double written; // of `bytes`
    double needed;  // of `flops` by the model: nothing computed a second time, nor for padding
} Work;

void work_add(Work *sum, Work work);
Work work_times(Work work, double factor);

const char *form_name(Form form);
const char *pass_name(Pass pass);
const char *phase_name(Phase phase);
const char *category_name(Category category);
const char *arithmetic_name(Arithmetic arithmetic);

__END_DECLS
