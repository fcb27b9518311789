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
        [OP_EMBED] = CATEGORY_EMBEDDING, [OP_NORM] = CATEGORY_NORMALIZATION,
        [OP_LINEAR] = CATEGORY_MATRIX,   [OP_ATTENTION] = CATEGORY_ATTENTION,
        [OP_LOSS] = CATEGORY_LOSS,       [OP_DECODE] = CATEGORY_MATRIX,
        [OP_ADAMW] = CATEGORY_OPTIMIZER,
    };
    static const char *const moves[] = {"split heads",     "merge heads", "cache append",
                                        "append to cache", "cache",       NULL};
    static const char *const elementwise[] = {"residual add", NULL};
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
} TorchName;

/* Several primitives of ours are one operation there: their rows add up. */
static const TorchName torch_names[] = {
    {OP_EMBED, "token gather", "aten::embedding"},
    {OP_EMBED, "position gather", "aten::embedding"},
    {OP_EMBED, "segment gather", "aten::embedding"},
    {OP_EMBED, "add", "aten::add"},
    {OP_EMBED, "scale", "aten::mul"},
    {OP_EMBED, "token scatter add", "aten::embedding_dense_backward"},
    {OP_EMBED, "token sort", "aten::embedding_dense_backward"},
    {OP_EMBED, "position sum", "aten::embedding_dense_backward"},
    {OP_EMBED, "segment sum", "aten::embedding_dense_backward"},
    {OP_NORM, "residual add", "aten::add"},
    {OP_LINEAR, "product", "aten::addmm"},
    {OP_LINEAR, "bias add", "aten::addmm"},
    {OP_LINEAR, "input gradient", "aten::mm"},
    {OP_LINEAR, "weight gradient", "aten::mm"},
    {OP_LINEAR, "bias gradient", "aten::sum"},
    {OP_LINEAR, "GELU", "aten::gelu"},
    {OP_LINEAR, "GELU gradient", "aten::gelu_backward"},
    {OP_ATTENTION, "split heads", "aten::copy_"},
    {OP_ATTENTION, "merge heads", "aten::copy_"},
    {OP_ATTENTION, "cache append", "aten::copy_"},
    {OP_ATTENTION, "score product", "aten::bmm"},
    {OP_ATTENTION, "value product", "aten::bmm"},
    {OP_ATTENTION, "query gradient", "aten::bmm"},
    {OP_ATTENTION, "key gradient", "aten::bmm"},
    {OP_ATTENTION, "value gradient", "aten::bmm"},
    {OP_ATTENTION, "probability gradient", "aten::bmm"},
    {OP_ATTENTION, "scale", "aten::mul"},
    {OP_ATTENTION, "mask", "aten::masked_fill"},
    {OP_ATTENTION, "softmax max", "aten::_softmax"},
    {OP_ATTENTION, "softmax exp", "aten::_softmax"},
    {OP_ATTENTION, "softmax sum", "aten::_softmax"},
    {OP_ATTENTION, "softmax divide", "aten::_softmax"},
    {OP_ATTENTION, "log-sum-exp", "aten::logsumexp"},
    {OP_ATTENTION, "softmax delta", "aten::_softmax_backward_data"},
    {OP_ATTENTION, "softmax gradient", "aten::_softmax_backward_data"},
    {OP_LOSS, "logits product", "aten::mm"},
    {OP_LOSS, "hidden gradient", "aten::mm"},
    {OP_LOSS, "weight gradient", "aten::mm"},
    {OP_LOSS, "log-softmax", "aten::_log_softmax"},
    {OP_LOSS, "pick", "aten::nll_loss_forward"},
    {OP_LOSS, "sum", "aten::nll_loss_forward"},
    {OP_LOSS, "softmax", "aten::_log_softmax_backward_data"},
    {OP_LOSS, "subtract target", "aten::nll_loss_backward"},
    {OP_LOSS, "scale", "aten::nll_loss_backward"},
    {OP_ADAMW, "gradient norm", "aten::linalg_vector_norm"},
    {OP_ADAMW, "clip factor", "aten::clamp"},
    {OP_ADAMW, "clip", "aten::mul_"},
    {OP_ADAMW, "decay", "aten::mul_"},
    {OP_ADAMW, "first moment", "aten::lerp_"},
    {OP_ADAMW, "second moment", "aten::addcmul_"},
    {OP_ADAMW, "bias correction", "aten::div"},
    {OP_ADAMW, "update", "aten::addcdiv_"},
    {OP_ADAMW, "count update", "aten::add_"},
    {OP_ADAMW, "round", "aten::_to_copy"},
};

const char *torch_name(Operation operation, Pass pass, const char *primitive) {
    for (size_t i = 0; primitive && i < sizeof torch_names / sizeof *torch_names; i++)
        if (torch_names[i].operation == operation && strcmp(torch_names[i].primitive, primitive) == 0)
            return torch_names[i].torch;
    if (operation == OP_NORM && primitive)
        return pass == PASS_BACKWARD ? "aten::native_layer_norm_backward" : "aten::native_layer_norm";
    return NULL;
}
