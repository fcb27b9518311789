/* Adapts the two major versions of oneDNN's interface; functions present in both have the same names here. */
#include "kernels/device/onednn.h"

#include "base/memory.h"
#include "kernels/device/cpu.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Onednn {
    char name[32];
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

enum { ROOM = 64 << 20 }; // bytes, more than a kernel needs

/* Operands of a product, in the order of OnednnKernel's memories. */
enum { A, B, C, BIAS, ADDED, OPERANDS };

struct OnednnKernel {
    const Onednn *onednn;
    char name[64];
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[OPERANDS];
    dnnl_exec_arg_t arguments[OPERANDS];
    int count;
    bool has_run;
};

#define DNNL_TRY(call)                                                                                       \
    do {                                                                                                     \
        dnnl_status_t try_status_ = (call);                                                                  \
        if (try_status_) return try_status_;                                                                 \
    } while (0)

/* ---- where memory runs out ---- */

/* oneDNN may throw an uncaught exception or write through NULL when an allocation fails. So memory is
 * checked first. */
static Status check_memory(void) {
    if (cpu_has_room(ROOM)) return OK;
    return fail(ERROR_MEMORY, "no memory for oneDNN: it takes up to %d MiB for a product's code", ROOM >> 20);
}

/* A runtime error means that memory could not be made executable. */
static bool is_shortage(dnnl_status_t status) {
    return status == dnnl_out_of_memory || status == dnnl_runtime_error;
}

/* ---- differences between the versions ---- */

#if DNNL_VERSION_MAJOR < 3

typedef dnnl_memory_desc_t Matrix;

static dnnl_status_t matrix_make(Matrix *matrix, dnnl_data_type_t type, int64_t rows, int64_t columns,
                                 int64_t row, int64_t column) {
    const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
    return dnnl_memory_desc_init_by_strides(matrix, 2, sizes, type, strides);
}

static void matrix_free(Matrix *matrix) {
    (void)matrix;
}

static const dnnl_memory_desc_t *matrix_of(const Matrix *matrix) {
    return matrix;
}

static dnnl_status_t append_sum(dnnl_post_ops_t steps) {
    return dnnl_post_ops_append_sum(steps, 1);
}

static dnnl_status_t append_eltwise(dnnl_post_ops_t steps, dnnl_alg_kind_t kind) {
    return dnnl_post_ops_append_eltwise(steps, 1, kind, 0, 0);
}

static dnnl_status_t describe(const Onednn *o, const Matrix *m, bool bias, dnnl_primitive_attr_t attributes,
                              dnnl_primitive_desc_t *description) {
    dnnl_matmul_desc_t product;
    DNNL_TRY(dnnl_matmul_desc_init(&product, &m[A], &m[B], bias ? &m[BIAS] : NULL, &m[C]));
    return dnnl_primitive_desc_create(description, &product, attributes, o->engine, NULL);
}

#else

typedef dnnl_memory_desc_t Matrix; // NULL: absent

static dnnl_status_t matrix_make(Matrix *matrix, dnnl_data_type_t type, int64_t rows, int64_t columns,
                                 int64_t row, int64_t column) {
    const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
    return dnnl_memory_desc_create_with_strides(matrix, 2, sizes, type, strides);
}

static void matrix_free(Matrix *matrix) {
    if (*matrix) (void)dnnl_memory_desc_destroy(*matrix);
}

static const_dnnl_memory_desc_t matrix_of(const Matrix *matrix) {
    return *matrix;
}

static dnnl_status_t append_sum(dnnl_post_ops_t steps) {
    return dnnl_post_ops_append_sum(steps, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_eltwise(dnnl_post_ops_t steps, dnnl_alg_kind_t kind) {
    return dnnl_post_ops_append_eltwise(steps, kind, 0, 0);
}

static dnnl_status_t describe(const Onednn *o, const Matrix *m, bool bias, dnnl_primitive_attr_t attributes,
                              dnnl_primitive_desc_t *description) {
    return dnnl_matmul_primitive_desc_create(description, o->engine, m[A], m[B], bias ? m[BIAS] : NULL, m[C],
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

static dnnl_status_t matrices_make(const OnednnProduct *p, Matrix *matrices) {
    dnnl_data_type_t type = type_of(p->dtype), c_type = type_of(p->c_dtype);
    DNNL_TRY(matrix_make(&matrices[A], type, p->m, p->k, p->a_row, p->a_column));
    DNNL_TRY(matrix_make(&matrices[B], type, p->k, p->n, p->b_row, p->b_column));
    DNNL_TRY(matrix_make(&matrices[C], c_type, p->m, p->n, p->c_row, 1));
    DNNL_TRY(matrix_make(&matrices[BIAS], type, 1, p->n, p->n, 1));
    return matrix_make(&matrices[ADDED], c_type, p->m, p->n, p->c_row, 1);
}

/* The operations after the product, in order: added, then the finish. */
static dnnl_status_t append_steps(const OnednnProduct *p, const Matrix *matrices, dnnl_post_ops_t steps) {
    if (p->accumulates) DNNL_TRY(append_sum(steps));
    if (p->added) DNNL_TRY(dnnl_post_ops_append_binary(steps, dnnl_binary_add, matrix_of(&matrices[ADDED])));
    if (p->finish != FINISH_PLAIN) DNNL_TRY(append_eltwise(steps, kind_of(p->finish)));
    return dnnl_success;
}

static void post_ops_close(dnnl_post_ops_t *steps) {
    if (*steps) (void)dnnl_post_ops_destroy(*steps);
}

static void attributes_close(dnnl_primitive_attr_t *attributes) {
    if (*attributes) (void)dnnl_primitive_attr_destroy(*attributes);
}

static dnnl_status_t describe_with_steps(const Onednn *o, const OnednnProduct *p, const Matrix *matrices,
                                         dnnl_primitive_desc_t *description) {
    CLOSED_BY(attributes_close) dnnl_primitive_attr_t attributes = NULL;
    CLOSED_BY(post_ops_close) dnnl_post_ops_t steps = NULL;
    DNNL_TRY(dnnl_primitive_attr_create(&attributes));
    DNNL_TRY(dnnl_post_ops_create(&steps));
    DNNL_TRY(append_steps(p, matrices, steps));
    DNNL_TRY(dnnl_primitive_attr_set_post_ops(attributes, steps));
    return describe(o, matrices, p->bias, attributes, description);
}

static dnnl_status_t argument_add(OnednnKernel *kernel, const Matrix *matrices, int operand, int argument) {
    dnnl_memory_t *memory = &kernel->memories[operand];
    DNNL_TRY(
        dnnl_memory_create(memory, matrix_of(&matrices[operand]), kernel->onednn->engine, DNNL_MEMORY_NONE));
    kernel->arguments[kernel->count++] = (dnnl_exec_arg_t){.arg = argument, .memory = *memory};
    return dnnl_success;
}

static dnnl_status_t arguments_make(OnednnKernel *kernel, const OnednnProduct *p, const Matrix *matrices) {
    DNNL_TRY(argument_add(kernel, matrices, A, DNNL_ARG_SRC));
    DNNL_TRY(argument_add(kernel, matrices, B, DNNL_ARG_WEIGHTS));
    DNNL_TRY(argument_add(kernel, matrices, C, DNNL_ARG_DST));
    if (p->bias) DNNL_TRY(argument_add(kernel, matrices, BIAS, DNNL_ARG_BIAS));
    if (!p->added) return dnnl_success;
    return argument_add(kernel, matrices, ADDED, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1);
}

void onednn_kernel_free(OnednnKernel *kernel) {
    if (!kernel) return;
    for (int i = 0; i < OPERANDS; i++)
        if (kernel->memories[i]) (void)dnnl_memory_destroy(kernel->memories[i]);
    if (kernel->primitive) (void)dnnl_primitive_destroy(kernel->primitive);
    memory_free(kernel);
}

/* oneDNN's reference loops are hundreds of times slower than other libraries. */
static bool worth_calling(const char *name) {
    return strncmp(name, "ref", 3) != 0;
}

static void description_close(dnnl_primitive_desc_t *description) {
    if (*description) (void)dnnl_primitive_desc_destroy(*description);
}

static dnnl_status_t make_kernel(const OnednnProduct *p, Matrix *matrices, OnednnKernel *kernel) {
    CLOSED_BY(description_close) dnnl_primitive_desc_t description = NULL;
    const char *name;
    DNNL_TRY(matrices_make(p, matrices));
    DNNL_TRY(describe_with_steps(kernel->onednn, p, matrices, &description));
    DNNL_TRY(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name));
    if (!worth_calling(name)) return dnnl_unimplemented;
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    /* oneDNN has described the kernel, so only memory can be missing. */
    if (dnnl_primitive_create(&kernel->primitive, description)) return dnnl_out_of_memory;
    return arguments_make(kernel, p, matrices);
}

Status onednn_kernel(const Onednn *o, const OnednnProduct *p, OnednnKernel **out) {
    Matrix matrices[OPERANDS] = {0};
    *out = NULL;
    TRY(check_memory());
    OnednnKernel *kernel = memory_allocate(sizeof *kernel);
    kernel->onednn = o;
    dnnl_status_t status = make_kernel(p, matrices, kernel);
    for (int i = 0; i < OPERANDS; i++) matrix_free(&matrices[i]);
    if (status) onednn_kernel_free(kernel);
    if (is_shortage(status)) return fail(ERROR_MEMORY, "%s has no memory for a product's code", o->name);
    if (!status) *out = kernel; // otherwise oneDNN has no fast kernel
    return OK;
}

const char *onednn_kernel_name(const OnednnKernel *kernel) {
    return kernel->name;
}

static dnnl_status_t execute(const OnednnKernel *kernel, const OnednnOperands *operands) {
    const Onednn *o = kernel->onednn;
    const void *handles[OPERANDS] = {[A] = operands->a,
                                     [B] = operands->b,
                                     [C] = operands->c,
                                     [BIAS] = operands->bias,
                                     [ADDED] = operands->added};
    for (int i = 0; i < OPERANDS; i++)
        if (kernel->memories[i])
            DNNL_TRY(dnnl_memory_set_data_handle(kernel->memories[i], (void *)handles[i]));
    DNNL_TRY(dnnl_primitive_execute(kernel->primitive, o->stream, kernel->count, kernel->arguments));
    return dnnl_stream_wait(o->stream);
}

/* Code shared by kernels, such as AMX's configuration, is generated when the first kernel runs. If its
 * allocation fails, oneDNN reports "unimplemented", although it created the kernel. */
Status onednn_run(OnednnKernel *kernel, const OnednnOperands *operands) {
    const char *library = kernel->onednn->name;
    if (!kernel->has_run) TRY(check_memory());
    dnnl_status_t status = execute(kernel, operands);
    if (is_shortage(status) || (status == dnnl_unimplemented && !kernel->has_run))
        return fail(ERROR_MEMORY, "%s has no memory for its product %s", library, kernel->name);
    if (status)
        return fail(ERROR_INTERNAL, "%s: its product %s failed with status %d", library, kernel->name,
                    status);
    kernel->has_run = true;
    return OK;
}

/* ---- the library ---- */

void onednn_close(Onednn *o) {
    if (!o) return;
    if (o->stream) (void)dnnl_stream_destroy(o->stream);
    if (o->engine) (void)dnnl_engine_destroy(o->engine);
    memory_free(o);
}

static dnnl_status_t start(Onednn *o) {
    DNNL_TRY(dnnl_engine_create(&o->engine, dnnl_cpu, 0));
    return dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags);
}

Status onednn_open(Onednn **out) {
    const char *setting = getenv("FUSEBOX_ONEDNN");
    *out = NULL;
    if (setting && strcmp(setting, "none") == 0) return OK;
    if (setting && *setting)
        return fail(ERROR_USAGE,
                    "FUSEBOX_ONEDNN=%s: it can be none; LD_LIBRARY_PATH leads to another libdnnl", setting);
    TRY(check_memory());
    Onednn *o = memory_allocate(sizeof *o);
    const dnnl_version_t *version = dnnl_version();
    snprintf(o->name, sizeof o->name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    dnnl_status_t status = start(o);
    if (!status) {
        *out = o;
        return OK;
    }
    onednn_close(o);
    return fail(is_shortage(status) ? ERROR_MEMORY : ERROR_INTERNAL, "oneDNN cannot be started: status %d",
                status);
}

const char *onednn_name(const Onednn *o) {
    return o->name;
}
