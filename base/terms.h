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

/* Collective operations. SCATTER and SPREAD only start copies, and SUM adds what has arrived: no rank
 * waits for another in them. */
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

/* The work that a contract demands, whatever the form: a lower bound for every kernel. */
typedef struct {
    double flops; // 2 for a multiply-add; causal attention counts its triangle
    double bytes; // each input read once, each output written once
    double sent;  // bytes that must be sent to other ranks
} Work;

const char *form_name(Form form);
const char *pass_name(Pass pass);
const char *phase_name(Phase phase);
const char *category_name(Category category);

__END_DECLS
