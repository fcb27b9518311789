/* epilogue: what is done to a product on CUDA while it is still in registers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What is done to P = alpha * op(A) op(B) + beta * C, or beta * added, while it is still in registers.
 * The bias has C's dtype. GELU is the tanh form. */
typedef enum {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,          // C = P + bias
    EPILOGUE_GELU_BIAS,     // C = gelu(P + bias)
    EPILOGUE_GELU_AUX_BIAS, // aux = P + bias, C = gelu(aux)
    EPILOGUE_DGELU,         // C = P * gelu'(aux)
    /* Of a gated layer (linear.h): two halves side by side, the gate and up. Ours alone, without a bias. */
    EPILOGUE_SWIGLU, // aux = P, C = silu(gate) * up, (m, n/2); aux may be NULL
    EPILOGUE_DSWIGLU, // C = the gradients of gate and up, (m, 2n), where P is that of what they make, aux theirs
} GemmEpilogueKind;

typedef struct {
    GemmEpilogueKind kind;
    const void *bias;  // (n)
    const void *added; // a matrix that lies as C does, for beta = 1; NULL: C itself
    void *aux;      // (m, n) of C's dtype, its rows aux_ld apart: written by GELU_AUX_BIAS and SWIGLU, read
    int64_t aux_ld; // by DGELU and, (m, 2n), by DSWIGLU
} GemmEpilogue;

static inline bool epilogue_gated(GemmEpilogueKind kind) {
    return kind == EPILOGUE_SWIGLU || kind == EPILOGUE_DSWIGLU;
}
