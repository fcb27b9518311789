/* tensorboard: scalars in a file that TensorBoard reads. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct TensorBoard TensorBoard;

/* Makes the folder, and in it a file of this run's own; a resumed run's curves go on from those before.
 * `folder` "": nothing is written, and *board is NULL, which the others take. */
CHECKED Status tensorboard_open(const char *folder, TensorBoard **board);
void tensorboard_close(TensorBoard *board);

/* A value of the curve `tag`, "loss/train", at a step. What is not finite is drawn as such. */
CHECKED Status tensorboard_add(TensorBoard *board, const char *tag, int64_t step, double value);

/* What was added can be seen from now on. */
CHECKED Status tensorboard_flush(TensorBoard *board);
