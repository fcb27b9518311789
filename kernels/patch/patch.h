/* patch: patch embedding with positions. Dosovitskiy et al. 2021, eq. 1.
 *
 *     x[b,n,(c,i,j)] = (pixels[b, P*r + i, P*s + j, c] / 255 - mean[c]) / deviation[c]     patch n is (r, s)
 *     y[b,n]         = x[b,n] weight^T + bias + position[n]
 *
 * Patches are numbered row by row. Incomplete patches at the right and lower edges are ignored. With a
 * class token, row 0 of x is zeros and the patches follow:
 *
 *     y[b,0]         = token + position[0]
 *     y[b,1 + n]     = x[b,1 + n] weight^T + bias + position[1 + n]
 *
 * Backward, where sums over b are over pictures and sums over n over patches:
 *
 *     dweight     += sum over b, n of dy[b,n]^T x[b,n]
 *     dbias       += sum over b, n of dy[b,n]
 *     dtoken      += sum over b of dy[b,0]
 *     dposition   += sum over b of dy[b]
 *
 * Pixels have no gradient. Sums run in a fixed order. weight has the layout of torch.nn.Conv2d. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

enum { PATCH_CHANNELS = 4 }; // most channels

/* x, weight, bias, token, position and y have one dtype. */
typedef struct {
    Tensor pixels;                    // (B, H, W, channels) u8, device memory
    double mean[PATCH_CHANNELS];      // mean of each channel, for values in [0, 1]
    double deviation[PATCH_CHANNELS]; // above 0
    int64_t size;                     // P: a patch is P x P pixels
    Tensor weight;                    // (C, channels*P*P)
    Tensor bias;                      // (C)
    Tensor token;                     // (C): the class token; may be empty
    Tensor position;                  // (T, C): T is (H / P) * (W / P), plus one with a token
    Tensor x;                         // (B, T, channels*P*P): read by the backward pass
    Tensor y;                         // (B, T, C)
} PatchForward;

typedef struct {
    const PatchForward *forward;
    Tensor dy;        // (B, T, C)
    Tensor dweight;   // (C, channels*P*P) fp32, +=
    Tensor dbias;     // (C) fp32, +=
    Tensor dtoken;    // (C) fp32, +=; empty if token is
    Tensor dposition; // (T, C) fp32, +=
} PatchBackward;

/* Takes an empty y from `saved`, and an empty x from `saved` in training, else from scratch. */
CHECKED Status patch_forward(Ctx *ctx, PatchForward *p, ArenaKind saved);
CHECKED Status patch_backward(Ctx *ctx, const PatchBackward *p);

/* Sizes derived from the contract's tensors. */
typedef struct {
    int64_t batch, height, width, channels, size; // size is P
    int64_t down, across;                         // patches per column and per row: H / P, W / P
    int64_t first;                                // row of the first patch: 1 with a class token
    int64_t rows;                                 // T
    int64_t inputs, outputs;                      // channels*P*P, C
} PatchSizes;
PatchSizes patch_sizes(const PatchForward *p);

__END_DECLS
