#include "profile/operands.h"

#include "comm/exchange.h"
#include "kernels/accumulate/accumulate.h"
#include "kernels/attention/attention.h"
#include "kernels/decode/decode.h"
#include "kernels/dropout/dropout.h"
#include "kernels/embed/embed.h"
#include "kernels/gather/gather.h"
#include "kernels/linear/linear.h"
#include "kernels/loss/loss.h"
#include "kernels/norm/norm.h"
#include "kernels/patch/patch.h"
#include "kernels/pool/pool.h"
#include "optim/adamw.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Where a contract has them. Each contract of a backward pass begins with a pointer to its forward one. */
static const struct {
    size_t inputs[RECORD_INPUTS - 1], gradient;
    int count;
} places[OP_COUNT] = {
    [OP_EMBED] = {{offsetof(EmbedForward, token), offsetof(EmbedForward, tokens),
                   offsetof(EmbedForward, position), offsetof(EmbedForward, segment)},
                  offsetof(EmbedBackward, dy),
                  4},
    [OP_PATCH] = {{offsetof(PatchForward, pixels), offsetof(PatchForward, weight),
                   offsetof(PatchForward, bias), offsetof(PatchForward, position)},
                  offsetof(PatchBackward, dy),
                  4},
    [OP_DROPOUT] = {{offsetof(DropoutForward, x)}, offsetof(DropoutBackward, dy), 1},
    [OP_NORM] = {{offsetof(NormForward, x), offsetof(NormForward, skip), offsetof(NormForward, weight),
                  offsetof(NormForward, bias)},
                 offsetof(NormBackward, dy),
                 4},
    [OP_LINEAR] = {{offsetof(LinearForward, x), offsetof(LinearForward, weight),
                    offsetof(LinearForward, bias), offsetof(LinearForward, skip)},
                   offsetof(LinearBackward, dy),
                   4},
    [OP_ATTENTION] = {{offsetof(AttentionForward, q), offsetof(AttentionForward, k),
                       offsetof(AttentionForward, v)},
                      offsetof(AttentionBackward, dy),
                      3},
    [OP_GATHER] = {{offsetof(GatherForward, x), offsetof(GatherForward, rows)},
                   offsetof(GatherBackward, dy),
                   2},
    [OP_POOL] = {{offsetof(PoolForward, x)}, offsetof(PoolBackward, dy), 1},
    [OP_LOSS] = {{offsetof(Loss, hidden), offsetof(Loss, weight), offsetof(Loss, bias),
                  offsetof(Loss, targets)},
                 0,
                 4},
    [OP_DECODE] = {{offsetof(Decode, token_id), offsetof(Decode, token)}, 0, 2},
    [OP_ACCUMULATE] = {{offsetof(Accumulate, x), offsetof(Accumulate, sum)}, 0, 2},
    [OP_COMM] = {{offsetof(Exchange, whole)}, 0, 1},
    [OP_ADAMW] =
        {{offsetof(Adamw, weight), offsetof(Adamw, gradient), offsetof(Adamw, m), offsetof(Adamw, v)}, 0, 4},
};

static Tensor at(const void *contract, size_t place) {
    Tensor t;
    memcpy(&t, (const char *)contract + place, sizeof t);
    return t;
}

void operands_of(const Call *call, Tensor inputs[RECORD_INPUTS]) {
    const void *forward = call->contract;
    int count = places[call->operation].count, first = 0;
    if (call->pass == PASS_BACKWARD && places[call->operation].gradient) {
        inputs[first++] = at(call->contract, places[call->operation].gradient);
        memcpy(&forward, call->contract, sizeof forward);
    }
    for (int i = 0; i < count && first + i < RECORD_INPUTS; i++)
        inputs[first + i] = at(forward, places[call->operation].inputs[i]);
}
