#include "kernels/attention/cuda_rotary.cuh"

#include "kernels/cuda/packs.cuh"

namespace {

constexpr int THREADS = 256, HEADS = 4; // of a thread: its cosines and sines serve so many heads

template <class T>
struct Heads {
    T *x;                        // (rows, heads * 2 * half), rows `stride` apart
    int64_t rows, stride;        // of all batch rows
    int batch_rows, heads, half; // T; heads; D/2
    const float *frequencies;    // (half)
    const int *past_on_device;   // or NULL: past
    int64_t past;
    float sign; // of the sines: -1 turns back
};

/* A thread has N pairs of HEADS heads of a row; blockIdx.y is which HEADS. Floor: read and write x,
 * 2 * rows * heads * D * sizeof(T) bytes. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS) rotate_kernel(const Heads<T> h) {
    const int packs = h.half / N;
    wait_for_previous();
    let_next_start();
    const int64_t past = h.past_on_device ? *h.past_on_device : h.past;
    const int first = int(blockIdx.y) * HEADS;
    for (int64_t i = thread_index(); i < h.rows * packs; i += thread_count()) {
        const int64_t row = i / packs;
        const int d = int(i - row * packs) * N;
        const float position = float(past + row % h.batch_rows);
        T *const at = h.x + row * h.stride + int64_t(first) * 2 * h.half + d;
        float low[HEADS][N], high[HEADS][N];
#pragma unroll
        for (int head = 0; head < HEADS; head++) {
            if (first + head >= h.heads) break;
            load_floats(at + head * 2 * h.half, low[head]);
            load_floats(at + head * 2 * h.half + h.half, high[head]);
        }
        float cosines[N], sines[N];
#pragma unroll
        for (int e = 0; e < N; e++) {
            sincosf(position * h.frequencies[d + e], &sines[e], &cosines[e]);
            sines[e] *= h.sign;
        }
#pragma unroll
        for (int head = 0; head < HEADS; head++) {
            if (first + head >= h.heads) break;
#pragma unroll
            for (int e = 0; e < N; e++) {
                const float turned = low[head][e] * cosines[e] - high[head][e] * sines[e];
                high[head][e] = high[head][e] * cosines[e] + low[head][e] * sines[e];
                low[head][e] = turned;
            }
            store_floats(at + head * 2 * h.half, low[head]);
            store_floats(at + head * 2 * h.half + h.half, high[head]);
        }
    }
}

template <class T, int N>
Status launch(Ctx *ctx, const Heads<T> &h) {
    const int64_t items = h.rows * (h.half / N);
    const dim3 blocks(grid_stride_blocks(ctx, items, THREADS), unsigned(divide_up(h.heads, HEADS)));
    return LAUNCH_EARLY(ctx, (rotate_kernel<T, N>), blocks, THREADS, 0, h);
}

} // namespace

Status rotate_heads(Ctx *ctx, const AttentionForward *a, Tensor x, const int *past_on_device, bool back) {
    const int64_t half = tensor_width(a->frequencies), rows = tensor_rows(x),
                  heads = tensor_width(x) / (2 * half);
    DISPATCH_FLOAT(x.dtype, T, {
        const Heads<T> h = {data_of<T>(x),
                            rows,
                            x.stride,
                            (int)x.shape.d[1],
                            (int)heads,
                            (int)half,
                            data_of<float>(a->frequencies),
                            past_on_device,
                            a->past,
                            back ? -1.f : 1.f};
        const bool packed = walks_in_packs(VECTOR<T>, {half, x.stride}, {h.x});
        DISPATCH_PACK(packed, T, N, return (launch<T, N>(ctx, h)));
    });
}
