#include "profile/category.h"

#include <string.h>

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

/* Parts of linear layers, attention and the loss that a library's product computes. */
static bool is_product(Operation operation, const char *name) {
    static const char *const gradients[] = {"input gradient",
                                            "weight gradient",
                                            "hidden gradient",
                                            "query gradient",
                                            "key gradient",
                                            "value gradient",
                                            "few rows",
                                            "input gradient, GELU gradient",
                                            "probability gradient",
                                            NULL};
    if (operation != OP_LINEAR && operation != OP_ATTENTION && operation != OP_LOSS) return false;
    return strstr(name, "product") || is_one_of(name, gradients);
}

Category category_of(Operation operation, const char *name) {
    static const Category of_operations[OP_COUNT] = {
#define OPERATION(name, NAME, CATEGORY) [OP_##NAME] = CATEGORY_##CATEGORY,
#include "kernels/ops.def"
#undef OPERATION
    };
    static const char *const moves[] = {"split heads",     "merge heads", "cache append",
                                        "append to cache", "cache",       NULL};
    static const char *const elementwise[] = {"residual add", "dropout", "dropout gradient", NULL};
    if (!name) return of_operations[operation];
    if (is_product(operation, name)) return CATEGORY_MATRIX;
    if (is_one_of(name, moves)) return CATEGORY_MEMORY;
    if (is_one_of(name, elementwise)) return CATEGORY_ELEMENTWISE;
    if (operation == OP_LINEAR) // what is left of it are the bias and the activation
        return strncmp(name, "bias", 4) == 0 && !strstr(name, "activation") ? CATEGORY_ELEMENTWISE
                                                                            : CATEGORY_ACTIVATION;
    return of_operations[operation];
}

typedef struct {
    Operation operation;
    const char *primitive, *torch;
    bool joins; // what ran in the same operation before it under that name, if anything did
} TorchName;

/* Several primitives of ours are one operation there: their rows add up. */
static const TorchName torch_names[] = {
    {OP_EMBED, "token gather", "aten::embedding", false},
    {OP_EMBED, "position gather", "aten::embedding", false},
    {OP_EMBED, "segment gather", "aten::embedding", false},
    {OP_EMBED, "add", "aten::add", false},
    {OP_EMBED, "scale", "aten::mul", false},
    {OP_EMBED, "token scatter add", "aten::embedding_dense_backward", true},
    {OP_EMBED, "token sort", "aten::embedding_dense_backward", false},
    {OP_EMBED, "position sum", "aten::embedding_dense_backward", false},
    {OP_EMBED, "segment sum", "aten::embedding_dense_backward", false},
    {OP_NORM, "residual add", "aten::add", false},
    {OP_LINEAR, "residual add", "aten::add", false},
    {OP_NORM, "column sums", "aten::sum", false}, // a bias gradient of the linear layer ahead
    {OP_NORM, "dropout", "aten::native_dropout", false},
    {OP_NORM, "dropout gradient", "aten::native_dropout_backward", false},
    {OP_DROPOUT, "dropout", "aten::native_dropout", false},
    {OP_DROPOUT, "dropout gradient", "aten::native_dropout_backward", false},
    {OP_LINEAR, "product", "aten::addmm", false},
    {OP_LINEAR, "bias add", "aten::addmm", true},
    {OP_LINEAR, "input gradient", "aten::mm", false},
    {OP_LINEAR, "weight gradient", "aten::mm", false},
    {OP_LINEAR, "bias gradient", "aten::sum", false},
    {OP_LINEAR, "GELU", "aten::gelu", false},
    {OP_LINEAR, "GELU gradient", "aten::gelu_backward", false},
    {OP_LINEAR, "ReLU", "aten::relu", false},
    {OP_LINEAR, "ReLU gradient", "aten::threshold_backward", false},
    {OP_LINEAR, "tanh", "aten::tanh", false},
    {OP_LINEAR, "tanh gradient", "aten::tanh_backward", false},
    {OP_ATTENTION, "split heads", "aten::copy_", false},
    {OP_ATTENTION, "merge heads", "aten::copy_", false},
    {OP_ATTENTION, "cache append", "aten::copy_", false},
    {OP_ATTENTION, "score product", "aten::bmm", false},
    {OP_ATTENTION, "value product", "aten::bmm", false},
    {OP_ATTENTION, "query gradient", "aten::bmm", false},
    {OP_ATTENTION, "key gradient", "aten::bmm", false},
    {OP_ATTENTION, "value gradient", "aten::bmm", false},
    {OP_ATTENTION, "probability gradient", "aten::bmm", false},
    {OP_ATTENTION, "scale", "aten::mul", false},
    {OP_ATTENTION, "mask", "aten::masked_fill", false},
    {OP_ATTENTION, "dropout", "aten::native_dropout", false},
    {OP_ATTENTION, "dropout gradient", "aten::native_dropout_backward", false},
    {OP_ATTENTION, "softmax max", "aten::_softmax", true},
    {OP_ATTENTION, "softmax exp", "aten::_softmax", true},
    {OP_ATTENTION, "softmax sum", "aten::_softmax", true},
    {OP_ATTENTION, "softmax divide", "aten::_softmax", true},
    {OP_ATTENTION, "log-sum-exp", "aten::logsumexp", false},
    {OP_ATTENTION, "softmax delta", "aten::_softmax_backward_data", true},
    {OP_ATTENTION, "softmax gradient", "aten::_softmax_backward_data", true},
    {OP_GATHER, "gather", "aten::index_select", false},
    {OP_GATHER, "clear", "aten::zero_", false},
    {OP_GATHER, "scatter", "aten::index_add_", false},
    {OP_LOSS, "logits product", "aten::mm", false},
    {OP_LOSS, "bias add", "aten::add", false},
    {OP_LOSS, "bias gradient", "aten::sum", false},
    {OP_LOSS, "smoothing", "aten::sum", false},
    {OP_LOSS, "hidden gradient", "aten::mm", false},
    {OP_LOSS, "weight gradient", "aten::mm", false},
    {OP_LOSS, "log-softmax", "aten::_log_softmax", false},
    {OP_LOSS, "pick", "aten::nll_loss_forward", true},
    {OP_LOSS, "sum", "aten::nll_loss_forward", true},
    {OP_LOSS, "softmax", "aten::_log_softmax_backward_data", false},
    {OP_LOSS, "subtract target", "aten::nll_loss_backward", true},
    {OP_LOSS, "scale", "aten::nll_loss_backward", true},
    {OP_ADAMW, "gradient norm", "aten::linalg_vector_norm", false},
    {OP_ADAMW, "clip factor", "aten::clamp", false},
    {OP_ADAMW, "clip", "aten::mul_", false},
    {OP_ADAMW, "decay", "aten::mul_", false},
    {OP_ADAMW, "first moment", "aten::lerp_", false},
    {OP_ADAMW, "second moment", "aten::addcmul_", false},
    {OP_ADAMW, "bias correction", "aten::div", false},
    {OP_ADAMW, "update", "aten::addcdiv_", false},
    {OP_ADAMW, "count update", "aten::add_", false},
    {OP_ADAMW, "round", "aten::_to_copy", false},
};

const char *torch_name(Operation operation, Pass pass, const char *primitive, bool *joins) {
    for (size_t i = 0; i < sizeof torch_names / sizeof *torch_names; i++) {
        const TorchName *name = &torch_names[i];
        if (name->operation != operation || strcmp(name->primitive, primitive) != 0) continue;
        *joins = name->joins;
        return name->torch;
    }
    *joins = operation == OP_NORM;
    if (operation != OP_NORM) return NULL;
    return pass == PASS_BACKWARD ? "aten::native_layer_norm_backward" : "aten::native_layer_norm";
}
