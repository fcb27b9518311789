/* norm as its formula reads, one kernel for each step. What passes between the steps is fp32. */
#include "kernels/norm/norm.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/dropout/cuda_mask.cuh"

/* One warp for each row. */
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

/* rstd = 1 / sqrt(mean((r - mean)^2) + eps). One warp for each row. */
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

/* n = (r - mean) * rstd */
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

template <class T>
static Status forward(Ctx *ctx, const NormForward *f) {
    int64_t rows = tensor_rows(f->x), width = tensor_width(f->x), count = rows * width;
    bool skip = !tensor_empty(f->skip);
    Tensor r = skip ? f->r : f->x, added = f->skip, n; // (rows, C)
    if (dropout_on(&f->dropout))
        TRY(take(ctx, ARENA_SCRATCH, "norm.dropped", r.dtype, shape2(rows, width), &added));
    TRY(take(ctx, ARENA_SCRATCH, "norm.normalized", F32, shape2(rows, width), &n));
    bool packed = walks_in_packs(VECTOR<T>, {width},
                                 {f->x.data, f->skip.data, r.data, f->weight.data, f->bias.data, f->y.data});
    const float *mean = data_of<float>(f->mean), *rstd = data_of<float>(f->rstd);
    if (dropout_on(&f->dropout))
        PRIMITIVE (ctx, "dropout") TRY(dropout_apply(ctx, f->dropout, f->skip, added));
    if (skip)
        PRIMITIVE (ctx, "residual add")
            TRY(LAUNCH_ELEMENTS(ctx, add_elements, T, packed, count, data_of<T>(f->x), data_of<T>(added),
                                count, data_of<T>(r)));
    PRIMITIVE (ctx, "mean")
        TRY(LAUNCH_ROWS(ctx, row_mean, T, packed, rows, data_of<T>(r), rows, width, data_of<float>(f->mean)));
    PRIMITIVE (ctx, "variance")
        TRY(LAUNCH_ROWS(ctx, row_rstd, T, packed, rows, data_of<T>(r), mean, rows, width, f->eps,
                        data_of<float>(f->rstd)));
    PRIMITIVE (ctx, "normalize")
        TRY(LAUNCH_ELEMENTS(ctx, normalize, T, packed, count, data_of<T>(r), mean, rstd, count, width,
                            data_of<float>(n)));
    PRIMITIVE (ctx, "scale and shift")
        TRY(LAUNCH_ELEMENTS(ctx, scale_and_shift, T, packed, count, data_of<float>(n), data_of<T>(f->weight),
                            data_of<T>(f->bias), count, width, data_of<T>(f->y)));
    return OK;
}

template <class T>
static Status norm_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const NormForward *f = static_cast<const NormForward *>(contract);
    return forward<T>(ctx, f);
}
SLOT(NORM, FORWARD, CUDA, NAIVE, F32, norm_forward_cuda_naive<float>);
SLOT(NORM, FORWARD, CUDA, NAIVE, BF16, norm_forward_cuda_naive<bf16>);

/* y = x * n */
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

/* g = dy * weight, each row by the same weights */
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

struct Statistics { // (rows) each
    const float *rstd, *g_mean, *gn_mean;
};

/* dr = (or +=) rstd * (g - mean(g) - n * mean(g * n)) */
template <class T, int N>
static __global__ void input_gradient(const float *n, const float *g, Statistics s, int64_t count,
                                      int64_t width, bool accumulate, T *dr) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width;
        float rstd = s.rstd[row], g_mean = s.g_mean[row], gn_mean = s.gn_mean[row];
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

struct Scratch {
    Tensor n, g, product;   // (rows, C) fp32
    Tensor g_mean, gn_mean; // (rows) fp32
    Tensor partials;
};

static Status take_scratch(Ctx *ctx, int64_t rows, int64_t width, Scratch *s) {
    TRY(take(ctx, ARENA_SCRATCH, "norm.normalized", F32, shape2(rows, width), &s->n));
    TRY(take(ctx, ARENA_SCRATCH, "norm.g", F32, shape2(rows, width), &s->g));
    TRY(take(ctx, ARENA_SCRATCH, "norm.product", F32, shape2(rows, width), &s->product));
    TRY(take(ctx, ARENA_SCRATCH, "norm.g_mean", F32, shape1(rows), &s->g_mean));
    TRY(take(ctx, ARENA_SCRATCH, "norm.gn_mean", F32, shape1(rows), &s->gn_mean));
    return columns_take(ctx, s->product, &s->partials);
}

/* dweight += sum of dy * n;   dbias += sum of dy;   dr_sums += sum of dr, which has yet to be added to */
template <class T>
static Status parameter_gradients(Ctx *ctx, const NormBackward *b, bool packed, const Scratch *s) {
    const NormForward *f = b->forward;
    int64_t width = tensor_width(f->x), count = tensor_count(f->x);
    const Tensor r = tensor_empty(f->skip) ? f->x : f->r;
    PRIMITIVE (ctx, "normalize")
        TRY(LAUNCH_ELEMENTS(ctx, normalize, T, packed, count, data_of<T>(r), data_of<float>(f->mean),
                            data_of<float>(f->rstd), count, width, data_of<float>(s->n)));
    PRIMITIVE (ctx, "multiply")
        TRY(LAUNCH_ELEMENTS(ctx, multiply, T, packed, count, data_of<T>(b->dy), data_of<float>(s->n), count,
                            data_of<float>(s->product)));
    PRIMITIVE (ctx, "weight gradient") TRY(columns_add(ctx, s->product, s->partials, b->dweight));
    PRIMITIVE (ctx, "bias gradient") TRY(columns_add(ctx, b->dy, s->partials, b->dbias));
    if (!tensor_empty(b->dr_sums))
        PRIMITIVE (ctx, "column sums") TRY(columns_add(ctx, b->dr, s->partials, b->dr_sums));
    return OK;
}

template <class T>
static Status backward(Ctx *ctx, const NormBackward *b) {
    const NormForward *f = b->forward;
    int64_t rows = tensor_rows(f->x), width = tensor_width(f->x), count = rows * width;
    const Tensor r = tensor_empty(f->skip) ? f->x : f->r;
    bool packed = walks_in_packs(VECTOR<T>, {width}, {r.data, b->dy.data, b->dr.data, f->weight.data});
    Scratch s;
    TRY(take_scratch(ctx, rows, width, &s));
    float *n = data_of<float>(s.n), *g = data_of<float>(s.g), *product = data_of<float>(s.product);
    float *g_mean = data_of<float>(s.g_mean), *gn_mean = data_of<float>(s.gn_mean);
    TRY(parameter_gradients<T>(ctx, b, packed, &s));
    PRIMITIVE (ctx, "scale")
        TRY(LAUNCH_ELEMENTS(ctx, multiply_rows, T, packed, count, data_of<T>(b->dy), data_of<T>(f->weight),
                            count, width, g));
    bool wide = width % VECTOR<float> == 0;
    PRIMITIVE (ctx, "mean") TRY(LAUNCH_ROWS(ctx, row_mean, float, wide, rows, g, rows, width, g_mean));
    PRIMITIVE (ctx, "multiply") TRY(LAUNCH_ELEMENTS(ctx, multiply, float, wide, count, g, n, count, product));
    PRIMITIVE (ctx, "mean") TRY(LAUNCH_ROWS(ctx, row_mean, float, wide, rows, product, rows, width, gn_mean));
    Statistics statistics = {data_of<float>(f->rstd), g_mean, gn_mean};
    PRIMITIVE (ctx, "input gradient")
        TRY(LAUNCH_ELEMENTS(ctx, input_gradient, T, packed, count, n, g, statistics, count, width,
                            b->accumulate, data_of<T>(b->dr)));
    if (dropout_on(&f->dropout))
        PRIMITIVE (ctx, "dropout gradient") TRY(dropout_apply(ctx, f->dropout, b->dr, b->dskip));
    return OK;
}

template <class T>
static Status norm_backward_cuda_naive(Ctx *ctx, const void *contract) {
    const NormBackward *b = static_cast<const NormBackward *>(contract);
    return backward<T>(ctx, b);
}
SLOT(NORM, BACKWARD, CUDA, NAIVE, F32, norm_backward_cuda_naive<float>);
SLOT(NORM, BACKWARD, CUDA, NAIVE, BF16, norm_backward_cuda_naive<bf16>);
