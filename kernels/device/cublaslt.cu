#include "kernels/device/cublaslt.cuh"

#include <dlfcn.h>

#define TEXT_OF(value) #value
#define TEXT(value)    TEXT_OF(value)

Status cublaslt_open(CublasLt *library) {
    static const char *const file = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);
    void *loaded = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!loaded) return fail(ERROR_DEVICE, "cuBLASLt of the CUDA Toolkit could not be loaded: %s", dlerror());
#define FIND(name)                                                                                           \
    library->name = (decltype(library->name))dlsym(loaded, "cublasLt" #name);                                \
    if (!library->name) return fail(ERROR_DEVICE, "%s has no function cublasLt" #name, file);
    CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    return OK;
}

Status cublaslt_status(const CublasLt *library, cublasStatus_t error, const char *what) {
    if (error == CUBLAS_STATUS_SUCCESS) return OK;
    const ErrorCode code = error == CUBLAS_STATUS_ALLOC_FAILED ? ERROR_MEMORY : ERROR_DEVICE;
    return fail(code, "%s: %s", what, library->GetStatusString(error));
}
