/* clocks: the present clock rates of processor and GPU, the GPU's power, and its driver's version. */
#pragma once

#include "kernels/device/device.h"

enum { CLOCKS_BYTES = 160 };

/* "2 processors at 2.60 to 2.61 GHz, governor performance"; omits what the system does not provide. */
void clocks_of_processor(char text[CLOCKS_BYTES]);

/* Asks NVML, which is opened at run time. `driver` is the driver's version and the newest CUDA version
 * that it supports, "580.159.04, CUDA 13.0"; `clocks` is "SM 1755 of 1980 MHz, memory 3201 MHz, 689 of 700
 * W, 61 C". Both are "" on the CPU and without NVML. */
void clocks_of_gpu(const Device *device, char driver[CLOCKS_BYTES], char clocks[CLOCKS_BYTES]);
