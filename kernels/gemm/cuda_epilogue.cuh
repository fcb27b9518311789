/* epilogue: operations on a CUDA product while it is still in registers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Applied to P = alpha * op(A) op(B) + beta * C, or beta * added, while it is still in registers. The bias
 * has C's dtype. GELU is the tanh form; cuBLASLt has no kernel for GELU by erf. */
typedef enum {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,          // C = P + bias
    EPILOGUE_GELU_BIAS,     // C = gelu(P + bias)
    EPILOGUE_GELU_AUX_BIAS, // aux = P + bias, C = gelu(aux)
    EPILOGUE_DGELU,         // C = P * gelu'(aux)
    EPILOGUE_ERF_BIAS,      // these three are the three above with GELU by erf
    EPILOGUE_ERF_AUX_BIAS,
    EPILOGUE_DERF,
    /* For gated layers (linear.h), with gate and up side by side. Only our own kernel has these, without a
     * bias. */
    EPILOGUE_SWIGLU,  // aux = P, C = silu(gate) * up, (m, n/2); aux may be NULL
    EPILOGUE_DSWIGLU, // C = the gradients of gate and up, (m, 2n); P is the gradient of the gated output, aux
                      // holds gate and up
} GemmEpilogueKind;

/* Whether aux is written, and whether it is read. */
static inline bool epilogue_writes_aux(GemmEpilogueKind kind) {
    return kind == EPILOGUE_GELU_AUX_BIAS || kind == EPILOGUE_ERF_AUX_BIAS;
}
static inline bool epilogue_reads_aux(GemmEpilogueKind kind) {
    return kind == EPILOGUE_DGELU || kind == EPILOGUE_DERF;
}

typedef struct {
    GemmEpilogueKind kind;
    const void *bias;  // (n)
    const void *added; // a matrix with C's layout, for beta = 1; NULL: C itself
    void *aux;      // (m, n) of C's dtype, its rows aux_ld apart: written by ..._AUX_BIAS and SWIGLU, read by
    int64_t aux_ld; // DGELU, DERF and, (m, 2n), DSWIGLU
} GemmEpilogue;
