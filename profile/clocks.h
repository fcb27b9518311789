/* clocks: how fast processor and GPU run at the moment, and what the driver says of the GPU. */
#pragma once

#include "kernels/device/device.h"

enum { CLOCKS_BYTES = 160 };

/* "2 processors at 2.60 to 2.61 GHz, governor performance"; what the system does not tell is left out. */
void clocks_of_processor(char text[CLOCKS_BYTES]);

/* By NVML, opened at run time: the driver's version with that of CUDA which it serves, "580.159.04, CUDA 13.0", and
 * "SM 1755 of 1980 MHz, memory 3201 MHz, 689 of 700 W, 61 C". "" on the CPU and where NVML does not tell. */
void clocks_of_gpu(const Device *device, char driver[CLOCKS_BYTES], char clocks[CLOCKS_BYTES]);
