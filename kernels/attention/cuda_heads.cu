#include "kernels/attention/cuda_heads.cuh"

#include "kernels/cuda/packs.cuh"

namespace {

/* A (B, rows, heads*D) matrix with rows `stride` apart and batch rows batch_rows rows apart. */
template <class T>
struct Merged {
    T *data;
    int64_t stride, batch_rows;
};

template <class T>
Merged<T> merged(const Tensor &t, int64_t batch_rows) {
    return {data_of<T>(t), t.stride, batch_rows};
}

template <class T>
bool heads_in_packs(const Tensor &t, int64_t size) {
    return walks_in_packs(VECTOR<T>, {size, t.stride}, {t.data});
}

/* (B, rows, heads*D) -> (B, heads, room, D). A thread moves one pack of one head of one row. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 40 to 44 registers, no shared memory. Occupancy: registers; 62 to
 * 75% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: with the product before or after it, by strides, as the fused form does. */
template <class T, int N>
__global__ void split_kernel(Merged<T> x, int64_t count, int64_t heads, int64_t rows, const int32_t *pasts,
                             int64_t room, int64_t size, T *split) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t above = i / size, d = i - above * size; // above = (b * heads + h) * room + t
        int64_t outer = above / room, t = above - outer * room;
        int64_t b = outer / heads, h = outer - b * heads;
        const T *from = x.data + (b * x.batch_rows + t) * x.stride + h * size + d;
        store_pack(split + i, t < rows + (pasts ? pasts[b] : 0) ? load_pack<N>(from) : Pack<T, N>{});
    }
}

/* (B, heads, room, D) -> (B, rows, heads*D) */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 44 to 46 registers, no shared memory. Occupancy: registers; 62% of
 * the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: with the product before or after it, by strides, as the fused form does. */
template <class T, int N>
__global__ void merge_kernel(const T *split, int64_t count, int64_t heads, int64_t rows, int64_t room,
                             int64_t size, Merged<T> y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t above = i / size, d = i - above * size;
        int64_t outer = above / rows, t = above - outer * rows;
        int64_t b = outer / heads, h = outer - b * heads;
        T *to = y.data + (b * y.batch_rows + t) * y.stride + h * size + d;
        store_pack(to, load_pack<N>(split + (outer * room + t) * size + d));
    }
}

/* Copies the rows of x (B, rows, width) to rows past .. past + rows of the cache; pasts may be NULL. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 40 to 46 registers, no shared memory. Occupancy: registers; 62 to
 * 75% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: with the product before or after it, by strides, as the fused form does. */
template <class T, int N>
__global__ void append_kernel(Merged<T> x, int64_t count, int64_t rows, int64_t width, int64_t past,
                              const int32_t *pasts, Merged<T> cache) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, column = i - row * width; // row = b * rows + t
        int64_t b = row / rows, t = row - b * rows;
        const int64_t first = pasts ? pasts[b] : past;
        store_pack(cache.data + (b * cache.batch_rows + first + t) * cache.stride + column,
                   load_pack<N>(x.data + row * x.stride + column));
    }
}

} // namespace

Status split_heads(Ctx *ctx, Tensor x, int64_t rows, Tensor split, Tensor pasts) {
    int64_t heads = split.shape.d[1], room = split.shape.d[2], size = split.shape.d[3];
    int64_t count = tensor_count(split);
    DISPATCH_FLOAT(x.dtype, T, {
        bool packed = heads_in_packs<T>(x, size);
        return LAUNCH_ELEMENTS(ctx, split_kernel, T, packed, count, merged<T>(x, x.shape.d[1]), count, heads,
                               rows, data_of<int32_t>(pasts), room, size, data_of<T>(split));
    });
}

Status merge_heads(Ctx *ctx, Tensor split, Tensor y) {
    int64_t heads = split.shape.d[1], room = split.shape.d[2], size = split.shape.d[3];
    int64_t rows = y.shape.d[1], count = tensor_count(y);
    DISPATCH_FLOAT(y.dtype, T, {
        bool packed = heads_in_packs<T>(y, size);
        return LAUNCH_ELEMENTS(ctx, merge_kernel, T, packed, count, data_of<T>(split), count, heads, rows,
                               room, size, merged<T>(y, rows));
    });
}

Status append_rows(Ctx *ctx, Tensor x, int64_t past, Tensor pasts, Tensor cache) {
    int64_t count = tensor_count(x), width = tensor_width(x);
    DISPATCH_FLOAT(x.dtype, T, {
        bool packed = heads_in_packs<T>(x, width) && heads_in_packs<T>(cache, width);
        return LAUNCH_ELEMENTS(ctx, append_kernel, T, packed, count, merged<T>(x, x.shape.d[1]), count,
                               x.shape.d[1], width, past, data_of<int32_t>(pasts),
                               merged<T>(cache, cache.shape.d[1]));
    });
}
