#include "profile/category.h"

#include <string.h>

typedef struct {
    Operation operation;
    const char *name;
    Category category;
    const char *torch; // PyTorch's names for it, as torch_name() gives them; NULL: it has none
    int joins;         // so many of them, from the first, are calls that began earlier in the same operation
} Primitive;

enum { ALL = 9 }; // more than there are

/* What PyTorch's backward pass puts around the operations of a node. */
#define NODE(name, shapes)                                                                                   \
    "autograd::engine::evaluate_function: " name "Backward0/" name "Backward0[" shapes "]/"

/* Several primitives of ours are one operation of PyTorch's: their rows add up. */
static const Primitive primitives[] = {
    {OP_EMBED, "token gather", CATEGORY_EMBEDDING, "aten::embedding[01---]/aten::index_select[0-n]", 0},
    {OP_EMBED, "position gather", CATEGORY_EMBEDDING, "aten::embedding[2t---]/aten::index_select[2-t]", 0},
    {OP_EMBED, "segment gather", CATEGORY_EMBEDDING, "aten::embedding[31---]", 0},
    {OP_EMBED, "add", CATEGORY_EMBEDDING, "aten::add[EQ-]", 0},
    {OP_EMBED, "scale", CATEGORY_EMBEDDING, "aten::mul", 0},
    {OP_EMBED, "token scatter add", CATEGORY_EMBEDDING,
     NODE("Embedding", "0") "aten::embedding_backward[02----]/aten::embedding_dense_backward[02---]", ALL},
    {OP_EMBED, "token sort", CATEGORY_EMBEDDING,
     NODE("Embedding", "0") "aten::embedding_backward[02----]/aten::embedding_dense_backward[02---]", 0},
    {OP_EMBED, "position sum", CATEGORY_EMBEDDING,
     NODE("Embedding", "Q") "aten::embedding_backward[Qt----]/aten::embedding_dense_backward[Qt---]", 0},
    {OP_EMBED, "segment sum", CATEGORY_EMBEDDING,
     NODE("Embedding", "0") "aten::embedding_backward[02----]/aten::embedding_dense_backward[02---]", 0},
    {OP_EMBED, "gather and add", CATEGORY_EMBEDDING, NULL, 0},
    {OP_EMBED, "scatter add", CATEGORY_EMBEDDING, NULL, 0},
    {OP_PATCH, "normalize", CATEGORY_ELEMENTWISE, "aten::div", 0},
    {OP_PATCH, "unfold", CATEGORY_MEMORY, "aten::im2col", 0},
    {OP_PATCH, "product", CATEGORY_MATRIX, "aten::addmm", 0},
    {OP_PATCH, "bias add", CATEGORY_ELEMENTWISE, "aten::addmm", ALL},
    {OP_PATCH, "class token", CATEGORY_MEMORY, "aten::cat", 0},
    {OP_PATCH, "position add", CATEGORY_EMBEDDING, "aten::add", 0},
    {OP_PATCH, "unfold, positions", CATEGORY_EMBEDDING, NULL, 0},
    {OP_PATCH, "weight gradient", CATEGORY_MATRIX, "aten::mm", 0},
    {OP_PATCH, "bias gradient", CATEGORY_ELEMENTWISE, "aten::sum", 0},
    {OP_PATCH, "token sum", CATEGORY_ELEMENTWISE, "aten::sum", 0},
    {OP_PATCH, "position sum", CATEGORY_ELEMENTWISE, "aten::sum", 0},
    {OP_PATCH, "bias, token and position gradients", CATEGORY_EMBEDDING, NULL, 0},
    {OP_NORM, "residual add", CATEGORY_ELEMENTWISE, "aten::add[01-]", 0},
    {OP_NORM, "column sums", CATEGORY_NORMALIZATION, "aten::sum[d---]",
     0}, // a bias gradient of the linear layer ahead
    {OP_NORM, "dropout", CATEGORY_ELEMENTWISE, "aten::dropout[0--]/aten::native_dropout[0--]", 0},
    {OP_NORM, "dropout gradient", CATEGORY_ELEMENTWISE,
     NODE("NativeDropout", "0") "aten::native_dropout_backward[0--]", 0},
    {OP_NORM, "stochastic depth", CATEGORY_ELEMENTWISE, "aten::mul", 0},
    {OP_NORM, "add, statistics, output", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "gradients", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "mean", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "variance", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "normalize", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "mean square", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "copy", CATEGORY_MEMORY, "aten::copy_", 0},
    {OP_NORM, "scale and shift", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "multiply", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "weight gradient", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "bias gradient", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "scale", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "input gradient", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "norm", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_NORM, "norm gradient", CATEGORY_NORMALIZATION, NULL, 0},
    {OP_DROPOUT, "dropout", CATEGORY_ELEMENTWISE, "aten::dropout[0--]/aten::native_dropout[0--]", 0},
    {OP_DROPOUT, "dropout gradient", CATEGORY_ELEMENTWISE,
     NODE("NativeDropout", "0") "aten::native_dropout_backward[0--]", 0},
    {OP_LINEAR, "residual add", CATEGORY_ELEMENTWISE, "aten::add[y3-]", 0},
    {OP_LINEAR, "product", CATEGORY_MATRIX, "aten::linear[0wc]/aten::addmm[cab--]", 0},
    {OP_LINEAR, "bias add", CATEGORY_ELEMENTWISE, "aten::linear[0wc]/aten::addmm[cab--]", ALL},
    {OP_LINEAR, "input gradient", CATEGORY_MATRIX, NODE("Addmm", "d") "aten::mm[ab]", 2},
    {OP_LINEAR, "weight gradient", CATEGORY_MATRIX, NODE("Addmm", "d") "aten::mm[ab]", 0},
    {OP_LINEAR, "bias gradient", CATEGORY_ELEMENTWISE,
     "autograd::engine::evaluate_function: AddmmBackward0/aten::sum[d---]", 1},
    {OP_LINEAR, "GELU", CATEGORY_ACTIVATION, "aten::gelu[y-]", 0},
    {OP_LINEAR, "GELU gradient", CATEGORY_ACTIVATION, NODE("Gelu", "1") "aten::gelu_backward[11-]", 0},
    {OP_LINEAR, "ReLU", CATEGORY_ACTIVATION, "aten::relu[y]", 0},
    {OP_LINEAR, "ReLU gradient", CATEGORY_ACTIVATION, NODE("Relu", "1") "aten::threshold_backward[11-]", 0},
    {OP_LINEAR, "tanh", CATEGORY_ACTIVATION, "aten::tanh[y]", 0},
    {OP_LINEAR, "tanh gradient", CATEGORY_ACTIVATION, NODE("Tanh", "1") "aten::tanh_backward[11]", 0},
    {OP_LINEAR, "SiLU", CATEGORY_ACTIVATION, "aten::silu[y]", 0},
    {OP_LINEAR, "gate multiply", CATEGORY_ACTIVATION, "aten::mul[yy]", 0},
    {OP_LINEAR, "up gradient", CATEGORY_ACTIVATION, NODE("Mul", "0") "aten::mul[00]", 0},
    {OP_LINEAR, "SiLU gradient", CATEGORY_ACTIVATION, NODE("Silu", "0") "aten::silu_backward[00]", 0},
    {OP_LINEAR, "SwiGLU", CATEGORY_ACTIVATION, NULL, 0},
    {OP_LINEAR, "SwiGLU gradient", CATEGORY_ACTIVATION, NULL, 0},
    {OP_LINEAR, "product, bias, activation", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "bias, residual add", CATEGORY_ELEMENTWISE, NULL, 0},
    {OP_LINEAR, "bias", CATEGORY_ELEMENTWISE, NULL, 0},
    {OP_LINEAR, "activation and bias gradient", CATEGORY_ACTIVATION, NULL, 0},
    {OP_LINEAR, "few rows", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "product, residual add", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "product, SwiGLU", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "product, bias, GELU", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "product, bias, residual add", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "product, bias", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "bias, activation", CATEGORY_ACTIVATION, NULL, 0},
    {OP_LINEAR, "input gradient, GELU gradient", CATEGORY_MATRIX, NULL, 0},
    {OP_LINEAR, "input gradient, SwiGLU gradient", CATEGORY_MATRIX, NULL, 0},
    {OP_ATTENTION, "split heads", CATEGORY_MEMORY,
     "aten::matmul[AB]/aten::reshape[A-]/aten::clone[A-]/aten::copy_[AA-]", 0},
    {OP_ATTENTION, "merge heads", CATEGORY_MEMORY, "aten::contiguous[M-]/aten::clone[M-]/aten::copy_[MM-]",
     0},
    {OP_ATTENTION, "cache append", CATEGORY_MEMORY, "aten::copy_", 0},
    {OP_ATTENTION, "rotary positions", CATEGORY_ELEMENTWISE, NULL, 0},
    {OP_ATTENTION, "rotary gradient", CATEGORY_ELEMENTWISE, NULL, 0},
    {OP_ATTENTION, "rotary angles", CATEGORY_ELEMENTWISE, NULL, 0},
    {OP_ATTENTION, "score product", CATEGORY_MATRIX, "aten::matmul[AB]/aten::bmm[ab]", 1},
    {OP_ATTENTION, "value product", CATEGORY_MATRIX, "aten::matmul[AB]/aten::bmm[ab]", 0},
    {OP_ATTENTION, "query gradient", CATEGORY_MATRIX, NODE("Bmm", "a") "aten::bmm[ab]", 0},
    {OP_ATTENTION, "key gradient", CATEGORY_MATRIX, NODE("Bmm", "a") "aten::bmm[ab]", 2},
    {OP_ATTENTION, "value gradient", CATEGORY_MATRIX, NODE("Bmm", "b") "aten::bmm[ab]", 0},
    {OP_ATTENTION, "probability gradient", CATEGORY_MATRIX, NODE("Bmm", "a") "aten::bmm[ab]", 2},
    {OP_ATTENTION, "scale", CATEGORY_ATTENTION, "aten::mul[Y-]", 0},
    {OP_ATTENTION, "mask", CATEGORY_ATTENTION, "aten::masked_fill[Ym-]/aten::masked_fill_[Ym-]", 0},
    {OP_ATTENTION, "dropout", CATEGORY_ELEMENTWISE, "aten::dropout[Y--]/aten::native_dropout[Y--]", 0},
    {OP_ATTENTION, "dropout gradient", CATEGORY_ELEMENTWISE,
     NODE("NativeDropout", "0") "aten::native_dropout_backward[0--]", 0},
    {OP_ATTENTION, "softmax max", CATEGORY_ATTENTION, "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {OP_ATTENTION, "softmax exp", CATEGORY_ATTENTION, "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {OP_ATTENTION, "softmax sum", CATEGORY_ATTENTION, "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {OP_ATTENTION, "softmax divide", CATEGORY_ATTENTION, "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {OP_ATTENTION, "log-sum-exp", CATEGORY_ATTENTION, "aten::logsumexp", 0},
    {OP_ATTENTION, "softmax delta", CATEGORY_ATTENTION,
     NODE("Softmax", "Y") "aten::_softmax_backward_data[YY--]", ALL},
    {OP_ATTENTION, "softmax gradient", CATEGORY_ATTENTION,
     NODE("Softmax", "Y") "aten::_softmax_backward_data[YY--]", ALL},
    {OP_ATTENTION, "cache", CATEGORY_MEMORY, NULL, 0},
    {OP_ATTENTION, "flash attention", CATEGORY_ATTENTION, NULL, 0},
    {OP_ATTENTION, "decode", CATEGORY_ATTENTION, NULL, 0},
    {OP_ATTENTION, "append to cache", CATEGORY_MEMORY, NULL, 0},
    {OP_ATTENTION, "flash forward", CATEGORY_ATTENTION, NULL, 0},
    {OP_ATTENTION, "delta", CATEGORY_ATTENTION, NULL, 0},
    {OP_ATTENTION, "flash backward", CATEGORY_ATTENTION, NULL, 0},
    {OP_ATTENTION, "flash backward, rotary gradient", CATEGORY_ATTENTION, NULL, 0},
    {OP_GATHER, "gather", CATEGORY_MEMORY, "aten::index_select", 0},
    {OP_GATHER, "clear", CATEGORY_MEMORY, "aten::zero_", 0},
    {OP_GATHER, "scatter", CATEGORY_MEMORY, "aten::index_add_", 0},
    {OP_GATHER, "clear and scatter", CATEGORY_MEMORY, NULL, 0},
    {OP_POOL, "first rows", CATEGORY_MEMORY, "aten::select", 0},
    {OP_POOL, "first rows gradient", CATEGORY_MEMORY, "aten::select_backward", 0},
    {OP_POOL, "mean", CATEGORY_ELEMENTWISE, "aten::mean", 0},
    {OP_POOL, "mean gradient", CATEGORY_ELEMENTWISE, "aten::div", 0},
    {OP_POOL, "pool", CATEGORY_MEMORY, NULL, 0},
    {OP_POOL, "pool gradient", CATEGORY_MEMORY, NULL, 0},
    {OP_LOSS, "logits product", CATEGORY_MATRIX, "aten::linear[01-]/aten::matmul[0b]/aten::mm[ab]", 0},
    {OP_LOSS, "bias add", CATEGORY_LOSS, "aten::add", 0},
    {OP_LOSS, "bias gradient", CATEGORY_LOSS, "aten::sum", 0},
    {OP_LOSS, "smoothing", CATEGORY_LOSS, "aten::sum", 0},
    {OP_LOSS, "hidden gradient", CATEGORY_MATRIX, NODE("Mm", "V") "aten::mm[ab]", 0},
    {OP_LOSS, "weight gradient", CATEGORY_MATRIX, NODE("Mm", "V") "aten::mm[ab]", 2},
    {OP_LOSS, "log-softmax", CATEGORY_LOSS,
     "aten::cross_entropy_loss[V3----]/aten::log_softmax[V--]/aten::_log_softmax[V--]", 0},
    {OP_LOSS, "pick", CATEGORY_LOSS,
     "aten::cross_entropy_loss[V3----]/aten::nll_loss_nd[V3---]/aten::nll_loss[V3---]/"
     "aten::nll_loss_forward[V3---]",
     ALL},
    {OP_LOSS, "sum", CATEGORY_LOSS,
     "aten::cross_entropy_loss[V3----]/aten::nll_loss_nd[V3---]/aten::nll_loss[V3---]/"
     "aten::nll_loss_forward[V3---]",
     ALL},
    {OP_LOSS, "softmax", CATEGORY_LOSS, NODE("LogSoftmax", "V") "aten::_log_softmax_backward_data[VV--]", 0},
    {OP_LOSS, "subtract target", CATEGORY_LOSS, NODE("NllLoss", "-") "aten::nll_loss_backward[-V3----]", ALL},
    {OP_LOSS, "scale", CATEGORY_LOSS, NODE("NllLoss", "-") "aten::nll_loss_backward[-V3----]", ALL},
    {OP_LOSS, "bias", CATEGORY_LOSS, NULL, 0},
    {OP_LOSS, "softmax, loss, gradient", CATEGORY_LOSS, NULL, 0},
    {OP_LOSS, "softmax, loss", CATEGORY_LOSS, NULL, 0},
    {OP_LOSS, "softmax cross-entropy", CATEGORY_LOSS, NULL, 0},
    {OP_DECODE, "norm, qkv, attention, projection", CATEGORY_MATRIX, NULL, 0},
    {OP_DECODE, "norm, query, cross attention, projection", CATEGORY_MATRIX, NULL, 0},
    {OP_DECODE, "norm, expand, contract", CATEGORY_MATRIX, NULL, 0},
    {OP_DECODE, "norm, head", CATEGORY_MATRIX, NULL, 0},
    {OP_DECODE, "norm, qkv", CATEGORY_MATRIX, NULL, 0},
    {OP_DECODE, "attention", CATEGORY_ATTENTION, NULL, 0},
    {OP_DECODE, "projection", CATEGORY_MATRIX, NULL, 0},
    {OP_DECODE, "norm, gate, up, SwiGLU", CATEGORY_MATRIX, NULL, 0},
    {OP_DECODE, "contract", CATEGORY_MATRIX, NULL, 0},
    {OP_ACCUMULATE, "gradient sum", CATEGORY_ELEMENTWISE, "aten::add_", 0},
    {OP_COMM, "all-reduce", CATEGORY_COMMUNICATION, "c10d::allreduce_", 0},
    {OP_COMM, "reduce-scatter", CATEGORY_COMMUNICATION, "c10d::_reduce_scatter_base_", 0},
    {OP_COMM, "all-gather", CATEGORY_COMMUNICATION, "c10d::_allgather_base_", 0},
    {OP_COMM, "scatter", CATEGORY_COMMUNICATION, "c10d::_reduce_scatter_base_", 0},
    {OP_COMM, "gradient sum", CATEGORY_COMMUNICATION, "c10d::_reduce_scatter_base_", 0},
    {OP_COMM, "spread", CATEGORY_COMMUNICATION, "c10d::_allgather_base_", 0},
    {OP_ADAMW, "gradient norm", CATEGORY_OPTIMIZER, "aten::linalg_vector_norm", 0},
    {OP_ADAMW, "clip factor", CATEGORY_OPTIMIZER, "aten::clamp", 0},
    {OP_ADAMW, "clip", CATEGORY_OPTIMIZER, "aten::mul_", 0},
    {OP_ADAMW, "decay", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::mul_", 1},
    {OP_ADAMW, "first moment", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::lerp_", 1},
    {OP_ADAMW, "second moment", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::addcmul_", 1},
    {OP_ADAMW, "bias correction", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::div", 1},
    {OP_ADAMW, "update", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::addcdiv_", 1},
    {OP_ADAMW, "count update", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step", 1},
    {OP_ADAMW, "round", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::_to_copy", 1},
    {OP_ADAMW, "widen moments", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::_to_copy", 1},
    {OP_ADAMW, "round moments", CATEGORY_OPTIMIZER, "Optimizer.step#AdamW.step/aten::_to_copy", 1},
};

/* Which part of an operation fills what, by the name under which it is taken; "y" is the result. Of what is
 * not here, that begins with the operation's name or is taken inside of it, the part that comes next. */
static const struct {
    Operation operation;
    const char *primitive, *name;
} fills[] = {
    {OP_EMBED, "token gather", "y"},
    {OP_PATCH, "unfold", "patch.x"},
    {OP_PATCH, "product", "y"},
    {OP_NORM, "residual add", "norm.residual"},
    {OP_NORM, "dropout", "norm.dropped"},
    {OP_NORM, "mean", "norm.mean"},
    {OP_NORM, "variance", "norm.rstd"},
    {OP_NORM, "mean square", "norm.rstd"},
    {OP_NORM, "normalize", "y"},
    {OP_LINEAR, "product", "y"},
    {OP_LINEAR, "product", "before activation"},
    {OP_LINEAR, "GELU", "y"},
    {OP_LINEAR, "ReLU", "y"},
    {OP_LINEAR, "tanh", "y"},
    {OP_LINEAR, "SiLU", "y"},
    {OP_LINEAR, "input gradient", "d branch"},
    {OP_LINEAR, "input gradient", "d all rows"},
    {OP_LINEAR, "input gradient", "d heads"},
    {OP_LINEAR, "input gradient", "d memory"},
    {OP_ATTENTION, "score product", "attention.probabilities"},
    {OP_ATTENTION, "log-sum-exp", "attention.lse"},
    {OP_ATTENTION, "softmax max", "attention.max"},
    {OP_ATTENTION, "softmax sum", "attention.sum"},
    {OP_ATTENTION, "merge heads", "y"},
    {OP_ATTENTION, "merge heads", "d qkv"},
    {OP_ATTENTION, "merge heads", "d query"},
    {OP_ATTENTION, "merge heads", "d memory"},
    {OP_LOSS, "logits product", "loss.log_probabilities"},
    {OP_LOSS, "pick", "losses"},
    {OP_LOSS, "hidden gradient", "d hidden"},
    {OP_LINEAR, "SiLU gradient", "d gate and up"},
};

/* Where PyTorch's backward pass has another name for what bears the same here. */
static const Primitive backward[] = {
    {OP_ATTENTION, "split heads", CATEGORY_MEMORY,
     NODE("UnsafeView", "B") "aten::reshape[B-]/aten::clone[B-]/aten::copy_[BB-]", 0},
    {OP_ATTENTION, "merge heads", CATEGORY_MEMORY, NODE("Split", "123") "aten::cat[--]", 0},
    {OP_ATTENTION, "scale", CATEGORY_ATTENTION, NODE("Mul", "Y") "aten::mul[Y-]", 0},
};

static const Primitive *find(Operation operation, const char *name) {
    for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++)
        if (primitives[i].operation == operation && strcmp(primitives[i].name, name) == 0)
            return &primitives[i];
    return NULL;
}

Operation operation_named(const char *name) {
    int i = 0;
    while (i < OP_COUNT && (!name || strcmp(operation_name((Operation)i), name) != 0)) i++;
    return (Operation)i;
}

bool primitive_fills(const char *operation, const char *primitive, const char *name) {
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++)
        if (fills[i].operation == operation_named(operation) && strcmp(fills[i].name, name) == 0 &&
            (!primitive || strcmp(fills[i].primitive, primitive) == 0))
            return true;
    return !primitive && (strcmp(name, "y") == 0 || strncmp(name, operation, strlen(operation)) == 0);
}

const char *torch_name(Operation operation, Pass pass, const char *primitive, bool bias, int *joins) {
    const Primitive *known = find(operation, primitive);
    for (size_t i = 0; pass == PASS_BACKWARD && i < sizeof backward / sizeof *backward; i++)
        if (backward[i].operation == operation && strcmp(backward[i].name, primitive) == 0)
            known = &backward[i];
    bool norm = operation == OP_NORM && !(known && known->torch); // its own parts are one operation there
    *joins = norm ? ALL : known ? known->joins : 0;
    if (norm && pass == PASS_BACKWARD)
        return bias ? NODE("NativeLayerNorm", "0") "aten::native_layer_norm_backward[01-uu34-]"
                    : NODE("FusedRmsNorm", "0") "aten::_fused_rms_norm_backward[01-u3-]";
    if (norm)
        return bias ? "aten::layer_norm[0-23--]/aten::native_layer_norm[0-23-]"
                    : "aten::rms_norm[0-2-]/aten::_fused_rms_norm[0-2-]";
    bool product = known && known->category == CATEGORY_MATRIX && known->torch;
    if (operation == OP_LINEAR && product && !bias) // else addmm
        return pass == PASS_BACKWARD ? NODE("Mm", "d") "aten::mm[ab]"
                                     : "aten::linear[0w-]/aten::matmul[0b]/aten::mm[ab]";
    return known ? known->torch : NULL;
}
