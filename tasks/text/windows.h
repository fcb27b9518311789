/* windows: batches for a text model. The token sequence is cut into windows of seq + 1 tokens with stride
 * seq: a window's inputs are its first seq tokens, its targets its last seq. */
#pragma once

#include "data/loader.h"
#include "data/tokens.h"

/* The source must outlive the loader. ERROR_FORMAT if it is too short for one window. */
CHECKED Status loader_open_windows(const LoaderOptions *options, const TokenSource *source, Loader **loader);

/* ---- for makers of batches of windows ---- */

typedef struct {
    LoaderOptions options;
    const TokenSource *source;
    int64_t count;  // windows per epoch
    int64_t stride; // tokens from one window to the next
} Windows;

/* A window has `stride` tokens, and needs `beyond` more after them. `bytes` is set to the size of a batch's
 * inputs and targets. */
CHECKED Status windows_open(const LoaderOptions *options, const TokenSource *source, int64_t stride,
                            int64_t beyond, Windows *windows, int64_t *bytes);

/* The start in the source of window number `position`, counted over all epochs. */
int64_t windows_first(const Windows *windows, int64_t position);
