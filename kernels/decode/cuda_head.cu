#include "kernels/cuda/reduce.cuh"
#include "kernels/decode/cuda_token.cuh"

/* The head: logits of the normalized row. Only as many blocks as can run at once share the rows of weights,
 * OUTPUTS rows per warp at a time, so that few blocks repeat the norm. The first rows of weights are
 * prefetched before the wait. */
namespace decode {
namespace {

constexpr int OUTPUTS = 4, BLOCKS_OF_EACH = 2; // rows per warp at once; blocks per multiprocessor

/* Floor: Vp * C * sizeof(T) bytes. ROUND 16-byte words of each row are in flight at once. */
/* Anatomy. Parallel: over rows of weights, 4 per warp and iteration; lanes over the inputs. Launch: at most 2
 * blocks of 256 per multiprocessor. Holds: 125 to 128 registers, the normed row in shared memory,
 * head_bytes(), some spill. Occupancy: registers, by its bounds: 2 blocks per multiprocessor, 25% of the
 * warps. Reads: 16 bytes per load, coalesced, 12 or 16 in flight, the first before the wait. Syncs: barriers
 * of the block in the norm; then warp shuffles only. Fusion: the drawing of the token, by the last block to
 * finish. */
template <class T, int ROUND, bool AFTER>
__global__ void __launch_bounds__(THREADS, BLOCKS_OF_EACH) head_kernel(const __grid_constant__ Head<T> h) {
    constexpr int N = VECTOR<T>;
    extern __shared__ uint4 memory[];
    const int lane = threadIdx.x % WARP, C = h.stream.width, vectors = C / N;
    const int step = gridDim.x * WARPS * OUTPUTS;
    const Row<T> stream = row_at<T>(memory, C);
    int first = (blockIdx.x * WARPS + threadIdx.x / WARP) * OUTPUTS, start = lane;
    Words words[OUTPUTS][ROUND];
    const auto load = [&] {
#pragma unroll
        for (int o = 0; o < OUTPUTS; o++)
#pragma unroll
            for (int i = 0; i < ROUND; i++) {
                const int v = start + i * WARP;
                words[o][i] = {};
                if (v < vectors && first + o < h.vocab)
                    words[o][i] = load_words(h.weight + int64_t(first + o) * C + v * N);
            }
    };
    load();
    fetch_norm<T, AFTER>(h.stream, stream);
    norm_stream<T, AFTER>(h.stream, stream, false);

    float sums[OUTPUTS] = {};
    while (first < h.vocab) {
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            const int v = start + i * WARP;
            if (v >= vectors) break;
            float x[N];
            unpack<T>(load_words(stream.normed + v * N), x);
#pragma unroll
            for (int o = 0; o < OUTPUTS; o++) {
                float w[N];
                unpack<T>(words[o][i], w);
#pragma unroll
                for (int e = 0; e < N; e++) sums[o] = fmaf(x[e], w[e], sums[o]);
            }
        }
        const int finished = first;
        start += ROUND * WARP;
        if (start - lane >= vectors) start = lane, first += step;
        load();
        if (first == finished) continue;
#pragma unroll
        for (int o = 0; o < OUTPUTS; o++) {
            const float sum = warp_sum(sums[o]);
            if (lane == o && finished + o < h.vocab) h.logits[finished + o] = sum;
            sums[o] = 0.f;
        }
    }
}

template <class T, bool AFTER>
Status launch(Ctx *ctx, const Head<T> &h) {
    const int64_t most = int64_t(cuda_device(ctx)->multiprocessors) * BLOCKS_OF_EACH;
    const int64_t blocks = divide_up(h.vocab, WARPS * OUTPUTS);
    const unsigned grid = unsigned(blocks < most ? blocks : most);
    const size_t bytes = head_bytes(h.stream.width, sizeof(T));
    if (h.stream.width / VECTOR<T> % (3 * WARP) == 0)
        return LAUNCH_EARLY(ctx, (head_kernel<T, 3, AFTER>), grid, THREADS, bytes, h);
    return LAUNCH_EARLY(ctx, (head_kernel<T, 4, AFTER>), grid, THREADS, bytes, h);
}

} // namespace

size_t head_bytes(int width, size_t size) {
    return row_bytes(width, size);
}

Status head(Ctx *ctx, const Head<float> &h, bool after) {
    return after ? launch<float, true>(ctx, h) : launch<float, false>(ctx, h);
}
Status head(Ctx *ctx, const Head<bf16> &h, bool after) {
    return after ? launch<bf16, true>(ctx, h) : launch<bf16, false>(ctx, h);
}

} // namespace decode
