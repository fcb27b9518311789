/* oneDNN's interface is another in each major version; what both share has the same names. */
#define _GNU_SOURCE
#include "kernels/device/onednn.h"

#include "base/memory.h"
#include "kernels/device/cpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARED_FUNCTIONS(F)                                                                                  \
    F(version)                                                                                               \
    F(engine_create)                                                                                         \
    F(engine_destroy)                                                                                        \
    F(stream_create)                                                                                         \
    F(stream_destroy)                                                                                        \
    F(stream_wait)                                                                                           \
    F(primitive_attr_create)                                                                                 \
    F(primitive_attr_destroy)                                                                                \
    F(primitive_attr_set_post_ops)                                                                           \
    F(post_ops_create)                                                                                       \
    F(post_ops_destroy)                                                                                      \
    F(post_ops_append_sum)                                                                                   \
    F(post_ops_append_eltwise)                                                                               \
    F(post_ops_append_binary)                                                                                \
    F(primitive_desc_query)                                                                                  \
    F(primitive_desc_destroy)                                                                                \
    F(primitive_create)                                                                                      \
    F(primitive_destroy)                                                                                     \
    F(primitive_execute)                                                                                     \
    F(memory_create)                                                                                         \
    F(memory_destroy)                                                                                        \
    F(memory_set_data_handle)

#if DNNL_VERSION_MAJOR < 3
#define FUNCTIONS(F)                                                                                         \
    SHARED_FUNCTIONS(F) F(memory_desc_init_by_strides) F(matmul_desc_init) F(primitive_desc_create)
#else
#define FUNCTIONS(F)                                                                                         \
    SHARED_FUNCTIONS(F)                                                                                      \
    F(memory_desc_create_with_strides) F(memory_desc_destroy) F(matmul_primitive_desc_create)
#endif

struct Onednn {
    char name[32];
    dnnl_engine_t engine;
    dnnl_stream_t stream;
#define DECLARE(function) __typeof__(dnnl_##function) *function;
    FUNCTIONS(DECLARE)
#undef DECLARE
};

enum { ROOM = 64 << 20 }; // bytes: more than it takes for a kernel

/* The operands of a product, in the order of OnednnKernel's memories. */
enum { A, B, C, BIAS, ADDED, OPERANDS };

struct OnednnKernel {
    Onednn *onednn;
    char name[64];
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[OPERANDS];
    dnnl_exec_arg_t arguments[OPERANDS];
    int count;
    bool has_run;
};

/* ---- where memory runs out ---- */

static void run_out(void) {
    fprintf(stderr, "%s: out of host memory for oneDNN\n", program_invocation_short_name);
    fflush(NULL);
    _exit(ERROR_MEMORY); // as in base/memory.c
}

static void on_crash(int number) {
    const char *const parts[] = {
        program_invocation_short_name,
        ": oneDNN crashed, as it does where it gets no memory; FUSEBOX_ONEDNN=none does without it\n"};
    (void)number;
    for (int i = 0; i < 2; i++)
        if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0) break; // nobody is there to be told
    _exit(ERROR_MEMORY);
}

/* It may write through NULL where it gets no memory. So it is seen to before that there is enough; where a single
 * allocation fails nevertheless, the program ends in order. */
static struct sigaction guard_begin(void) {
    struct sigaction ours = {.sa_handler = on_crash}, before;
    if (!cpu_has_room(ROOM)) run_out();
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, &before);
    return before;
}

/* Anything else is its "not this one"; a runtime error is memory that it cannot make executable. */
static bool good(dnnl_status_t status) {
    if (status == dnnl_out_of_memory || status == dnnl_runtime_error) run_out();
    return status == dnnl_success;
}

static void guard_end(const struct sigaction *before) {
    sigaction(SIGSEGV, before, NULL);
}

/* ---- what differs ---- */

#if DNNL_VERSION_MAJOR < 3

typedef dnnl_memory_desc_t Matrix;

static bool matrix_make(const Onednn *o, Matrix *matrix, dnnl_data_type_t type, int64_t rows, int64_t columns,
                        int64_t row, int64_t column) {
    const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
    return good(o->memory_desc_init_by_strides(matrix, 2, sizes, type, strides));
}

static void matrix_free(const Onednn *o, Matrix *matrix) {
    (void)o;
    (void)matrix;
}

static const dnnl_memory_desc_t *matrix_of(const Matrix *matrix) {
    return matrix;
}

static dnnl_status_t append_sum(const Onednn *o, dnnl_post_ops_t steps) {
    return o->post_ops_append_sum(steps, 1);
}

static dnnl_status_t append_eltwise(const Onednn *o, dnnl_post_ops_t steps, dnnl_alg_kind_t kind) {
    return o->post_ops_append_eltwise(steps, 1, kind, 0, 0);
}

static dnnl_status_t describe(const Onednn *o, const Matrix *m, bool bias, dnnl_primitive_attr_t attributes,
                              dnnl_primitive_desc_t *description) {
    dnnl_matmul_desc_t product;
    dnnl_status_t status = o->matmul_desc_init(&product, &m[A], &m[B], bias ? &m[BIAS] : NULL, &m[C]);
    return status ? status : o->primitive_desc_create(description, &product, attributes, o->engine, NULL);
}

#else

typedef dnnl_memory_desc_t Matrix; // NULL: not made

static bool matrix_make(const Onednn *o, Matrix *matrix, dnnl_data_type_t type, int64_t rows, int64_t columns,
                        int64_t row, int64_t column) {
    const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
    return good(o->memory_desc_create_with_strides(matrix, 2, sizes, type, strides));
}

static void matrix_free(const Onednn *o, Matrix *matrix) {
    if (*matrix) (void)o->memory_desc_destroy(*matrix);
}

static const_dnnl_memory_desc_t matrix_of(const Matrix *matrix) {
    return *matrix;
}

static dnnl_status_t append_sum(const Onednn *o, dnnl_post_ops_t steps) {
    return o->post_ops_append_sum(steps, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_eltwise(const Onednn *o, dnnl_post_ops_t steps, dnnl_alg_kind_t kind) {
    return o->post_ops_append_eltwise(steps, kind, 0, 0);
}

static dnnl_status_t describe(const Onednn *o, const Matrix *m, bool bias, dnnl_primitive_attr_t attributes,
                              dnnl_primitive_desc_t *description) {
    return o->matmul_primitive_desc_create(description, o->engine, m[A], m[B], bias ? m[BIAS] : NULL, m[C],
                                           attributes);
}

#endif

/* ---- a kernel ---- */

static dnnl_data_type_t type_of(int32_t dtype) {
    return dtype == BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_alg_kind_t kind_of(int32_t finish) {
    static const dnnl_alg_kind_t kinds[] = {[FINISH_GELU_TANH] = dnnl_eltwise_gelu_tanh,
                                            [FINISH_GELU] = dnnl_eltwise_gelu_erf,
                                            [FINISH_RELU] = dnnl_eltwise_relu,
                                            [FINISH_TANH] = dnnl_eltwise_tanh};
    return kinds[finish];
}

static bool matrices_make(const Onednn *o, const OnednnProduct *p, Matrix *matrices) {
    dnnl_data_type_t type = type_of(p->dtype), c_type = type_of(p->c_dtype);
    return matrix_make(o, &matrices[A], type, p->m, p->k, p->a_row, p->a_column) &&
           matrix_make(o, &matrices[B], type, p->k, p->n, p->b_row, p->b_column) &&
           matrix_make(o, &matrices[C], c_type, p->m, p->n, p->c_row, 1) &&
           matrix_make(o, &matrices[BIAS], type, 1, p->n, p->n, 1) &&
           matrix_make(o, &matrices[ADDED], c_type, p->m, p->n, p->c_row, 1);
}

/* The steps after the product, in order: added, then the finish. */
static dnnl_status_t append_steps(const Onednn *o, const OnednnProduct *p, const Matrix *matrices,
                                  dnnl_post_ops_t steps) {
    dnnl_status_t status = dnnl_success;
    if (p->accumulates) status = append_sum(o, steps);
    if (!status && p->added)
        status = o->post_ops_append_binary(steps, dnnl_binary_add, matrix_of(&matrices[ADDED]));
    if (!status && p->finish != FINISH_PLAIN) status = append_eltwise(o, steps, kind_of(p->finish));
    return status;
}

static bool describe_with_steps(const Onednn *o, const OnednnProduct *p, const Matrix *matrices,
                                dnnl_primitive_desc_t *description) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t steps = NULL;
    dnnl_status_t status = o->primitive_attr_create(&attributes);
    if (!status) status = o->post_ops_create(&steps);
    if (!status) status = append_steps(o, p, matrices, steps);
    if (!status) status = o->primitive_attr_set_post_ops(attributes, steps);
    if (!status) status = describe(o, matrices, p->bias, attributes, description);
    if (steps) (void)o->post_ops_destroy(steps);
    if (attributes) (void)o->primitive_attr_destroy(attributes);
    return good(status);
}

static bool argument_add(OnednnKernel *kernel, const Matrix *matrices, int operand, int argument) {
    const Onednn *o = kernel->onednn;
    kernel->count++;
    kernel->arguments[kernel->count - 1].arg = argument;
    dnnl_status_t status = o->memory_create(&kernel->memories[operand], matrix_of(&matrices[operand]),
                                            o->engine, DNNL_MEMORY_NONE);
    kernel->arguments[kernel->count - 1].memory = kernel->memories[operand];
    return good(status);
}

static bool arguments_make(OnednnKernel *kernel, const OnednnProduct *p, const Matrix *matrices) {
    return argument_add(kernel, matrices, A, DNNL_ARG_SRC) &&
           argument_add(kernel, matrices, B, DNNL_ARG_WEIGHTS) &&
           argument_add(kernel, matrices, C, DNNL_ARG_DST) &&
           (!p->bias || argument_add(kernel, matrices, BIAS, DNNL_ARG_BIAS)) &&
           (!p->added ||
            argument_add(kernel, matrices, ADDED, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1));
}

void onednn_kernel_free(OnednnKernel *kernel) {
    if (!kernel) return;
    for (int i = 0; i < OPERANDS; i++)
        if (kernel->memories[i]) (void)kernel->onednn->memory_destroy(kernel->memories[i]);
    if (kernel->primitive) (void)kernel->onednn->primitive_destroy(kernel->primitive);
    memory_free(kernel);
}

/* Its loops in plain C++ are hundreds of times slower than anybody's product. */
static bool worth_calling(const char *name) {
    return strncmp(name, "ref", 3) != 0;
}

static OnednnKernel *make_kernel(Onednn *o, const OnednnProduct *p) {
    OnednnKernel *kernel = memory_allocate(sizeof *kernel);
    Matrix matrices[OPERANDS] = {0};
    dnnl_primitive_desc_t description = NULL;
    const char *name;
    kernel->onednn = o;
    bool made = matrices_make(o, p, matrices) && describe_with_steps(o, p, matrices, &description) &&
                good(o->primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name)) &&
                worth_calling(name) && good(o->primitive_create(&kernel->primitive, description)) &&
                arguments_make(kernel, p, matrices);
    if (made) snprintf(kernel->name, sizeof kernel->name, "%s", name);
    if (description) (void)o->primitive_desc_destroy(description);
    for (int i = 0; i < OPERANDS; i++) matrix_free(o, &matrices[i]);
    if (made) return kernel;
    onednn_kernel_free(kernel);
    return NULL;
}

OnednnKernel *onednn_kernel(Onednn *o, const OnednnProduct *p) {
    const struct sigaction before = guard_begin();
    OnednnKernel *kernel = make_kernel(o, p);
    guard_end(&before);
    return kernel;
}

const char *onednn_kernel_name(const OnednnKernel *kernel) {
    return kernel->name;
}

static dnnl_status_t execute(const OnednnKernel *kernel) {
    const Onednn *o = kernel->onednn;
    dnnl_status_t status =
        o->primitive_execute(kernel->primitive, o->stream, kernel->count, kernel->arguments);
    return status ? status : o->stream_wait(o->stream);
}

/* Code that kernels share, as that which sets up AMX's tiles, is generated when the first of them runs, and is
 * called even where there was no memory for it. */
static dnnl_status_t execute_first(OnednnKernel *kernel) {
    const struct sigaction before = guard_begin();
    dnnl_status_t status = execute(kernel);
    guard_end(&before);
    kernel->has_run = true;
    return status;
}

Status onednn_run(OnednnKernel *kernel, const OnednnOperands *operands) {
    const Onednn *o = kernel->onednn;
    const void *handles[OPERANDS] = {[A] = operands->a,
                                     [B] = operands->b,
                                     [C] = operands->c,
                                     [BIAS] = operands->bias,
                                     [ADDED] = operands->added};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && !status; i++)
        if (kernel->memories[i]) status = o->memory_set_data_handle(kernel->memories[i], (void *)handles[i]);
    if (!status) status = kernel->has_run ? execute(kernel) : execute_first(kernel);
    if (status)
        return fail(ERROR_INTERNAL, "%s: its product %s failed with status %d", o->name, kernel->name,
                    status);
    return OK;
}

/* ---- the library ---- */

/* FUSEBOX_ONEDNN, the file alone if it is set; else the system's. It stays loaded. */
static void *open_library(void) {
    const char *named = getenv("FUSEBOX_ONEDNN");
    char name[32];
    snprintf(name, sizeof name, "libdnnl.so.%d", DNNL_VERSION_MAJOR);
    return dlopen(named && *named ? named : name, RTLD_NOW | RTLD_LOCAL);
}

static bool find_functions(Onednn *o, void *library) {
#define FIND(function)                                                                                       \
    *(void **)&o->function = dlsym(library, "dnnl_" #function);                                              \
    if (!o->function) return false;
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

void onednn_close(Onednn *o) {
    if (!o) return;
    if (o->stream) (void)o->stream_destroy(o->stream);
    if (o->engine) (void)o->engine_destroy(o->engine);
    memory_free(o);
}

/* std::set_new_handler: an exception that nobody catches would abort the program. */
static void end_by_shortage(void) {
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL), (*(*set_handler)(void (*)(void)))(void);
    *(void **)&set_handler = library ? dlsym(library, "_ZSt15set_new_handlerPFvvE") : NULL;
    if (set_handler) (void)set_handler(run_out);
}

static bool start(Onednn *o) {
    const struct sigaction before = guard_begin();
    bool started = good(o->engine_create(&o->engine, dnnl_cpu, 0)) &&
                   good(o->stream_create(&o->stream, o->engine, dnnl_stream_default_flags));
    guard_end(&before);
    return started;
}

Onednn *onednn_open(void) {
    end_by_shortage();
    void *library = open_library();
    Onednn *o = memory_allocate(sizeof *o);
    if (library && find_functions(o, library) && o->version()->major == DNNL_VERSION_MAJOR && start(o)) {
        const dnnl_version_t *version = o->version();
        snprintf(o->name, sizeof o->name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
        return o;
    }
    onednn_close(o);
    return NULL;
}

const char *onednn_name(const Onednn *o) {
    return o->name;
}
