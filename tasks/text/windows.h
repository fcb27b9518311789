/* windows: batches for a text model. The row of tokens is cut into windows of seq + 1 tokens with stride seq: a
 * window's inputs are its first seq tokens, its targets its last seq. */
#pragma once

#include "data/loader.h"
#include "data/tokens.h"

/* The source outlives the loader. ERROR_FORMAT where it is too short for one window. */
CHECKED Status loader_open_windows(const LoaderOptions *options, const TokenSource *source, Loader **loader);

/* ---- for makers of batches of windows ---- */

typedef struct {
    LoaderOptions options;
    const TokenSource *source;
    int64_t count;  // windows of an epoch
    int64_t stride; // tokens from one window to the next
} Windows;

/* A window takes `stride` tokens, and looks `beyond` tokens further. `bytes` gets the size of a batch's inputs
 * and targets. */
CHECKED Status windows_open(const LoaderOptions *options, const TokenSource *source, int64_t stride,
                            int64_t beyond, Windows *windows, int64_t *bytes);

/* Where window number `position` of the endless row of epochs begins in the source. */
int64_t windows_first(const Windows *windows, int64_t position);
