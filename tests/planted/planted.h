/* planted: a CUPTI for tests, without a GPU: it has the profiler's part of CUPTI's interface, and of CUDA
 * what the functions below stand for. Kernels "run" one after another on one stream, each ten nanoseconds
 * long. */
#pragma once

typedef struct Planted {
    void (*launch)(const char *kernel); // cudaLaunchKernel; while capturing it makes a node
    void (*fill)(void);                 // cudaMemsetAsync
    void (*capture_begin)(void);
    void *(*capture_end)(void); // the executable graph, a copy
    void (*graph_launch)(void *graph);
    int (*graph_kernels)(const void *graph);
    void (*graph_free)(void *graph);
    void (*early)(int ns); // kernels begin to wait for the one ahead so long before its end; at first 0
    int (*latency)(void);  // whether it was asked for
    void (*forget)(int n); // drops every n-th kernel's record from now on, and says so; 0: none
    void (*hold)(const char *who);     // somebody of this name, "" for none, has subscribed; NULL: nobody
    void (*pretend)(unsigned version); // what it says that it is; 0: what it was built for
} Planted;

/* In the library: const Planted *planted(void). */
typedef const Planted *(*PlantedFunction)(void);
