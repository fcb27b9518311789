/* tensorboard: writes scalars to a file for TensorBoard. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct TensorBoard TensorBoard;

/* Creates the folder, and in it a file for this run; a resumed run continues the earlier curves. `folder` "":
 * nothing is written, and *board is NULL, which the other functions accept. */
CHECKED Status tensorboard_open(const char *folder, TensorBoard **board);
void tensorboard_close(TensorBoard *board);

/* Adds a value of the curve `tag`, such as "loss/train", at a step. Values that are not finite are written,
 * too. */
CHECKED Status tensorboard_add(TensorBoard *board, const char *tag, int64_t step, double value);

/* Makes the added values visible to readers. */
CHECKED Status tensorboard_flush(TensorBoard *board);
