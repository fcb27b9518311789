/* category: what kind of work an operation or a primitive is, and PyTorch's name for it. */
#pragma once

#include "kernels/ctx.h"
#include "report/trace.h"

/* That of this name; OP_COUNT: none, nor of NULL. */
Operation operation_named(const char *name);

/* Whether the primitive, or with NULL any, fills what is taken for its operation under this name ("y": its
 * result). */
bool primitive_fills(const char *operation, const char *primitive, const char *name);

/* What PyTorch's profiler calls the primitive, with what it nests in: "aten::matmul[AB]/aten::bmm[ab]", the
 * letters as in profile/torch.h; NULL where it has no such operation. `bias`: the operation has one. `joins`:
 * so many of these names, from the first, are calls that the operation's earlier primitives have begun. */
const char *torch_name(Operation operation, Pass pass, const char *primitive, bool bias, int *joins);
