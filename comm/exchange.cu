/* The CPU's forms serve the GPU too: the communicator hides the device. */
#include "comm/exchange.h"

SLOT(COMM, BACKWARD, CUDA, NAIVE, F32, exchange_reduce);
SLOT(COMM, BACKWARD, CUDA, NAIVE, BF16, exchange_reduce);
SLOT(COMM, BACKWARD, CUDA, FUSED, F32, exchange_gradients_fused);
SLOT(COMM, BACKWARD, CUDA, FUSED, BF16, exchange_gradients_fused);
SLOT(COMM, FORWARD, CUDA, NAIVE, F32, exchange_weights_naive);
SLOT(COMM, FORWARD, CUDA, NAIVE, BF16, exchange_weights_naive);
SLOT(COMM, FORWARD, CUDA, FUSED, F32, exchange_weights_fused);
SLOT(COMM, FORWARD, CUDA, FUSED, BF16, exchange_weights_fused);
SLOT(COMM, UPDATE, CUDA, NAIVE, F32, exchange_reduce);
SLOT(COMM, UPDATE, CUDA, NAIVE, BF16, exchange_reduce);
SLOT(COMM, UPDATE, CUDA, FUSED, F32, exchange_reduce);
SLOT(COMM, UPDATE, CUDA, FUSED, BF16, exchange_reduce);
