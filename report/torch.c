#include "report/torch.h"

#include "report/kernel_name.h"

#include <stdio.h>

/* "Memcpy HtoD (Pinned -> Device)" */
static void name_copy(const CopyShape *copy, char name[TORCH_NAME_BYTES]) {
    static const char *const sides[COPY_COUNT] = {"HtoD", "DtoH", "DtoD", "PtoP", "Unknown"};
    const char *host = copy->host == HOST_MEMORY_PINNED ? "Pinned" : "Pageable";
    const bool from_host = copy->direction == COPY_HOST_TO_DEVICE,
               to_host = copy->direction == COPY_DEVICE_TO_HOST;
    snprintf(name, TORCH_NAME_BYTES, "Memcpy %s (%s -> %s)", sides[copy->direction],
             from_host ? host : "Device", to_host ? host : "Device");
}

void torch_device_row(const TraceEvent *e, bool full, char name[TORCH_NAME_BYTES]) {
    char label[KERNEL_NAME_BYTES];
    kernel_label(e->name, label);
    if (e->kind == TRACE_COPY)
        name_copy(&e->copy, name);
    else if (e->kind == TRACE_FILL)
        snprintf(name, TORCH_NAME_BYTES, "Memset (Device)");
    else
        snprintf(name, TORCH_NAME_BYTES, "%s", full ? e->name : label);
}

bool torch_row(const TraceEvent *e, char name[TORCH_NAME_BYTES]) {
    char label[LABEL_BYTES];
    operation_label(e, label);
    if (e->kind == TRACE_STEP && !e->own)
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
