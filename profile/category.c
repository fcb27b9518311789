#include "profile/category.h"

#include <string.h>

/* Which part of an operation fills what, by the name under which it is taken; "y" is the result. Of what is
 * not here, that begins with the operation's name or is taken inside of it, the part that comes next. */
static const struct {
    const char *operation, *primitive, *name;
} fills[] = {
    {"embed", "token gather", "y"},
    {"patch", "unfold", "patch.x"},
    {"patch", "product", "y"},
    {"norm", "residual add", "norm.residual"},
    {"norm", "dropout", "norm.dropped"},
    {"norm", "mean", "norm.mean"},
    {"norm", "variance", "norm.rstd"},
    {"norm", "mean square", "norm.rstd"},
    {"norm", "normalize", "y"},
    {"linear", "product", "y"},
    {"linear", "product", "before activation"},
    {"linear", "GELU", "y"},
    {"linear", "ReLU", "y"},
    {"linear", "tanh", "y"},
    {"linear", "SiLU", "y"},
    {"linear", "input gradient", "d branch"},
    {"linear", "input gradient", "d all rows"},
    {"linear", "input gradient", "d heads"},
    {"linear", "input gradient", "d memory"},
    {"attention", "score product", "attention.probabilities"},
    {"attention", "log-sum-exp", "attention.lse"},
    {"attention", "softmax max", "attention.max"},
    {"attention", "softmax sum", "attention.sum"},
    {"attention", "merge heads", "y"},
    {"attention", "merge heads", "d qkv"},
    {"attention", "merge heads", "d query"},
    {"attention", "merge heads", "d memory"},
    {"loss", "logits product", "loss.log_probabilities"},
    {"loss", "pick", "losses"},
    {"loss", "hidden gradient", "d hidden"},
    {"linear", "SiLU gradient", "d gate and up"},
};

bool primitive_fills(const char *operation, const char *primitive, const char *name) {
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++)
        if (strcmp(fills[i].operation, operation) == 0 && strcmp(fills[i].name, name) == 0 &&
            (!primitive || strcmp(fills[i].primitive, primitive) == 0))
            return true;
    return !primitive && (strcmp(name, "y") == 0 || strncmp(name, operation, strlen(operation)) == 0);
}
