/* What PyTorch calls the primitives of the naive path. */
#include "report/torch.h"

#include <string.h>

typedef struct {
    const char *operation, *name;
    const char *torch; // PyTorch's names for it, as torch_name() gives them
    int joins;         // so many of them, from the first, are calls that began earlier in the same operation
} Primitive;

enum { ALL = 9 }; // more than there are

/* What PyTorch's backward pass puts around the operations of a node. */
#define NODE(name, shapes)                                                                                   \
    "autograd::engine::evaluate_function: " name "Backward0/" name "Backward0[" shapes "]/"

/* Several primitives of ours are one operation of PyTorch's: their rows add up. */
static const Primitive primitives[] = {
    {"embed", "token gather", "aten::embedding[01---]/aten::index_select[0-n]", 0},
    {"embed", "position gather", "aten::embedding[2t---]/aten::index_select[2-t]", 0},
    {"embed", "segment gather", "aten::embedding[31---]", 0},
    {"embed", "add", "aten::add[EQ-]", 0},
    {"embed", "scale", "aten::mul", 0},
    {"embed", "token scatter add",
     NODE("Embedding", "0") "aten::embedding_backward[02----]/aten::embedding_dense_backward[02---]", ALL},
    {"embed", "token sort",
     NODE("Embedding", "0") "aten::embedding_backward[02----]/aten::embedding_dense_backward[02---]", 0},
    {"embed", "position sum",
     NODE("Embedding", "Q") "aten::embedding_backward[Qt----]/aten::embedding_dense_backward[Qt---]", 0},
    {"embed", "segment sum",
     NODE("Embedding", "0") "aten::embedding_backward[02----]/aten::embedding_dense_backward[02---]", 0},
    {"patch", "normalize", "aten::div", 0},
    {"patch", "unfold", "aten::im2col", 0},
    {"patch", "product", "aten::addmm", 0},
    {"patch", "bias add", "aten::addmm", ALL},
    {"patch", "class token", "aten::cat", 0},
    {"patch", "position add", "aten::add", 0},
    {"patch", "weight gradient", "aten::mm", 0},
    {"patch", "bias gradient", "aten::sum", 0},
    {"patch", "token sum", "aten::sum", 0},
    {"patch", "position sum", "aten::sum", 0},
    {"norm", "residual add", "aten::add[01-]", 0},
    {"norm", "column sums", "aten::sum[d---]", 0}, // a bias gradient of the linear layer ahead
    {"norm", "dropout", "aten::dropout[0--]/aten::native_dropout[0--]", 0},
    {"norm", "dropout gradient", NODE("NativeDropout", "0") "aten::native_dropout_backward[0--]", 0},
    {"norm", "stochastic depth", "aten::mul", 0},
    {"norm", "copy", "aten::copy_", 0},
    {"dropout", "dropout", "aten::dropout[0--]/aten::native_dropout[0--]", 0},
    {"dropout", "dropout gradient", NODE("NativeDropout", "0") "aten::native_dropout_backward[0--]", 0},
    {"linear", "residual add", "aten::add[y3-]", 0},
    {"linear", "product", "aten::linear[0wc]/aten::addmm[cab--]", 0},
    {"linear", "bias add", "aten::linear[0wc]/aten::addmm[cab--]", ALL},
    {"linear", "input gradient", NODE("Addmm", "d") "aten::mm[ab]", 2},
    {"linear", "weight gradient", NODE("Addmm", "d") "aten::mm[ab]", 0},
    {"linear", "bias gradient", "autograd::engine::evaluate_function: AddmmBackward0/aten::sum[d---]", 1},
    {"linear", "GELU", "aten::gelu[y-]", 0},
    {"linear", "GELU gradient", NODE("Gelu", "1") "aten::gelu_backward[11-]", 0},
    {"linear", "ReLU", "aten::relu[y]", 0},
    {"linear", "ReLU gradient", NODE("Relu", "1") "aten::threshold_backward[11-]", 0},
    {"linear", "tanh", "aten::tanh[y]", 0},
    {"linear", "tanh gradient", NODE("Tanh", "1") "aten::tanh_backward[11]", 0},
    {"linear", "SiLU", "aten::silu[y]", 0},
    {"linear", "gate multiply", "aten::mul[yy]", 0},
    {"linear", "up gradient", NODE("Mul", "0") "aten::mul[00]", 0},
    {"linear", "SiLU gradient", NODE("Silu", "0") "aten::silu_backward[00]", 0},
    {"attention", "split heads", "aten::matmul[AB]/aten::reshape[A-]/aten::clone[A-]/aten::copy_[AA-]", 0},
    {"attention", "merge heads", "aten::contiguous[M-]/aten::clone[M-]/aten::copy_[MM-]", 0},
    {"attention", "cache append", "aten::copy_", 0},
    {"attention", "score product", "aten::matmul[AB]/aten::bmm[ab]", 1},
    {"attention", "value product", "aten::matmul[AB]/aten::bmm[ab]", 0},
    {"attention", "query gradient", NODE("Bmm", "a") "aten::bmm[ab]", 0},
    {"attention", "key gradient", NODE("Bmm", "a") "aten::bmm[ab]", 2},
    {"attention", "value gradient", NODE("Bmm", "b") "aten::bmm[ab]", 0},
    {"attention", "probability gradient", NODE("Bmm", "a") "aten::bmm[ab]", 2},
    {"attention", "scale", "aten::mul[Y-]", 0},
    {"attention", "mask", "aten::masked_fill[Ym-]/aten::masked_fill_[Ym-]", 0},
    {"attention", "dropout", "aten::dropout[Y--]/aten::native_dropout[Y--]", 0},
    {"attention", "dropout gradient", NODE("NativeDropout", "0") "aten::native_dropout_backward[0--]", 0},
    {"attention", "softmax max", "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {"attention", "softmax exp", "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {"attention", "softmax sum", "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {"attention", "softmax divide", "aten::softmax[Y--]/aten::_softmax[Y--]", ALL},
    {"attention", "log-sum-exp", "aten::logsumexp", 0},
    {"attention", "softmax delta", NODE("Softmax", "Y") "aten::_softmax_backward_data[YY--]", ALL},
    {"attention", "softmax gradient", NODE("Softmax", "Y") "aten::_softmax_backward_data[YY--]", ALL},
    {"gather", "gather", "aten::index_select", 0},
    {"gather", "clear", "aten::zero_", 0},
    {"gather", "scatter", "aten::index_add_", 0},
    {"pool", "first rows", "aten::select", 0},
    {"pool", "first rows gradient", "aten::select_backward", 0},
    {"pool", "mean", "aten::mean", 0},
    {"pool", "mean gradient", "aten::div", 0},
    {"loss", "logits product", "aten::linear[01-]/aten::matmul[0b]/aten::mm[ab]", 0},
    {"loss", "bias add", "aten::add", 0},
    {"loss", "bias gradient", "aten::sum", 0},
    {"loss", "smoothing", "aten::sum", 0},
    {"loss", "hidden gradient", NODE("Mm", "V") "aten::mm[ab]", 0},
    {"loss", "weight gradient", NODE("Mm", "V") "aten::mm[ab]", 2},
    {"loss", "log-softmax", "aten::cross_entropy_loss[V3----]/aten::log_softmax[V--]/aten::_log_softmax[V--]",
     0},
    {"loss", "pick",
     "aten::cross_entropy_loss[V3----]/aten::nll_loss_nd[V3---]/aten::nll_loss[V3---]/"
     "aten::nll_loss_forward[V3---]",
     ALL},
    {"loss", "sum",
     "aten::cross_entropy_loss[V3----]/aten::nll_loss_nd[V3---]/aten::nll_loss[V3---]/"
     "aten::nll_loss_forward[V3---]",
     ALL},
    {"loss", "softmax", NODE("LogSoftmax", "V") "aten::_log_softmax_backward_data[VV--]", 0},
    {"loss", "subtract target", NODE("NllLoss", "-") "aten::nll_loss_backward[-V3----]", ALL},
    {"loss", "scale", NODE("NllLoss", "-") "aten::nll_loss_backward[-V3----]", ALL},
    {"accumulate", "gradient sum", "aten::add_", 0},
    {"comm", "all-reduce", "c10d::allreduce_", 0},
    {"comm", "reduce-scatter", "c10d::_reduce_scatter_base_", 0},
    {"comm", "all-gather", "c10d::_allgather_base_", 0},
    {"comm", "scatter", "c10d::_reduce_scatter_base_", 0},
    {"comm", "gradient sum", "c10d::_reduce_scatter_base_", 0},
    {"comm", "spread", "c10d::_allgather_base_", 0},
    {"adamw", "gradient norm", "aten::linalg_vector_norm", 0},
    {"adamw", "clip factor", "aten::clamp", 0},
    {"adamw", "clip", "aten::mul_", 0},
    {"adamw", "decay", "Optimizer.step#AdamW.step/aten::mul_", 1},
    {"adamw", "first moment", "Optimizer.step#AdamW.step/aten::lerp_", 1},
    {"adamw", "second moment", "Optimizer.step#AdamW.step/aten::addcmul_", 1},
    {"adamw", "bias correction", "Optimizer.step#AdamW.step/aten::div", 1},
    {"adamw", "update", "Optimizer.step#AdamW.step/aten::addcdiv_", 1},
    {"adamw", "count update", "Optimizer.step#AdamW.step", 1},
    {"adamw", "round", "Optimizer.step#AdamW.step/aten::_to_copy", 1},
    {"adamw", "widen moments", "Optimizer.step#AdamW.step/aten::_to_copy", 1},
    {"adamw", "round moments", "Optimizer.step#AdamW.step/aten::_to_copy", 1},
};

/* Where PyTorch's backward pass has another name for what bears the same here. */
static const Primitive backward[] = {
    {"attention", "split heads", NODE("UnsafeView", "B") "aten::reshape[B-]/aten::clone[B-]/aten::copy_[BB-]",
     0},
    {"attention", "merge heads", NODE("Split", "123") "aten::cat[--]", 0},
    {"attention", "scale", NODE("Mul", "Y") "aten::mul[Y-]", 0},
};

static const Primitive *find(const Primitive *rows, size_t count, const TraceEvent *e) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].operation, e->operation) == 0 && strcmp(rows[i].name, e->name) == 0)
            return &rows[i];
    return NULL;
}

const char *torch_name(const TraceEvent *e, bool bias, int *joins) {
    const bool back = e->pass == PASS_BACKWARD;
    const Primitive *known = back ? find(backward, sizeof backward / sizeof *backward, e) : NULL;
    if (!known) known = find(primitives, sizeof primitives / sizeof *primitives, e);
    bool norm = !known && strcmp(e->operation, "norm") == 0; // its own parts are one operation there
    *joins = norm ? ALL : known ? known->joins : 0;
    if (norm && back)
        return bias ? NODE("NativeLayerNorm", "0") "aten::native_layer_norm_backward[01-uu34-]"
                    : NODE("FusedRmsNorm", "0") "aten::_fused_rms_norm_backward[01-u3-]";
    if (norm)
        return bias ? "aten::layer_norm[0-23--]/aten::native_layer_norm[0-23-]"
                    : "aten::rms_norm[0-2-]/aten::_fused_rms_norm[0-2-]";
    bool product = known && e->category == CATEGORY_MATRIX && strcmp(e->operation, "linear") == 0;
    if (product && !bias) // else addmm
        return back ? NODE("Mm", "d") "aten::mm[ab]" : "aten::linear[0w-]/aten::matmul[0b]/aten::mm[ab]";
    return known ? known->torch : NULL;
}
