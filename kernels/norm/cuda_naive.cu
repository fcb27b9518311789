/* norm as its formula reads, one kernel per step. Intermediate tensors are fp32. */
#include "kernels/norm/cuda_skip.cuh"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"

/* Copies rows of a view to rows of another view. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 30 registers, no shared memory. Occupancy: not limited: all warps
 * fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none. Fusion: with
 * what reads the copy, as the fused form does by strides. */
template <class T, int N>
static __global__ void copy_rows(const T *from, int64_t from_stride, int64_t count, int64_t width, T *to,
                                 int64_t to_stride) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, column = i - row * width;
        store_pack(to + row * to_stride + column, load_pack<N>(from + row * from_stride + column));
    }
}

/* A view's rows, with each head as a row: t itself if it is dense, else a tensor to gather its rows in. */
static Status take_rows(Ctx *ctx, const char *name, Tensor t, int64_t width, Tensor *dense) {
    Shape shape = shape2(tensor_count(t) / width, width);
    if (!tensor_dense(t)) return take(ctx, ARENA_SCRATCH, name, t.dtype, shape, dense);
    *dense = tensor_reshape(t, shape);
    return OK;
}

template <class T>
static Status copy(Ctx *ctx, Tensor from, int64_t from_stride, Tensor to, int64_t to_stride, int64_t width) {
    int64_t count = tensor_count(from);
    bool packed = walks_in_packs(VECTOR<T>, {width, from_stride, to_stride}, {from.data, to.data});
    return LAUNCH_ELEMENTS(ctx, copy_rows, T, packed, count, data_of<T>(from), from_stride, count, width,
                           data_of<T>(to), to_stride);
}

/* Copies a view to the tensor from take_rows, or back; does nothing if that tensor is the view itself. */
template <class T>
static Status gather(Ctx *ctx, Tensor view, Tensor dense) {
    if (tensor_dense(view)) return OK;
    PRIMITIVE (ctx, "copy", MEMORY, torch_call("aten::copy_"))
        TRY(copy<T>(ctx, view, view.stride, dense, tensor_width(view), tensor_width(view)));
    return OK;
}
template <class T>
static Status scatter(Ctx *ctx, Tensor dense, Tensor view) {
    if (tensor_dense(view)) return OK;
    PRIMITIVE (ctx, "copy", MEMORY, torch_call("aten::copy_"))
        TRY(copy<T>(ctx, dense, tensor_width(view), view, view.stride, tensor_width(view)));
    return OK;
}

/* One warp per row. */
/* Anatomy. Parallel: over rows, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 30 to 42 registers, no shared memory. Occupancy: registers; 62 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: warp shuffles only.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void row_mean(const T *x, int64_t rows, int64_t width, float *mean) {
    for (int64_t row = thread_index() / 32; row < rows; row += thread_count() / 32) {
        float sum = 0.0f;
        for (int64_t c = threadIdx.x % 32 * N; c < width; c += 32 * N) {
            float value[N];
            load_floats(x + row * width + c, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum += value[e];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) mean[row] = sum / (float)width;
    }
}

/* mean = mean(x * y). One warp per row. */
/* Anatomy. Parallel: over rows, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 32 to 38 registers, no shared memory. Occupancy: registers; 75 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: warp shuffles only.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void row_mean_product(const T *x, const T *y, int64_t rows, int64_t width, float *mean) {
    for (int64_t row = thread_index() / 32; row < rows; row += thread_count() / 32) {
        float sum = 0.0f;
        for (int64_t c = threadIdx.x % 32 * N; c < width; c += 32 * N) {
            float a[N], b[N];
            load_floats(x + row * width + c, a);
            load_floats(y + row * width + c, b);
#pragma unroll
            for (int e = 0; e < N; e++) sum += a[e] * b[e];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) mean[row] = sum / (float)width;
    }
}

/* rstd = 1 / sqrt(mean((r - mean)^2) + eps). One warp per row. */
/* Anatomy. Parallel: over rows, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 32 to 42 registers, no shared memory. Occupancy: registers; 62 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: warp shuffles only.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void row_rstd(const T *r, const float *mean, int64_t rows, int64_t width, float eps,
                                float *rstd) {
    for (int64_t row = thread_index() / 32; row < rows; row += thread_count() / 32) {
        float sum = 0.0f, center = mean[row];
        for (int64_t c = threadIdx.x % 32 * N; c < width; c += 32 * N) {
            float value[N];
            load_floats(r + row * width + c, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum += (value[e] - center) * (value[e] - center);
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) rstd[row] = 1.0f / sqrtf(sum / (float)width + eps);
    }
}

/* rstd = 1 / sqrt(mean(r^2) + eps). One warp per row. */
/* Anatomy. Parallel: over rows, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 30 to 42 registers, no shared memory. Occupancy: registers; 62 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: warp shuffles only.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void row_root(const T *r, int64_t rows, int64_t width, float eps, float *rstd) {
    for (int64_t row = thread_index() / 32; row < rows; row += thread_count() / 32) {
        float sum = 0.0f;
        for (int64_t c = threadIdx.x % 32 * N; c < width; c += 32 * N) {
            float value[N];
            load_floats(r + row * width + c, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum += value[e] * value[e];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) rstd[row] = 1.0f / sqrtf(sum / (float)width + eps);
    }
}

/* n = r * rstd */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void divide_by_root(const T *r, const float *rstd, int64_t count, int64_t width, float *n) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N], factor = rstd[i / width]; // a pack does not cross rows
        load_floats(r + i, value);
#pragma unroll
        for (int e = 0; e < N; e++) value[e] *= factor;
        store_floats(n + i, value);
    }
}

/* y = n * weight */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 30 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void scale(const float *n, const T *weight, int64_t count, int64_t width, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N], w[N];
        load_floats(n + i, value);
        load_floats(weight + i % width, w);
#pragma unroll
        for (int e = 0; e < N; e++) value[e] *= w[e];
        store_floats(y + i, value);
    }
}

/* n = (r - mean) * rstd */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void normalize(const T *r, const float *mean, const float *rstd, int64_t count,
                                 int64_t width, float *n) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width; // a pack does not cross rows
        float value[N], center = mean[row], factor = rstd[row];
        load_floats(r + i, value);
#pragma unroll
        for (int e = 0; e < N; e++) value[e] = (value[e] - center) * factor;
        store_floats(n + i, value);
    }
}

/* y = n * weight + bias */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void scale_and_shift(const float *n, const T *weight, const T *bias, int64_t count,
                                       int64_t width, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N], w[N], b[N];
        load_floats(n + i, value);
        load_floats(weight + i % width, w);
        load_floats(bias + i % width, b);
#pragma unroll
        for (int e = 0; e < N; e++) value[e] = value[e] * w[e] + b[e];
        store_floats(y + i, value);
    }
}

/* Normalizes r (rows, C) with the statistics and writes n. */
template <class T>
static Status normalize_rows(Ctx *ctx, const NormForward *f, Tensor r, Tensor n) {
    int64_t width = tensor_width(r), count = tensor_count(r);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {r.data});
    const float *rstd = data_of<float>(f->rstd);
    if (f->kind == NORM_RMS)
        return LAUNCH_ELEMENTS(ctx, divide_by_root, T, packed, count, data_of<T>(r), rstd, count, width,
                               data_of<float>(n));
    return LAUNCH_ELEMENTS(ctx, normalize, T, packed, count, data_of<T>(r), data_of<float>(f->mean), rstd,
                           count, width, data_of<float>(n));
}

/* Computes y from r, both (rows, C); n is scratch of that shape. */
template <class T>
static Status layer_norm(Ctx *ctx, const NormForward *f, Tensor r, Tensor n, Tensor y) {
    const TorchName torch = norm_torch(ctx, f);
    int64_t rows = tensor_rows(r), width = tensor_width(r), count = tensor_count(r);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {r.data, f->weight.data, f->bias.data, y.data});
    PRIMITIVE (ctx, "mean", NORMALIZATION, torch, &f->mean)
        TRY(LAUNCH_ROWS(ctx, row_mean, T, packed, rows, data_of<T>(r), rows, width, data_of<float>(f->mean)));
    PRIMITIVE (ctx, "variance", NORMALIZATION, torch, &f->rstd)
        TRY(LAUNCH_ROWS(ctx, row_rstd, T, packed, rows, data_of<T>(r), data_of<float>(f->mean), rows, width,
                        f->eps, data_of<float>(f->rstd)));
    PRIMITIVE (ctx, "normalize", NORMALIZATION, torch) TRY(normalize_rows<T>(ctx, f, r, n));
    PRIMITIVE (ctx, "scale and shift", NORMALIZATION, torch, &f->y)
        TRY(LAUNCH_ELEMENTS(ctx, scale_and_shift, T, packed, count, data_of<float>(n), data_of<T>(f->weight),
                            data_of<T>(f->bias), count, width, data_of<T>(y)));
    return OK;
}

template <class T>
static Status rms_norm(Ctx *ctx, const NormForward *f, Tensor r, Tensor n, Tensor y) {
    const TorchName torch = norm_torch(ctx, f);
    int64_t rows = tensor_rows(r), width = tensor_width(r), count = tensor_count(r);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {r.data, f->weight.data, y.data});
    PRIMITIVE (ctx, "mean square", NORMALIZATION, torch, &f->rstd)
        TRY(LAUNCH_ROWS(ctx, row_root, T, packed, rows, data_of<T>(r), rows, width, f->eps,
                        data_of<float>(f->rstd)));
    PRIMITIVE (ctx, "normalize", NORMALIZATION, torch) TRY(normalize_rows<T>(ctx, f, r, n));
    PRIMITIVE (ctx, "scale", NORMALIZATION, torch, &f->y)
        TRY(LAUNCH_ELEMENTS(ctx, scale, T, packed, count, data_of<float>(n), data_of<T>(f->weight), count,
                            width, data_of<T>(y)));
    return OK;
}

/* Keeps or drops whole samples of x; y may be x. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 28 to 34 registers, no shared memory. Occupancy: registers; 75 to
 * 100% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs:
 * none. Fusion: all steps of a row into norm_rows of the fused form. */
template <class T, int N>
static __global__ void drop_samples(const SkipMask mask, const T *x, int64_t count, int64_t width, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float value[N];
        load_floats(x + i, value);
        const float factor = sample_factor(mask, i / width);
#pragma unroll
        for (int e = 0; e < N; e++) value[e] *= factor;
        store_floats(y + i, value);
    }
}

/* Applies dropout and stochastic depth to x (rows, C), the skip or its gradient, and writes y. */
template <class T>
static Status drop_skip(Ctx *ctx, const NormForward *f, Tensor x, Tensor y) {
    int64_t count = tensor_count(x), width = tensor_width(x);
    if (dropout_on(&f->dropout)) {
        PRIMITIVE (ctx, "dropout", ELEMENTWISE, torch_call("aten::native_dropout"))
            TRY(dropout_apply(ctx, f->dropout, x, y));
        x = y;
    }
    if (!dropout_on(&f->depth)) return OK;
    bool packed = walks_in_packs(VECTOR<T>, {width}, {x.data, y.data});
    PRIMITIVE (ctx, "stochastic depth", ELEMENTWISE, torch_call("aten::mul"))
        TRY(LAUNCH_ELEMENTS(ctx, drop_samples, T, packed, count, skip_mask(f), data_of<T>(x), count, width,
                            data_of<T>(y)));
    return OK;
}

template <class T>
static Status forward(Ctx *ctx, const NormForward *f) {
    int64_t width = tensor_width(f->weight), count = tensor_count(f->x);
    Tensor x, y, n, added = f->skip; // (rows, C)
    TRY(take_rows(ctx, "norm.x", f->x, width, &x));
    TRY(take_rows(ctx, "norm.y", f->y, width, &y));
    if (norm_drops(f)) TRY(take(ctx, ARENA_SCRATCH, "norm.dropped", x.dtype, x.shape, &added));
    TRY(take(ctx, ARENA_SCRATCH, "norm.normalized", F32, x.shape, &n));
    TRY(gather<T>(ctx, f->x, x));
    if (norm_drops(f)) TRY(drop_skip<T>(ctx, f, f->skip, added));
    if (!tensor_empty(f->skip)) {
        bool packed = walks_in_packs(VECTOR<T>, {count}, {x.data, added.data, f->r.data});
        PRIMITIVE (ctx, "residual add", ELEMENTWISE, torch_call("aten::add"), &f->r)
            TRY(LAUNCH_ELEMENTS(ctx, add_elements, T, packed, count, data_of<T>(x), data_of<T>(added), count,
                                data_of<T>(f->r)));
        x = tensor_reshape(f->r, x.shape);
    }
    TRY(f->kind == NORM_RMS ? rms_norm<T>(ctx, f, x, n, y) : layer_norm<T>(ctx, f, x, n, y));
    return scatter<T>(ctx, y, f->y);
}

template <class T>
static Status norm_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const NormForward *f = static_cast<const NormForward *>(contract);
    return forward<T>(ctx, f);
}
SLOT(NORM, FORWARD, CUDA, NAIVE, F32, norm_forward_cuda_naive<float>);
SLOT(NORM, FORWARD, CUDA, NAIVE, BF16, norm_forward_cuda_naive<bf16>);

/* y = x * n */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 16 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all steps of a row into norm_rows_backward of the fused form. */
template <class T, int N>
static __global__ void multiply(const T *x, const float *n, int64_t count, float *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float a[N], b[N];
        load_floats(x + i, a);
        load_floats(n + i, b);
#pragma unroll
        for (int e = 0; e < N; e++) a[e] *= b[e];
        store_floats(y + i, a);
    }
}

/* g = dy * weight, with the same weights for each row */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 30 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all steps of a row into norm_rows_backward of the fused form. */
template <class T, int N>
static __global__ void multiply_rows(const T *dy, const T *weight, int64_t count, int64_t width, float *g) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float a[N], w[N];
        load_floats(dy + i, a);
        load_floats(weight + i % width, w);
#pragma unroll
        for (int e = 0; e < N; e++) a[e] *= w[e];
        store_floats(g + i, a);
    }
}

struct Statistics { // (rows) each; g_mean is NULL for RMS
    const float *rstd, *g_mean, *gn_mean;
};

/* dr = (or +=) rstd * (g - mean(g) - n * mean(g * n)) */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 22 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: all steps of a row into norm_rows_backward of the fused form. */
template <class T, int N>
static __global__ void input_gradient(const float *n, const float *g, Statistics s, int64_t count,
                                      int64_t width, bool accumulate, T *dr) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width;
        float rstd = s.rstd[row], g_mean = s.g_mean ? s.g_mean[row] : 0.0f, gn_mean = s.gn_mean[row];
        float normalized[N], gradient[N], before[N] = {};
        load_floats(n + i, normalized);
        load_floats(g + i, gradient);
        if (accumulate) load_floats(dr + i, before);
#pragma unroll
        for (int e = 0; e < N; e++) {
            gradient[e] = before[e] + rstd * (gradient[e] - g_mean - normalized[e] * gn_mean);
        }
        store_floats(dr + i, gradient);
    }
}

/* The backward pass on dense rows: views are gathered, and dr is scattered back. */
struct Rows {
    Tensor r, dy, dr;       // (rows, C)
    Tensor n, g, product;   // (rows, C) fp32
    Tensor g_mean, gn_mean; // (rows) fp32; g_mean is for LAYER only
    Tensor partials;
};

static Status take_backward(Ctx *ctx, const NormBackward *b, Rows *s) {
    const NormForward *f = b->forward;
    int64_t width = tensor_width(f->weight), rows = tensor_count(f->x) / width;
    TRY(take_rows(ctx, "norm.r", tensor_empty(f->skip) ? f->x : f->r, width, &s->r));
    TRY(take_rows(ctx, "norm.dy", b->dy, width, &s->dy));
    TRY(take_rows(ctx, "norm.dr", b->dr, width, &s->dr));
    TRY(take(ctx, ARENA_SCRATCH, "norm.normalized", F32, shape2(rows, width), &s->n));
    TRY(take(ctx, ARENA_SCRATCH, "norm.g", F32, shape2(rows, width), &s->g));
    TRY(take(ctx, ARENA_SCRATCH, "norm.product", F32, shape2(rows, width), &s->product));
    if (f->kind == NORM_LAYER) TRY(take(ctx, ARENA_SCRATCH, "norm.g_mean", F32, shape1(rows), &s->g_mean));
    TRY(take(ctx, ARENA_SCRATCH, "norm.gn_mean", F32, shape1(rows), &s->gn_mean));
    return columns_take(ctx, s->product, &s->partials);
}

/* dweight += sum of dy * n;   dbias += sum of dy;   dr_sums += sum of the incoming dr */
template <class T>
static Status parameter_gradients(Ctx *ctx, const NormBackward *b, bool packed, const Rows *s) {
    const TorchName torch = norm_torch(ctx, b->forward);
    int64_t count = tensor_count(s->r);
    PRIMITIVE (ctx, "normalize", NORMALIZATION, torch) TRY(normalize_rows<T>(ctx, b->forward, s->r, s->n));
    PRIMITIVE (ctx, "multiply", NORMALIZATION, torch)
        TRY(LAUNCH_ELEMENTS(ctx, multiply, T, packed, count, data_of<T>(s->dy), data_of<float>(s->n), count,
                            data_of<float>(s->product)));
    PRIMITIVE (ctx, "weight gradient", NORMALIZATION, torch)
        TRY(columns_add(ctx, s->product, s->partials, b->dweight));
    if (!tensor_empty(b->dbias))
        PRIMITIVE (ctx, "bias gradient", NORMALIZATION, torch)
            TRY(columns_add(ctx, s->dy, s->partials, b->dbias));
    if (!tensor_empty(b->dr_sums))
        PRIMITIVE (ctx, "column sums", NORMALIZATION, torch_call("aten::sum"))
            TRY(columns_add(ctx, s->dr, s->partials, b->dr_sums));
    return OK;
}

template <class T>
static Status backward(Ctx *ctx, const NormBackward *b) {
    const NormForward *f = b->forward;
    const TorchName torch = norm_torch(ctx, f);
    Rows s = {};
    TRY(take_backward(ctx, b, &s));
    TRY(gather<T>(ctx, f->x, s.r));
    TRY(gather<T>(ctx, b->dy, s.dy));
    if (b->accumulate) TRY(gather<T>(ctx, b->dr, s.dr));
    int64_t rows = tensor_rows(s.r), width = tensor_width(s.r), count = tensor_count(s.r);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {s.r.data, s.dy.data, s.dr.data, f->weight.data});
    float *n = data_of<float>(s.n), *g = data_of<float>(s.g);
    float *g_mean = data_of<float>(s.g_mean), *gn_mean = data_of<float>(s.gn_mean);
    TRY(parameter_gradients<T>(ctx, b, packed, &s));
    PRIMITIVE (ctx, "scale", NORMALIZATION, torch)
        TRY(LAUNCH_ELEMENTS(ctx, multiply_rows, T, packed, count, data_of<T>(s.dy), data_of<T>(f->weight),
                            count, width, g));
    bool wide = width % VECTOR<float> == 0;
    if (g_mean)
        PRIMITIVE (ctx, "mean", NORMALIZATION, torch)
            TRY(LAUNCH_ROWS(ctx, row_mean, float, wide, rows, g, rows, width, g_mean));
    PRIMITIVE (ctx, "mean", NORMALIZATION, torch)
        TRY(LAUNCH_ROWS(ctx, row_mean_product, float, wide, rows, g, n, rows, width, gn_mean));
    Statistics statistics = {data_of<float>(f->rstd), g_mean, gn_mean};
    PRIMITIVE (ctx, "input gradient", NORMALIZATION, torch)
        TRY(LAUNCH_ELEMENTS(ctx, input_gradient, T, packed, count, n, g, statistics, count, width,
                            b->accumulate, data_of<T>(s.dr)));
    TRY(scatter<T>(ctx, s.dr, b->dr));
    if (norm_drops(f)) TRY(drop_skip<T>(ctx, f, b->dr, b->dskip));
    return OK;
}

template <class T>
static Status norm_backward_cuda_naive(Ctx *ctx, const void *contract) {
    const NormBackward *b = static_cast<const NormBackward *>(contract);
    return backward<T>(ctx, b);
}
SLOT(NORM, BACKWARD, CUDA, NAIVE, F32, norm_backward_cuda_naive<float>);
SLOT(NORM, BACKWARD, CUDA, NAIVE, BF16, norm_backward_cuda_naive<bf16>);
