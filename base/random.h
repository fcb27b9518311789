/* random: counter-based random numbers (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy
 * as 1, 2, 3"). A number is a pure function of (seed, stream, index). There is no state to save, and
 * threads need no lock. Give every use its own stream, and every element its own index. */
#pragma once

#include <stdint.h>

typedef struct {
    uint32_t word[4];
} RandomBlock;

/* Philox4x32-10: 128 random bits from a 128-bit counter and a 64-bit key. */
RandomBlock random_philox(RandomBlock counter, uint32_t key0, uint32_t key1);

/* 128 random bits: key = seed, counter = (index, stream), low words first. */
RandomBlock random_block(uint64_t seed, uint64_t stream, uint64_t index);

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index); // [0, 1), 53 bits
double random_normal(uint64_t seed, uint64_t stream,
                     uint64_t index); // mean 0, variance 1 (Box and Muller 1958)
uint64_t random_below(uint64_t seed, uint64_t stream, uint64_t index,
                      uint64_t n); // [0, n), n >= 1, without bias

/* out[i] = scale * random_normal(seed, stream, first + i), on all cores and in half the time of single
 * calls. */
void random_normals(uint64_t seed, uint64_t stream, uint64_t first, float scale, float *out, int64_t count);

/* A shuffle without a table: for each (seed, epoch), i -> random_permute(.., n, i) is a permutation of [0,
 * n). 0 <= i < n <= 2^62. A Feistel network over the next power of four is iterated until the result is
 * below n (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"), at most four times on
 * average. */
int64_t random_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t i);
