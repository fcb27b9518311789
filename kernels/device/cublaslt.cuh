/* cublaslt: the functions of cuBLASLt that are called here. The library is loaded when the first GPU is opened, since
 * loading it takes a tenth of a second, which a run on the CPU need not wait for. */
#pragma once

#include "base/status.h"

#include <cublasLt.h>

/* name: a function of the library without its prefix, cublasLt. */
#define CUBLASLT_FUNCTIONS(F)                                                                                \
    F(Create)                                                                                                \
    F(Destroy)                                                                                               \
    F(GetStatusString)                                                                                       \
    F(GetVersion)                                                                                            \
    F(Matmul)                                                                                                \
    F(MatmulAlgoGetHeuristic)                                                                                \
    F(MatmulDescCreate)                                                                                      \
    F(MatmulDescDestroy)                                                                                     \
    F(MatmulDescSetAttribute)                                                                                \
    F(MatmulPreferenceCreate)                                                                                \
    F(MatmulPreferenceDestroy)                                                                               \
    F(MatmulPreferenceSetAttribute)                                                                          \
    F(MatrixLayoutCreate)                                                                                    \
    F(MatrixLayoutDestroy)                                                                                   \
    F(MatrixLayoutSetAttribute)

typedef struct {
#define DECLARE(name) decltype(&cublasLt##name) name;
    CUBLASLT_FUNCTIONS(DECLARE)
#undef DECLARE
} CublasLt;

/* Loads the library, which stays loaded. ERROR_DEVICE if it or a function is missing. */
CHECKED Status cublaslt_open(CublasLt *library);

/* OK; ERROR_MEMORY if memory has run out; else ERROR_DEVICE. `what` is the call's text. */
CHECKED Status cublaslt_status(const CublasLt *library, cublasStatus_t error, const char *what);

#define CUBLAS_TRY(library, call) TRY(cublaslt_status(library, (library)->call, "cublasLt" #call))
