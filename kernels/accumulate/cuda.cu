/* accumulate: one primitive, the same kernel in both forms. */
#include "kernels/accumulate/accumulate.h"

#include "kernels/cuda/elements.cuh"

static Status accumulate_cuda(Ctx *ctx, const void *contract) {
    const Accumulate *a = static_cast<const Accumulate *>(contract);
    const int64_t count = tensor_count(a->x);
    const bool packed = walks_in_packs(VECTOR<float>, {count}, {a->x.data, a->sum.data});
    PRIMITIVE (ctx, "gradient sum", ELEMENTWISE, torch_call("aten::add_"))
        TRY(LAUNCH_ELEMENTS(ctx, add_elements, float, packed, count, data_of<float>(a->sum),
                            data_of<float>(a->x), count, data_of<float>(a->sum)));
    return OK;
}
SLOT(ACCUMULATE, BACKWARD, CUDA, NAIVE, F32, accumulate_cuda);
SLOT(ACCUMULATE, BACKWARD, CUDA, NAIVE, BF16, accumulate_cuda);
SLOT(ACCUMULATE, BACKWARD, CUDA, FUSED, F32, accumulate_cuda);
SLOT(ACCUMULATE, BACKWARD, CUDA, FUSED, BF16, accumulate_cuda);
