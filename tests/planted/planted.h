/* planted: a fake CUPTI for tests without a GPU: the profiler's part of CUPTI's interface, and the functions
 * below in place of CUDA's. Kernels "run" one after another on one stream, for ten nanoseconds each. */
#pragma once

typedef struct Planted {
    void (*launch)(const char *kernel); // cudaLaunchKernel; during a capture it creates a node
    void (*fill)(void);                 // cudaMemsetAsync
    void (*capture_begin)(void);
    void *(*capture_end)(void); // the executable graph, a copy
    void (*graph_launch)(void *graph);
    int (*graph_kernels)(const void *graph);
    void (*graph_free)(void *graph);
    void (*early)(int ns); // kernels begin this long before the previous one ends, and wait; initially 0
    int (*latency)(void);  // whether latencies were requested
    void (*forget)(int n); // drops every n-th kernel's record from now on, and reports it; 0: none
    void (*hold)(const char *who);     // another subscriber with this name exists, "" without a name; NULL:
                                       // none
    void (*pretend)(unsigned version); // the version to report; 0: the one it was built for
} Planted;

/* In the library: const Planted *planted(void). */
typedef const Planted *(*PlantedFunction)(void);
