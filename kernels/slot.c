#include "kernels/slot.h"

extern const Slot __start_op_slots[], __stop_op_slots[]; // defined by the linker from the section's name

/* The operation table, filled before main begins and read-only afterwards. */
static struct {
    OpFunction functions[PASS_COUNT][BACKEND_COUNT][FORM_COUNT][DTYPE_COUNT];
    bool filled[BACKEND_COUNT][FORM_COUNT][DTYPE_COUNT]; // every pass of the operation has a slot
} table[OP_COUNT];

bool slots_have_pass(Operation operation, Pass pass) {
    for (const Slot *s = __start_op_slots; s < __stop_op_slots; s++)
        if (s->operation == operation && s->pass == pass) return true;
    return false;
}

__attribute__((constructor)) static void fill_table(void) {
    for (const Slot *s = __start_op_slots; s < __stop_op_slots; s++)
        table[s->operation].functions[s->pass][s->backend][s->form][s->dtype] = s->function;
    for (const Slot *s = __start_op_slots; s < __stop_op_slots; s++) {
        bool filled = true;
        for (int pass = 0; pass < PASS_COUNT; pass++)
            filled &= !slots_have_pass(s->operation, (Pass)pass) ||
                      slot_function(s->backend, s->dtype, s->operation, (Pass)pass, s->form);
        table[s->operation].filled[s->backend][s->form][s->dtype] = filled;
    }
}

OpFunction slot_function(Backend backend, Dtype dtype, Operation operation, Pass pass, Form form) {
    return table[operation].functions[pass][backend][form][dtype];
}

bool slots_filled(Backend backend, Dtype dtype, Operation operation, Form form) {
    return table[operation].filled[backend][form][dtype];
}
