#include "kernels/example.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    (void)ctx;
    (void)e;
    return fail(ERROR_USAGE, "--op=comm needs several ranks, but ./infer has one; ./train --gpus=2 "
                             "--compare times it");
}

const Example comm_example = {
    .what = "nothing alone: ranks exchange with each other",
    .run = run,
};
