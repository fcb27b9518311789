#include "kernels/attention/cuda_rotary.cuh"

#include "kernels/cuda/packs.cuh"

namespace {

constexpr int THREADS = 256, HEADS = 4; // a thread uses its cosines and sines for this many heads
constexpr int FEW = 1024;               // up to this many packs of all rows, packs are of two pairs

template <class T>
struct Heads {
    T *x; // (rows, count * D), rows `stride` apart
    int64_t stride;
    int count;
};

template <class T>
struct Turn {
    Heads<T> q, k;
    int64_t rows;              // number of rows in all batch rows
    int batch_rows, half;      // T; D/2
    const float *frequencies;  // (half)
    const int *past_on_device; // rows in the cache; NULL: past
    const int *pasts;          // of each batch row; NULL: one past for all
    const int *starts;         // (rows), the start of each row's document; or NULL
    int64_t past;
    float sign; // sign of the sines: -1 rotates back
};

/* A thread has N pairs in each of HEADS heads of a row; blockIdx.y selects the heads, those of q before those
 * of k. Floor: read and write q and k, 2 * rows * (heads + kv_heads) * D * sizeof(T) bytes. */
/* Anatomy. Parallel: over packs of half a head and groups of 4 heads. Launch: grid stride x groups of heads,
 * blocks of 256. Holds: 32 to 106 registers, no shared memory. Occupancy: registers; 25 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced, 8 loads in flight; one element where rows are not aligned. Syncs:
 * none. Fusion: into attention's load of q and k, or the projection's epilogue. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS) rotate_kernel(const Turn<T> t) {
    const int packs = t.half / N, of_q = int(divide_up(t.q.count, HEADS));
    const bool is_q = int(blockIdx.y) < of_q;
    const Heads<T> heads = is_q ? t.q : t.k;
    const int first = (int(blockIdx.y) - (is_q ? 0 : of_q)) * HEADS;
    wait_for_previous();
    let_next_start();
    const int64_t shared = t.past_on_device ? *t.past_on_device : t.past;
    for (int64_t i = thread_index(); i < t.rows * packs; i += thread_count()) {
        const int64_t row = i / packs;
        const int d = int(i - row * packs) * N;
        const int64_t past = t.pasts ? t.pasts[row / t.batch_rows] : shared;
        const float position = float(past + row % t.batch_rows - (t.starts ? t.starts[row] : 0));
        T *const at = heads.x + row * heads.stride + int64_t(first) * 2 * t.half + d;
        float low[HEADS][N], high[HEADS][N];
#pragma unroll
        for (int head = 0; head < HEADS; head++) {
            if (first + head >= heads.count) break;
            load_floats(at + head * 2 * t.half, low[head]);
            load_floats(at + head * 2 * t.half + t.half, high[head]);
        }
        float cosines[N], sines[N];
#pragma unroll
        for (int e = 0; e < N; e++) {
            sincosf(position * t.frequencies[d + e], &sines[e], &cosines[e]);
            sines[e] *= t.sign;
        }
#pragma unroll
        for (int head = 0; head < HEADS; head++) {
            if (first + head >= heads.count) break;
#pragma unroll
            for (int e = 0; e < N; e++)
                rotate_pair(low[head][e], high[head][e], make_float2(cosines[e], sines[e]));
            store_floats(at + head * 2 * t.half, low[head]);
            store_floats(at + head * 2 * t.half + t.half, high[head]);
        }
    }
}

template <class T, int N>
Status launch(Ctx *ctx, const Turn<T> &t) {
    if constexpr (N > 2)
        if (t.rows * (t.half / N) <= FEW) return launch<T, 2>(ctx, t);
    const int64_t groups = divide_up(t.q.count, HEADS) + divide_up(t.k.count, HEADS);
    const dim3 blocks(grid_stride_blocks(ctx, t.rows * (t.half / N), THREADS), unsigned(groups));
    return LAUNCH_EARLY(ctx, (rotate_kernel<T, N>), blocks, THREADS, 0, t);
}

/* Anatomy. Parallel: over pairs of position and frequency, one per thread. Launch: count / 256 blocks of 256.
 * Holds: 17 registers, no shared memory. Occupancy: not limited: all warps fit. Reads: one scalar per thread,
 * coalesced. Syncs: none. Fusion: one table for all layers of a step. */
__global__ void __launch_bounds__(THREADS)
    angles_kernel(const float *frequencies, int64_t past, int64_t count, int half, float2 *angles) {
    wait_for_previous();
    let_next_start();
    const int64_t i = thread_index();
    if (i >= count) return;
    float2 angle;
    sincosf(float(past + i / half) * frequencies[i % half], &angle.y, &angle.x);
    angles[i] = angle;
}

} // namespace

Status rotary_angles(Ctx *ctx, const AttentionForward *a, Tensor angles) {
    const int64_t half = tensor_width(a->frequencies), count = tensor_rows(angles) * half;
    return LAUNCH_EARLY(ctx, angles_kernel, divide_up(count, THREADS), THREADS, 0,
                        data_of<const float>(a->frequencies), a->past, count, int(half),
                        data_of<float2>(angles));
}

Status rotate_heads(Ctx *ctx, const AttentionForward *a, Tensor q, Tensor k, const int *past, bool back) {
    const int64_t half = tensor_width(a->frequencies), size = 2 * half;
    DISPATCH_FLOAT(q.dtype, T, {
        const Turn<T> t = {{data_of<T>(q), q.stride, int(tensor_width(q) / size)},
                           {data_of<T>(k), k.stride, int(tensor_width(k) / size)},
                           tensor_rows(q),
                           int(q.shape.d[1]),
                           int(half),
                           data_of<float>(a->frequencies),
                           past,
                           data_of<int>(a->pasts),
                           data_of<int>(a->starts),
                           a->past,
                           back ? -1.f : 1.f};
        const bool packed = walks_in_packs(VECTOR<T>, {half, q.stride, k.stride}, {q.data, k.data});
        DISPATCH_PACK(packed, T, N, return (launch<T, N>(ctx, t)));
    });
}
