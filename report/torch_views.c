/* What PyTorch's profiler lists besides: views, the copies that make them contiguous, numbers that become
 * tensors, and nodes of the backward pass that compute nothing. As PyTorch 2.15 lists them on the CPU for a
 * GPT-2 of nn.Linear (tests/peers/operations.py). */
#include "report/torch.h"

#include <stdio.h>
#include <string.h>

/* ---- calls inside of calls ---- */

/* The digits are the outer call's shapes. */
static const struct {
    const char *name, *inside;
} inner[] = {
    {"aten::t", "aten::transpose[0--]"},
    {"aten::transpose", "aten::as_strided[0---]"},
    {"aten::expand", "aten::as_strided[0---]"},
    {"aten::select", "aten::as_strided[0---]"},
    {"aten::slice", "aten::as_strided[0---]"},
    {"aten::narrow", "aten::slice[0----]"},
    {"aten::unsqueeze", "aten::as_strided[----]"},
    {"aten::split", "aten::narrow[0---];aten::narrow[0---];aten::narrow[0---]"},
    {"aten::contiguous", "aten::clone[0-]"},
    {"aten::clone", "aten::empty_like[0-----];aten::copy_[00-]"},
    {"aten::empty_like", "aten::empty[------]"},
    {"aten::_to_copy", "aten::empty_strided[------];aten::copy_[---]"},
    {"aten::linalg_vector_norm", "aten::as_strided[----]"},
    {"aten::item", "aten::_local_scalar_dense[-]"},
    {"aten::sum", "aten::fill_[--]"},
    {"aten::index_select", "aten::empty[------];aten::select[0--];aten::select[0--]"},
    {"aten::addmm", "aten::expand[0--];aten::copy_[---];aten::resolve_conj[-];aten::resolve_conj[1]"},
    {"aten::mm", "aten::resolve_conj[-];aten::resolve_conj[0]"},
    {"aten::bmm", "aten::resolve_conj[1];aten::resolve_conj[0]"},
    {"torch::autograd::AccumulateGrad", "aten::detach[0]"},
    {"aten::detach", "detach[0]"},
};

/* ---- calls beside a primitive's ---- */

#define NODE(name, shapes) "autograd::engine::evaluate_function: " name ";" name "[" shapes "];"
#define BACK(name, shapes) NODE(name "Backward0", shapes)
#define GRADIENT(shape)    NODE("torch::autograd::AccumulateGrad", shape)
#define RESHAPED(shape)    "aten::reshape[" shape "-];aten::view[" shape "-];"
#define COPIED(shape)      "aten::reshape[" shape "-];aten::clone[" shape "-];aten::_unsafe_view[" shape "-];"
#define NUMBER             "aten::to[-----];aten::_to_copy[-------];"
#define EMPTY              "aten::empty[------];"
#define ZEROS(shape)       "aten::zeros[-----];" EMPTY "aten::zero_[" shape "];"
#define LAYER_BACK                                                                                           \
    BACK("UnsafeView", "0")                                                                                  \
    RESHAPED("0")                                                                                            \
    "aten::t[d];aten::t[2];" BACK("T", "z") "aten::t[z];" GRADIENT("2") BACK("View", "x") RESHAPED("x")
#define FILLED "aten::expand[Y--];aten::expand[m--];aten::clone[Y-];"

enum { ANY = -1, WITHOUT, WITH }; // a bias

static const struct {
    const char *operation;
    Pass pass;
    const char *primitive;
    int bias;
    const char *calls; // name?condition[shapes], as in torch.h
} beside[] = {
    {"embed", PASS_FORWARD, "token gather", ANY, RESHAPED("1") "aten::view[e-];"},
    {"embed", PASS_BACKWARD, "token scatter add", ANY,
     ZEROS("1") "aten::view[0-];aten::add[11-];" GRADIENT("1")},
    {"embed", PASS_BACKWARD, "position sum", ANY,
     BACK("Add", "0") "aten::sum[0---];aten::view[--];" ZEROS("Q") "aten::view[Q-];" GRADIENT("Q")},
    {"norm", PASS_FORWARD, "mean", WITH, EMPTY EMPTY EMPTY "aten::view[r-];aten::view[r-];"},
    {"norm", PASS_BACKWARD, "input gradient", WITH,
     EMPTY EMPTY EMPTY EMPTY "aten::resize_[---];aten::zero_[-];autograd::engine::evaluate_function: "
                             "AddBackward0?2;AddBackward0?2[0];"
                             "aten::add_?2[00-];" GRADIENT("3") GRADIENT("4")},
    {"norm", PASS_BACKWARD, "column sums", ANY, "aten::view[--];" GRADIENT("4")},
    {"linear", PASS_FORWARD, "product", WITH, "aten::view[0-];aten::t[w];aten::_unsafe_view[o-];"},
    {"linear", PASS_FORWARD, "product", WITHOUT, RESHAPED("0") "aten::t[w];aten::_unsafe_view[o-];"},
    {"linear", PASS_BACKWARD, "weight gradient", ANY, LAYER_BACK},
    {"linear", PASS_BACKWARD, "input gradient", ANY, "aten::t[z];aten::resolve_conj[a];"},
    {"linear", PASS_BACKWARD, "bias gradient", ANY, "aten::view[--];" GRADIENT("3")},
    {"attention", PASS_FORWARD, "split heads", ANY,
     "aten::split?S[S--];aten::view[0-];aten::view[1-];aten::view[2-];aten::transpose[H--];"
     "aten::transpose[K--];aten::transpose[K--];aten::transpose[k--];aten::expand[A--];"
     "aten::_unsafe_view[A-];aten::expand[B--];" COPIED("B")},
    {"attention", PASS_FORWARD, "score product", ANY, "aten::_unsafe_view[o-];"},
    {"attention", PASS_FORWARD, "scale", ANY, NUMBER},
    {"attention", PASS_FORWARD, "mask", ANY, FILLED},
    {"attention", PASS_FORWARD, "value product", ANY,
     "aten::expand[A--];" RESHAPED("A") "aten::expand[B--];" COPIED("B") "aten::_unsafe_view[o-];"},
    {"attention", PASS_FORWARD, "merge heads", ANY, "aten::transpose[Y--];aten::view[M-];"},
    {"attention", PASS_BACKWARD, "split heads", ANY,
     BACK("View", "0") RESHAPED("0") BACK("Clone", "N")
         BACK("Transpose", "N") "aten::transpose[N--];aten::_unsafe_view[B-];"},
    {"attention", PASS_BACKWARD, "value gradient", ANY,
     "aten::transpose[g--];" BACK("UnsafeView", "o") RESHAPED("o") BACK("Clone", "Y") BACK("Expand", "Y")
         BACK("Transpose", "Y") "aten::transpose[Y--];"},
    {"attention", PASS_BACKWARD, "probability gradient", ANY,
     "aten::transpose[j--];" BACK("View", "o") RESHAPED("o") BACK("Expand", "Y")},
    {"attention", PASS_BACKWARD, "scale", ANY,
     NUMBER BACK("MaskedFill", "Y") "aten::masked_fill[Ym-];aten::masked_fill_[Ym-];" FILLED BACK(
         "UnsafeView", "Y") RESHAPED("Y")},
    {"attention", PASS_BACKWARD, "query gradient", ANY,
     "aten::transpose[j--];" BACK("UnsafeView", "o") RESHAPED("o") BACK("Clone", "Y") BACK("Expand", "Y")
         BACK("Transpose", "Y") "aten::transpose[Y--];"},
    {"attention", PASS_BACKWARD, "key gradient", ANY,
     "aten::transpose[j--];" BACK("UnsafeView", "o") RESHAPED("o") BACK("Clone", "Y") BACK("Expand", "Y")
         BACK("Transpose", "Y") "aten::transpose[Y--];" BACK("Transpose", "Y") "aten::transpose[Y--];"},
    {"attention", PASS_BACKWARD, "merge heads", ANY,
     BACK("View", "M") COPIED("M") BACK("View", "M") COPIED("M") BACK(
         "View", "M") "aten::reshape[M-];aten::_reshape_alias[M--];aten::narrow?S[S---];aten::narrow?S[S---];"
                      "aten::narrow?S[S---];"},
    {"loss", PASS_FORWARD, "logits product", ANY, RESHAPED("0") "aten::t[1];aten::_unsafe_view[o-];"},
    {"loss", PASS_FORWARD, "log-softmax", ANY, "aten::view[V-];aten::view[3-];aten::to[V-------];"},
    {"loss", PASS_BACKWARD, "softmax", ANY,
     BACK("View", "V") RESHAPED("V") BACK("UnsafeView", "V") RESHAPED("V")},
    {"loss", PASS_BACKWARD, "subtract target", ANY, "aten::zero_[V];aten::fill_[V-];"},
    {"loss", PASS_BACKWARD, "scale", ANY,
     "aten::ones_like[------];aten::empty_strided[------];aten::fill_[--];"},
    {"loss", PASS_BACKWARD, "hidden gradient", ANY, "aten::t[-];aten::resolve_conj[a];"},
    {"loss", PASS_BACKWARD, "weight gradient", ANY,
     "aten::t[V];aten::t[1];" BACK("T", "-") "aten::t[-];" BACK("View", "0") RESHAPED("0")},
    {"adamw", PASS_UPDATE, "gradient norm", ANY,
     "aten::stack[--];aten::cat[--];aten::add[---];" NUMBER "aten::reciprocal[-];aten::mul[--];" NUMBER
     "aten::to[-----];aten::to[--------];"},
    {"adamw", PASS_UPDATE, "clip", ANY,
     "aten::linalg_vector_norm[-----];aten::to[--------];aten::unsqueeze[--];"},
    {"adamw", PASS_UPDATE, "decay", ANY, NUMBER},
    {"adamw", PASS_UPDATE, "first moment", ANY, "aten::add_[---];" NUMBER},
    {"adamw", PASS_UPDATE, "second moment", ANY, "aten::mul_[--];" NUMBER},
    {"adamw", PASS_UPDATE, "bias correction", ANY,
     "aten::item[-];aten::sqrt[-];" NUMBER "aten::add_[---];" NUMBER},
};

/* ---- visiting ---- */

/* "name?condition[letters];": what one of them is. Gives where the next begins. */
typedef struct {
    char name[TORCH_NAME_BYTES];
    char condition; // a letter; 0: none
    char letters[TORCH_LETTERS + 1];
} Token;

static const char *read_token(const char *at, Token *token) {
    const size_t name = strcspn(at, "?[;"), end = strcspn(at, ";");
    const char *open = memchr(at, '[', end);
    *token = (Token){.condition = at[name] == '?' ? at[name + 1] : 0};
    snprintf(token->name, sizeof token->name, "%.*s", (int)name, at);
    if (open) snprintf(token->letters, sizeof token->letters, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    return at + end + (at[end] == ';');
}

void torch_inside(const TorchCall *call, const char *but, bool shapes, TorchVisit *visit, void *visitor) {
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        if (strcmp(inner[i].name, call->name) != 0) continue;
        for (const char *at = inner[i].inside; *at;) {
            Token token;
            TorchCall inside = {.joins = false};
            at = read_token(at, &token);
            if (but && strcmp(but, token.name) == 0) continue;
            snprintf(inside.name, sizeof inside.name, "%s", token.name);
            if (shapes) torch_shapes_of(call->shapes, token.letters, inside.shapes);
            visit(visitor, &inside);
            torch_inside(&inside, NULL, shapes, visit, visitor);
        }
    }
}

void torch_beside(const Trace *t, int64_t event, bool shapes, TorchVisit *visit, void *visitor) {
    const TraceEvent *e = &t->events[event];
    const bool bias = torch_has_bias(t, event);
    if (e->kind != TRACE_PRIMITIVE || e->form != FORM_NAIVE) return;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        if (beside[i].pass != e->pass || strcmp(beside[i].operation, e->operation) != 0 ||
            strcmp(beside[i].primitive, e->name) != 0 ||
            (beside[i].bias != ANY && beside[i].bias != WITHOUT + bias))
            continue;
        for (const char *at = beside[i].calls; *at;) {
            Token token;
            TorchCall call = {.joins = false};
            char condition[SHAPES_BYTES] = "[[1]]";
            at = read_token(at, &token);
            if (token.condition) torch_shapes(t, event, (char[]){token.condition, 0}, condition);
            if (strcmp(condition, "[[]]") == 0) continue;
            snprintf(call.name, sizeof call.name, "%s", token.name);
            if (shapes) torch_shapes(t, event, token.letters, call.shapes);
            visit(visitor, &call);
            torch_inside(&call, NULL, shapes, visit, visitor);
        }
    }
}
