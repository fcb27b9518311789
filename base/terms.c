#include "base/terms.h"

void work_add(Work *sum, Work work) {
    sum->flops += work.flops;
    sum->bytes += work.bytes;
    sum->sent += work.sent;
    sum->written += work.written;
    sum->needed += work.needed;
    sum->flops8 += work.flops8;
}

Work work_times(Work w, double factor) {
    return (Work){w.flops * factor,   w.bytes * factor,  w.sent * factor,
                  w.written * factor, w.needed * factor, w.flops8 * factor};
}

const char *form_name(int form) {
    static const char *const names[FORM_COUNT + 1] = {"naive", "fused"};
    return names[form];
}

const char *pass_name(int pass) {
    static const char *const names[PASS_COUNT + 1] = {"forward", "backward", "update"};
    return names[pass];
}

const char *phase_name(int phase) {
    static const char *const names[PHASE_COUNT + 1] = {"reader", "forward", "backward", "optimizer",
                                                       "others"};
    return names[phase];
}

const char *category_name(int category) {
    static const char *const names[CATEGORY_COUNT + 1] = {
        "matrix", "normalization", "activation", "attention",     "embedding", "elementwise",
        "memory", "loss",          "optimizer",  "communication", "other"};
    return names[category];
}

const char *arithmetic_name(int arithmetic) {
    static const char *const names[ARITHMETIC_COUNT + 1] = {"plain", "exponential", "softmax"};
    return names[arithmetic];
}
