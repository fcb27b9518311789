#include "base/random.h"

#include <assert.h>
#include <math.h>

RandomBlock random_philox(RandomBlock counter, uint32_t key0, uint32_t key1) {
    RandomBlock c = counter;
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53 * c.word[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57 * c.word[2];
        c = (RandomBlock){{(uint32_t)(product1 >> 32) ^ c.word[1] ^ key0, (uint32_t)product1,
                           (uint32_t)(product0 >> 32) ^ c.word[3] ^ key1, (uint32_t)product0}};
        key0 += 0x9E3779B9; /* Weyl sequences: the golden ratio and sqrt(3) - 1 */
        key1 += 0xBB67AE85;
    }
    return c;
}

RandomBlock random_block(uint64_t seed, uint64_t stream, uint64_t index) {
    RandomBlock counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    return random_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

// 64 of the block's 128 bits
static uint64_t wide(RandomBlock block, int half) {
    return (uint64_t)block.word[2 * half + 1] << 32 | block.word[2 * half];
}

/* Maps the top 53 bits to [0, 1). */
static double unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return unit(wide(random_block(seed, stream, index), 0));
}

/* One block gives two independent normals. */
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t pair, double z[2]) {
    RandomBlock block = random_block(seed, stream, pair);
    double radius = sqrt(-2 * log(1 - unit(wide(block, 0)))); // in (0, 1], so the logarithm is finite
    double angle = 2 * 3.14159265358979323846 * unit(wide(block, 1));
    z[0] = radius * cos(angle);
    z[1] = radius * sin(angle);
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    double z[2];
    normal_pair(seed, stream, index / 2, z);
    return z[index % 2];
}

void random_normals(uint64_t seed, uint64_t stream, uint64_t first, float scale, float *out, int64_t count) {
    int64_t pairs = count > 0 ? (int64_t)((first + (uint64_t)count + 1) / 2 - first / 2) : 0;
#pragma omp parallel for schedule(static) if (pairs > 10000)
    for (int64_t pair = 0; pair < pairs; pair++) {
        double z[2];
        normal_pair(seed, stream, first / 2 + (uint64_t)pair, z);
        for (int half = 0; half < 2; half++) {
            int64_t i = 2 * pair + half - (int64_t)(first % 2);
            if (0 <= i && i < count) out[i] = (float)(scale * z[half]);
        }
    }
}

uint64_t random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n) {
    assert(n > 0);
    /* Lemire 2019: the high half of bits * n is below n; rejecting the lowest 2^64 mod n low halves
     * removes the bias. A rejected draw continues under another key, because the caller owns the counter. */
    uint64_t refused = (0 - n) % n;
    for (uint64_t attempt = 0;; attempt++) {
        uint64_t bits = wide(random_block(seed + attempt * 0x9E3779B97F4A7C15, stream, index), 0);
        __uint128_t product = (__uint128_t)bits * n;
        if ((uint64_t)product >= refused) return (uint64_t)(product >> 64);
    }
}

int64_t random_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t i) {
    assert(n > 0 && 0 <= i && i < n);
    enum { ROUNDS = 8 };
    int half_bits = 1;
    while (half_bits < 31 && ((int64_t)1 << (2 * half_bits)) < n) half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1, index = (uint64_t)i;
    do {
        uint64_t left = index >> half_bits, right = index & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            /* The Feistel round function of `right`. The round number and `right` share the first half of the
             * counter. */
            uint64_t mixed = wide(random_block(seed, epoch, round << 32 | right), 0) & mask;
            uint64_t next = left ^ mixed;
            left = right;
            right = next;
        }
        index = left << half_bits | right;
    } while (index >= (uint64_t)n);
    return (int64_t)index;
}
