#include "report/torch.h"

#include <stdio.h>

bool torch_row(const TraceEvent *e, char name[TORCH_NAME_BYTES]) {
    char label[LABEL_BYTES];
    operation_label(e, label);
    if (e->kind == TRACE_STEP)
        snprintf(name, TORCH_NAME_BYTES, "ProfilerStep*");
    else if (e->kind == TRACE_OPERATION)
        snprintf(name, TORCH_NAME_BYTES, "fusebox::%s", label);
    else if (e->kind == TRACE_PRIMITIVE && !e->torch)
        snprintf(name, TORCH_NAME_BYTES, "fusebox::%s: %s", label, e->name);
    else
        snprintf(name, TORCH_NAME_BYTES, "%s", e->torch ? e->torch : e->name);
    if (e->kind == TRACE_OPERATION) return e->form != FORM_NAIVE;
    return e->kind > TRACE_OPERATION || e->layer < 0;
}
