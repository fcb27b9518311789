#include "kernels/example.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    (void)ctx;
    (void)e;
    return fail(ERROR_USAGE,
                "--op=comm: ranks exchange with each other, and ./infer is one alone; ./train --ranks=2 "
                "--compare times it");
}

const Example comm_example = {
    .what = "nothing alone: ranks exchange with each other",
    .run = run,
};
