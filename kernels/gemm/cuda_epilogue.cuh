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
    EPILOGUE_ERF_BIAS,      // the following three are the previous three with GELU by erf
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
    /* (m, n) of C's dtype. ..._AUX_BIAS and SWIGLU write it. DGELU, DERF and DSWIGLU read it; for DSWIGLU it
     * is (m, 2n). */
    void *aux;
    int64_t aux_ld; // row stride of aux
} GemmEpilogue;
