#include "profile/category.h"

#include <string.h>

typedef struct {
    Operation operation;
    const char *name;
    Category category;
    const char *torch; // PyTorch's name for it; NULL: it has none
    bool joins;        // what ran in the same operation before it under that name, if anything did
} Primitive;

/* Several primitives of ours are one operation of PyTorch's: their rows add up. */
static const Primitive primitives[] = {
    {OP_EMBED, "token gather", CATEGORY_EMBEDDING, "aten::embedding", false},
    {OP_EMBED, "position gather", CATEGORY_EMBEDDING, "aten::embedding", false},
    {OP_EMBED, "segment gather", CATEGORY_EMBEDDING, "aten::embedding", false},
    {OP_EMBED, "add", CATEGORY_EMBEDDING, "aten::add", false},
    {OP_EMBED, "scale", CATEGORY_EMBEDDING, "aten::mul", false},
    {OP_EMBED, "token scatter add", CATEGORY_EMBEDDING, "aten::embedding_dense_backward", true},
    {OP_EMBED, "token sort", CATEGORY_EMBEDDING, "aten::embedding_dense_backward", false},
    {OP_EMBED, "position sum", CATEGORY_EMBEDDING, "aten::embedding_dense_backward", false},
    {OP_EMBED, "segment sum", CATEGORY_EMBEDDING, "aten::embedding_dense_backward", false},
    {OP_EMBED, "gather and add", CATEGORY_EMBEDDING, NULL, false},
    {OP_EMBED, "scatter add", CATEGORY_EMBEDDING, NULL, false},
    {OP_PATCH, "normalize", CATEGORY_ELEMENTWISE, "aten::div", false},
    {OP_PATCH, "unfold", CATEGORY_MEMORY, "aten::im2col", false},
    {OP_PATCH, "product", CATEGORY_MATRIX, "aten::addmm", false},
    {OP_PATCH, "bias add", CATEGORY_ELEMENTWISE, "aten::addmm", true},
    {OP_PATCH, "class token", CATEGORY_MEMORY, "aten::cat", false},
    {OP_PATCH, "position add", CATEGORY_EMBEDDING, "aten::add", false},
    {OP_PATCH, "unfold, positions", CATEGORY_EMBEDDING, NULL, false},
    {OP_PATCH, "weight gradient", CATEGORY_MATRIX, "aten::mm", false},
    {OP_PATCH, "bias gradient", CATEGORY_ELEMENTWISE, "aten::sum", false},
    {OP_PATCH, "token sum", CATEGORY_ELEMENTWISE, "aten::sum", false},
    {OP_PATCH, "position sum", CATEGORY_ELEMENTWISE, "aten::sum", false},
    {OP_PATCH, "bias, token and position gradients", CATEGORY_EMBEDDING, NULL, false},
    {OP_NORM, "residual add", CATEGORY_ELEMENTWISE, "aten::add", false},
    {OP_NORM, "column sums", CATEGORY_NORMALIZATION, "aten::sum",
     false}, // a bias gradient of the linear layer ahead
    {OP_NORM, "dropout", CATEGORY_ELEMENTWISE, "aten::native_dropout", false},
    {OP_NORM, "dropout gradient", CATEGORY_ELEMENTWISE, "aten::native_dropout_backward", false},
    {OP_NORM, "stochastic depth", CATEGORY_ELEMENTWISE, "aten::mul", false},
    {OP_NORM, "add, statistics, output", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "gradients", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "mean", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "variance", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "normalize", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "mean square", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "copy", CATEGORY_MEMORY, "aten::copy_", false},
    {OP_NORM, "scale and shift", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "multiply", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "weight gradient", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "bias gradient", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "scale", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "input gradient", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "norm", CATEGORY_NORMALIZATION, NULL, false},
    {OP_NORM, "norm gradient", CATEGORY_NORMALIZATION, NULL, false},
    {OP_DROPOUT, "dropout", CATEGORY_ELEMENTWISE, "aten::native_dropout", false},
    {OP_DROPOUT, "dropout gradient", CATEGORY_ELEMENTWISE, "aten::native_dropout_backward", false},
    {OP_LINEAR, "residual add", CATEGORY_ELEMENTWISE, "aten::add", false},
    {OP_LINEAR, "product", CATEGORY_MATRIX, "aten::addmm", false},
    {OP_LINEAR, "bias add", CATEGORY_ELEMENTWISE, "aten::addmm", true},
    {OP_LINEAR, "input gradient", CATEGORY_MATRIX, "aten::mm", false},
    {OP_LINEAR, "weight gradient", CATEGORY_MATRIX, "aten::mm", false},
    {OP_LINEAR, "bias gradient", CATEGORY_ELEMENTWISE, "aten::sum", false},
    {OP_LINEAR, "GELU", CATEGORY_ACTIVATION, "aten::gelu", false},
    {OP_LINEAR, "GELU gradient", CATEGORY_ACTIVATION, "aten::gelu_backward", false},
    {OP_LINEAR, "ReLU", CATEGORY_ACTIVATION, "aten::relu", false},
    {OP_LINEAR, "ReLU gradient", CATEGORY_ACTIVATION, "aten::threshold_backward", false},
    {OP_LINEAR, "tanh", CATEGORY_ACTIVATION, "aten::tanh", false},
    {OP_LINEAR, "tanh gradient", CATEGORY_ACTIVATION, "aten::tanh_backward", false},
    {OP_LINEAR, "SiLU", CATEGORY_ACTIVATION, "aten::silu", false},
    {OP_LINEAR, "gate multiply", CATEGORY_ACTIVATION, "aten::mul", false},
    {OP_LINEAR, "up gradient", CATEGORY_ACTIVATION, "aten::mul", false},
    {OP_LINEAR, "SiLU gradient", CATEGORY_ACTIVATION, "aten::silu_backward", false},
    {OP_LINEAR, "SwiGLU", CATEGORY_ACTIVATION, NULL, false},
    {OP_LINEAR, "SwiGLU gradient", CATEGORY_ACTIVATION, NULL, false},
    {OP_LINEAR, "product, bias, activation", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "bias, residual add", CATEGORY_ELEMENTWISE, NULL, false},
    {OP_LINEAR, "bias", CATEGORY_ELEMENTWISE, NULL, false},
    {OP_LINEAR, "activation and bias gradient", CATEGORY_ACTIVATION, NULL, false},
    {OP_LINEAR, "few rows", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "product, residual add", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "product, SwiGLU", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "product, bias, GELU", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "product, bias, residual add", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "product, bias", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "bias, activation", CATEGORY_ACTIVATION, NULL, false},
    {OP_LINEAR, "input gradient, GELU gradient", CATEGORY_MATRIX, NULL, false},
    {OP_LINEAR, "input gradient, SwiGLU gradient", CATEGORY_MATRIX, NULL, false},
    {OP_ATTENTION, "split heads", CATEGORY_MEMORY, "aten::copy_", false},
    {OP_ATTENTION, "merge heads", CATEGORY_MEMORY, "aten::copy_", false},
    {OP_ATTENTION, "cache append", CATEGORY_MEMORY, "aten::copy_", false},
    {OP_ATTENTION, "rotary positions", CATEGORY_ELEMENTWISE, NULL, false},
    {OP_ATTENTION, "rotary gradient", CATEGORY_ELEMENTWISE, NULL, false},
    {OP_ATTENTION, "score product", CATEGORY_MATRIX, "aten::bmm", false},
    {OP_ATTENTION, "value product", CATEGORY_MATRIX, "aten::bmm", false},
    {OP_ATTENTION, "query gradient", CATEGORY_MATRIX, "aten::bmm", false},
    {OP_ATTENTION, "key gradient", CATEGORY_MATRIX, "aten::bmm", false},
    {OP_ATTENTION, "value gradient", CATEGORY_MATRIX, "aten::bmm", false},
    {OP_ATTENTION, "probability gradient", CATEGORY_MATRIX, "aten::bmm", false},
    {OP_ATTENTION, "scale", CATEGORY_ATTENTION, "aten::mul", false},
    {OP_ATTENTION, "mask", CATEGORY_ATTENTION, "aten::masked_fill", false},
    {OP_ATTENTION, "dropout", CATEGORY_ELEMENTWISE, "aten::native_dropout", false},
    {OP_ATTENTION, "dropout gradient", CATEGORY_ELEMENTWISE, "aten::native_dropout_backward", false},
    {OP_ATTENTION, "softmax max", CATEGORY_ATTENTION, "aten::_softmax", true},
    {OP_ATTENTION, "softmax exp", CATEGORY_ATTENTION, "aten::_softmax", true},
    {OP_ATTENTION, "softmax sum", CATEGORY_ATTENTION, "aten::_softmax", true},
    {OP_ATTENTION, "softmax divide", CATEGORY_ATTENTION, "aten::_softmax", true},
    {OP_ATTENTION, "log-sum-exp", CATEGORY_ATTENTION, "aten::logsumexp", false},
    {OP_ATTENTION, "softmax delta", CATEGORY_ATTENTION, "aten::_softmax_backward_data", true},
    {OP_ATTENTION, "softmax gradient", CATEGORY_ATTENTION, "aten::_softmax_backward_data", true},
    {OP_ATTENTION, "cache", CATEGORY_MEMORY, NULL, false},
    {OP_ATTENTION, "flash attention", CATEGORY_ATTENTION, NULL, false},
    {OP_ATTENTION, "decode", CATEGORY_ATTENTION, NULL, false},
    {OP_ATTENTION, "append to cache", CATEGORY_MEMORY, NULL, false},
    {OP_ATTENTION, "flash forward", CATEGORY_ATTENTION, NULL, false},
    {OP_ATTENTION, "delta", CATEGORY_ATTENTION, NULL, false},
    {OP_ATTENTION, "flash backward", CATEGORY_ATTENTION, NULL, false},
    {OP_GATHER, "gather", CATEGORY_MEMORY, "aten::index_select", false},
    {OP_GATHER, "clear", CATEGORY_MEMORY, "aten::zero_", false},
    {OP_GATHER, "scatter", CATEGORY_MEMORY, "aten::index_add_", false},
    {OP_GATHER, "clear and scatter", CATEGORY_MEMORY, NULL, false},
    {OP_POOL, "first rows", CATEGORY_MEMORY, "aten::select", false},
    {OP_POOL, "first rows gradient", CATEGORY_MEMORY, "aten::select_backward", false},
    {OP_POOL, "mean", CATEGORY_ELEMENTWISE, "aten::mean", false},
    {OP_POOL, "mean gradient", CATEGORY_ELEMENTWISE, "aten::div", false},
    {OP_POOL, "pool", CATEGORY_MEMORY, NULL, false},
    {OP_POOL, "pool gradient", CATEGORY_MEMORY, NULL, false},
    {OP_LOSS, "logits product", CATEGORY_MATRIX, "aten::mm", false},
    {OP_LOSS, "bias add", CATEGORY_LOSS, "aten::add", false},
    {OP_LOSS, "bias gradient", CATEGORY_LOSS, "aten::sum", false},
    {OP_LOSS, "smoothing", CATEGORY_LOSS, "aten::sum", false},
    {OP_LOSS, "hidden gradient", CATEGORY_MATRIX, "aten::mm", false},
    {OP_LOSS, "weight gradient", CATEGORY_MATRIX, "aten::mm", false},
    {OP_LOSS, "log-softmax", CATEGORY_LOSS, "aten::_log_softmax", false},
    {OP_LOSS, "pick", CATEGORY_LOSS, "aten::nll_loss_forward", true},
    {OP_LOSS, "sum", CATEGORY_LOSS, "aten::nll_loss_forward", true},
    {OP_LOSS, "softmax", CATEGORY_LOSS, "aten::_log_softmax_backward_data", false},
    {OP_LOSS, "subtract target", CATEGORY_LOSS, "aten::nll_loss_backward", true},
    {OP_LOSS, "scale", CATEGORY_LOSS, "aten::nll_loss_backward", true},
    {OP_LOSS, "bias", CATEGORY_LOSS, NULL, false},
    {OP_LOSS, "softmax, loss, gradient", CATEGORY_LOSS, NULL, false},
    {OP_LOSS, "softmax, loss", CATEGORY_LOSS, NULL, false},
    {OP_LOSS, "softmax cross-entropy", CATEGORY_LOSS, NULL, false},
    {OP_DECODE, "norm, qkv, attention, projection", CATEGORY_MATRIX, NULL, false},
    {OP_DECODE, "norm, query, cross attention, projection", CATEGORY_MATRIX, NULL, false},
    {OP_DECODE, "norm, expand, contract", CATEGORY_MATRIX, NULL, false},
    {OP_DECODE, "norm, head", CATEGORY_MATRIX, NULL, false},
    {OP_DECODE, "norm, qkv", CATEGORY_MATRIX, NULL, false},
    {OP_DECODE, "attention", CATEGORY_ATTENTION, NULL, false},
    {OP_DECODE, "projection", CATEGORY_MATRIX, NULL, false},
    {OP_DECODE, "norm, gate, up, SwiGLU", CATEGORY_MATRIX, NULL, false},
    {OP_DECODE, "contract", CATEGORY_MATRIX, NULL, false},
    {OP_ACCUMULATE, "gradient sum", CATEGORY_ELEMENTWISE, "aten::add_", false},
    {OP_COMM, "all-reduce", CATEGORY_COMMUNICATION, "c10d::allreduce_", false},
    {OP_COMM, "reduce-scatter", CATEGORY_COMMUNICATION, "c10d::_reduce_scatter_base_", false},
    {OP_COMM, "all-gather", CATEGORY_COMMUNICATION, "c10d::_allgather_base_", false},
    {OP_COMM, "scatter", CATEGORY_COMMUNICATION, "c10d::_reduce_scatter_base_", false},
    {OP_COMM, "gradient sum", CATEGORY_COMMUNICATION, "c10d::_reduce_scatter_base_", true},
    {OP_COMM, "spread", CATEGORY_COMMUNICATION, "c10d::_allgather_base_", false},
    {OP_ADAMW, "gradient norm", CATEGORY_OPTIMIZER, "aten::linalg_vector_norm", false},
    {OP_ADAMW, "clip factor", CATEGORY_OPTIMIZER, "aten::clamp", false},
    {OP_ADAMW, "clip", CATEGORY_OPTIMIZER, "aten::mul_", false},
    {OP_ADAMW, "decay", CATEGORY_OPTIMIZER, "aten::mul_", false},
    {OP_ADAMW, "first moment", CATEGORY_OPTIMIZER, "aten::lerp_", false},
    {OP_ADAMW, "second moment", CATEGORY_OPTIMIZER, "aten::addcmul_", false},
    {OP_ADAMW, "bias correction", CATEGORY_OPTIMIZER, "aten::div", false},
    {OP_ADAMW, "update", CATEGORY_OPTIMIZER, "aten::addcdiv_", false},
    {OP_ADAMW, "count update", CATEGORY_OPTIMIZER, "aten::add_", false},
    {OP_ADAMW, "round", CATEGORY_OPTIMIZER, "aten::_to_copy", false},
    {OP_ADAMW, "widen moments", CATEGORY_OPTIMIZER, "aten::_to_copy", false},
    {OP_ADAMW, "round moments", CATEGORY_OPTIMIZER, "aten::_to_copy", false},
};

static const Primitive *find(Operation operation, const char *name) {
    for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++)
        if (primitives[i].operation == operation && strcmp(primitives[i].name, name) == 0)
            return &primitives[i];
    return NULL;
}

static bool has_primitives(Operation operation) {
    for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++)
        if (primitives[i].operation == operation) return true;
    return false;
}

Category category_of(Operation operation, const char *primitive) {
    static const Category of_operations[OP_COUNT] = {
#define OPERATION(name, NAME, CATEGORY) [OP_##NAME] = CATEGORY_##CATEGORY,
#include "kernels/ops.def"
#undef OPERATION
    };
    if (!primitive || !has_primitives(operation)) return of_operations[operation];
    const Primitive *known = find(operation, primitive);
    for (int lender = 0; lender < OP_COUNT && !known; lender++) known = find((Operation)lender, primitive);
    return known ? known->category : CATEGORY_OTHER;
}

const char *torch_name(Operation operation, Pass pass, const char *primitive, bool *joins) {
    const Primitive *known = find(operation, primitive);
    bool norm = operation == OP_NORM && !(known && known->torch); // its own parts are one operation there
    *joins = norm || (known && known->joins);
    if (norm) return pass == PASS_BACKWARD ? "aten::native_layer_norm_backward" : "aten::native_layer_norm";
    return known ? known->torch : NULL;
}
