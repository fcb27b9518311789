/* peer_wait: flags in memory that several GPUs share, for kernels of the peer engine. */
#pragma once

#include "comm/peer.cuh"

enum { LOOKS = 64 }; // polls of a flag for each of the host's page, which is slow to read

__device__ static inline uint32_t load_acquire(const uint32_t *from) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ static inline void store_release(uint32_t *to, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/* Waits until the flag is at least `turn`, or a rank has aborted. */
__device__ static inline void wait_for_flag(const uint32_t *flag, uint32_t turn, const PeerPage *page) {
    for (int looks = 1; (int32_t)(load_acquire(flag) - turn) < 0; looks++)
        if (looks % LOOKS == 0 && load_acquire(&page->aborted)) return;
}

__device__ static inline PeerFlags *flags_at(const Addresses &flags, int rank) {
    return reinterpret_cast<PeerFlags *>(flags.at[rank]);
}
