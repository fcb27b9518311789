#include "profile/occupancy.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

double kernel_occupancy(const MultiprocessorLimits *limits, const KernelShape *s) {
    enum { WARP = 32, REGISTER_UNIT = 256, FILES = 4, SHARED_UNIT = 128 };
    int64_t threads = (int64_t)s->block[0] * s->block[1] * s->block[2];
    if (threads < 1 || !limits->warps) return 0;
    int64_t warps = (threads + WARP - 1) / WARP, blocks = least(limits->blocks, limits->warps / warps);
    if (s->registers > 0) {
        int64_t of_warp = ((int64_t)s->registers * WARP + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
        blocks = least(blocks, limits->registers / FILES / of_warp * FILES / warps);
    }
    int64_t shared = (int64_t)s->shared_static + s->shared_dynamic + (int64_t)limits->shared_reserved;
    shared = (shared + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT;
    if (shared > 0) blocks = least(blocks, (int64_t)limits->shared / shared);
    return (double)(blocks * warps) / (double)limits->warps;
}
