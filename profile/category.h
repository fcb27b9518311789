/* category: what kind of work an operation or a primitive is, and PyTorch's name for it. */
#pragma once

#include "profile/trace.h"

/* Of an operation (kernels/ops.def), or with `primitive` of that part of it: attention's softmax is
 * attention, its products are matrix products. All parts of an operation that has no line in the table of
 * primitives are of its own category; in one that has, CATEGORY_OTHER of a primitive that is not known, which
 * a test refuses. */
Category category_of(Operation operation, const char *primitive);

/* What PyTorch's profiler calls the primitive, "aten::bmm"; NULL where it has no such operation. `joins`:
 * with what ran in the same operation before it under that name it is a single call there. */
const char *torch_name(Operation operation, Pass pass, const char *primitive, bool *joins);
