/* seen: online softmax (Milakov, Gimelshein 2018) of one query over the keys seen so far. Scores are
 * exponents of 2. */
#pragma once

/* Partial result for N columns of a head; y is not yet divided by `sum`. Before the first key: {-INFINITY,
 * 0, {}}. */
template <int N>
struct Seen {
    float maximum, sum, y[N];
};

/* Adds keys with scores `s` (-inf: no key); values(u, v) gives the value of key u. */
template <int N, int KEYS, class Values>
__device__ inline void add_keys(Seen<N> &seen, const float (&s)[KEYS], Values values) {
    float maximum = seen.maximum;
#pragma unroll
    for (int u = 0; u < KEYS; u++) maximum = fmaxf(maximum, s[u]);
    const float base = maximum == -INFINITY ? 0.f : maximum; // before the first key every power is 0
    const float correction = exp2f(seen.maximum - base);
    seen.maximum = maximum;
    seen.sum *= correction;
#pragma unroll
    for (int i = 0; i < N; i++) seen.y[i] *= correction;
#pragma unroll
    for (int u = 0; u < KEYS; u++) {
        const float power = exp2f(s[u] - base);
        float v[N];
        values(u, v);
        seen.sum += power;
#pragma unroll
        for (int i = 0; i < N; i++) seen.y[i] = fmaf(power, v[i], seen.y[i]);
    }
}

/* Merges the groups of LANES threads of a warp; each lane merges with the lanes that hold its columns. */
template <int LANES, int N>
__device__ inline void merge_warp(Seen<N> &seen) {
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2) {
        const float maximum = __shfl_xor_sync(0xffffffffu, seen.maximum, distance);
        const float sum = __shfl_xor_sync(0xffffffffu, seen.sum, distance);
        const float larger = fmaxf(seen.maximum, maximum), base = larger == -INFINITY ? 0.f : larger;
        const float own = exp2f(seen.maximum - base), other = exp2f(maximum - base);
        seen.maximum = larger;
        seen.sum = seen.sum * own + sum * other;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float y = __shfl_xor_sync(0xffffffffu, seen.y[i], distance);
            seen.y[i] = seen.y[i] * own + y * other;
        }
    }
}
